package schema_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
)

func TestWhatIsWrongWithAURLIsNamedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	const (
		escape = "must be escaped: write @ as %40"
		port   = "has a port that is not a number from 1 to 65535"
		noList = "is neither a URL that begins with postgres://"
	)
	for url, says := range map[string]string{
		"postgres://me:hunter2@h:port/d":                               port,
		"postgres://me:hunter2@h:99999/d":                              port,
		"postgres://me:hunter2@h:0/d":                                  port,
		"postgres://me:hunter2@h:54 32/d":                              port,
		"postgres://me:hunter2@[::1]:port/d":                           port,
		"postgres://me:hunter2@one:1,two:x/d":                          port,
		"postgres://me:hunter2/d":                                      port, // the host is missing
		"postgres://me:hunter2@[::1/d":                                 "begins with [ and does not end with ]",
		"postgres://me:a@hunter2@h/d":                                  escape,
		"postgres://me:hunter2/a@h/d":                                  escape,
		"postgres://me:12/hunter2@h/d":                                 escape,
		"postgres://me:12/a?hunter2@h/d":                               escape,
		"postgres://me:a@b/c?hunter2@h/d":                              escape,
		"postgres://me:hunter2%@h/d":                                   escape,
		"postgres://me:hunter2%4@h/d":                                  escape,
		"postgres://me:hunter2%zz@h/d":                                 escape,
		"postgres://me:hunter2%4z@h/d":                                 escape,
		"postgres://me:hunt er2@h/d":                                   escape,
		"postgres://me:hunter2@h/d?sslmode=hunter2":                    `has an option "sslmode" with a value that cannot be used`,
		"postgres://me:hunter2@h/d?connect_timeout=5&pool_max_conns=x": `has an option "pool_max_conns" with`,
		"postgres://me:hunter2@h":                                      "names no database: end it with /database",
		"postgres://me:hunter2@h/?sslmode=disable":                     "names no database",
		"mysql://me:hunter2@h/d":                                       "must begin with postgres://, not mysql://",
		`"postgres://me:hunter2@h/d"`:                                  noList,
		"h:5432/d":                                                     noList,
		"host=h password=hunter2 port=x":                               noList,
	} {
		err := schema.CheckURL(url)
		require.ErrorContains(t, err, says, url)
		assert.NotContains(t, err.Error(), "hunter2")
		assert.NotContains(t, err.Error(), "me:")
	}
	for _, url := range []string{
		"", "postgres://me:hunter2@h:5432/d", "postgresql://h/d", "postgres://me@[::1]:5432/d", "postgres://me:h#?u:nter2@h/d",
		"postgres://me:hunter%402@one:1,two:2/d?target_session_attrs=read-write", "postgres:///?dbname=d&host=/run", "host=h user=me",
		"host=h password=a://b",
	} {
		require.NoError(t, schema.CheckURL(url), url)
	}
}

func TestBadURLsAreRefusedWithoutTheirPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://me:hunter2@[::1:bad/x", "postgres://me:hunter2@h:port/x", "host=h password=hunter2 port=x"} {
		_, err := schema.Open(t.Context(), url, schema.Options{})
		require.ErrorContains(t, err, "DATABASE_URL ", url)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}
