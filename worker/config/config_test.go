package config

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/workflows/contract"
	"github.com/reclaimhq/reclaim/workflows/contract/codec"
)

const goodURL = "postgres://user:s3cret@127.0.0.1:5432/reclaim"

// load reads an environment of these variables and no Temporal settings of this machine's user.
func load(t *testing.T, variables map[string]string) (Config, error) {
	t.Helper()
	t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(t.TempDir(), "none.toml"))
	return Load(func(name string) string { return variables[name] })
}

func TestDefaults(t *testing.T) {
	c, err := load(t, map[string]string{"DATABASE_URL": goodURL})
	require.NoError(t, err)
	assert.Equal(t, goodURL, c.MigrateURL)
	assert.Equal(t, contract.TaskQueue, c.TaskQueue)
	assert.Equal(t, 16, c.Connections)
	assert.Equal(t, "default", c.Temporal.Namespace)
	assert.Equal(t, "localhost:7233", c.Temporal.HostPort)
}

func TestSettings(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "temporal.example:7233")
	t.Setenv("TEMPORAL_NAMESPACE", "billing")
	c, err := load(t, map[string]string{
		"DATABASE_URL": goodURL, "RECLAIM_MIGRATE_URL": "host=db user=owner dbname=reclaim",
		"RECLAIM_TASK_QUEUE": "money", "RECLAIM_CONNECTIONS": "32", "RECLAIM_AUDIT_EVERY": "90m", "RECLAIM_AUDIT_WHOLE_EVERY": "12h", "RECLAIM_SEAL_EVERY": "0",
		"TEMPORAL_DEPLOYMENT_NAME": "reclaim", "TEMPORAL_WORKER_BUILD_ID": "7f3a",
	})
	require.NoError(t, err)
	assert.Equal(t, "host=db user=owner dbname=reclaim", c.MigrateURL)
	assert.Equal(t, "money", c.TaskQueue)
	assert.Equal(t, 32, c.Connections)
	assert.Equal(t, "reclaim", c.DeploymentName)
	assert.Equal(t, "7f3a", c.BuildID)
	assert.Equal(t, [3]time.Duration{90 * time.Minute, 12 * time.Hour, 0}, [3]time.Duration{c.AuditEvery, c.AuditWholeEvery, c.SealEvery})
	assert.Equal(t, "billing", c.Temporal.Namespace)
	assert.Equal(t, "temporal.example:7233", c.Temporal.HostPort)
}

func TestWithKeysPayloadsAreEncrypted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte("k1 "+base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600))
	c, err := load(t, map[string]string{"DATABASE_URL": goodURL, "RECLAIM_CODEC_KEYS": path})
	require.NoError(t, err)
	payload, err := c.Temporal.DataConverter.ToPayload("s3cret")
	require.NoError(t, err)
	assert.Equal(t, codec.Encoding, string(payload.GetMetadata()["encoding"]))
	assert.NotEmpty(t, c.Temporal.FailureConverter.ErrorToFailure(errors.New("s3cret")).GetEncodedAttributes())
}

func TestMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		variable, value string
		says            string
	}{
		"no database":          {"DATABASE_URL", "", "DATABASE_URL is missing"},
		"other scheme":         {"DATABASE_URL", "mysql://user:s3cret@host/reclaim", "must begin with postgres://, not mysql://"},
		"wrong port":           {"DATABASE_URL", "postgres://user:s3cret@host:port/reclaim", "DATABASE_URL has a port that"},
		"not escaped":          {"DATABASE_URL", "postgres://user:s3cret%@host/reclaim", "DATABASE_URL has a special character"},
		"names no database":    {"DATABASE_URL", "postgres://user:s3cret@host", "DATABASE_URL names no database"},
		"owner's scheme":       {"RECLAIM_MIGRATE_URL", "http://user:s3cret@host/reclaim", "RECLAIM_MIGRATE_URL must begin with"},
		"long queue":           {"RECLAIM_TASK_QUEUE", strings.Repeat("q", 201), "RECLAIM_TASK_QUEUE must have at most 200"},
		"reserved queue":       {"RECLAIM_TASK_QUEUE", "/_sys/q", "RECLAIM_TASK_QUEUE must have"},
		"no number":            {"RECLAIM_CONNECTIONS", "many", `RECLAIM_CONNECTIONS must be a whole number from 4 to 1000, not "many"`},
		"too few connections":  {"RECLAIM_CONNECTIONS", "3", "RECLAIM_CONNECTIONS must be"},
		"too many connections": {"RECLAIM_CONNECTIONS", "1001", "RECLAIM_CONNECTIONS must be"},
		"no build":             {"TEMPORAL_DEPLOYMENT_NAME", "reclaim", "TEMPORAL_DEPLOYMENT_NAME and TEMPORAL_WORKER_BUILD_ID go together"},
		"no deployment":        {"TEMPORAL_WORKER_BUILD_ID", "7f3a", "TEMPORAL_DEPLOYMENT_NAME and TEMPORAL_WORKER_BUILD_ID go together"},
		"audits too often":     {"RECLAIM_AUDIT_EVERY", "10ms", `RECLAIM_AUDIT_EVERY must be a duration of at least 1s, such as 1h, not "10ms"`},
		"whole too often":      {"RECLAIM_AUDIT_WHOLE_EVERY", "0", `RECLAIM_AUDIT_WHOLE_EVERY must be a duration of at least 1s, such as 24h, not "0"`},
		"seals too often":      {"RECLAIM_SEAL_EVERY", "10ms", `RECLAIM_SEAL_EVERY must be a duration of at least 1s, such as 5s, or 0 for never, not "10ms"`},
		"audits at no time":    {"RECLAIM_AUDIT_EVERY", "daily", "RECLAIM_AUDIT_EVERY must be"},
		"channels":             {"RECLAIM_CHANNELS", "/none/channels.toml", "RECLAIM_CHANNELS: /none/channels.toml: cannot be read"},
		"keys":                 {"RECLAIM_CODEC_KEYS", "/none/keys", "RECLAIM_CODEC_KEYS: /none/keys: cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, map[string]string{"DATABASE_URL": goodURL, tc.variable: tc.value})
			require.ErrorContains(t, err, tc.says)
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func TestEveryMistakeIsReportedAtOnce(t *testing.T) {
	t.Setenv("TEMPORAL_PROFILE", "unknown")
	_, err := load(t, map[string]string{
		"DATABASE_URL": "mysql://host/reclaim", "RECLAIM_MIGRATE_URL": "http://host/reclaim",
		"RECLAIM_TASK_QUEUE": "/_sys/q", "RECLAIM_CONNECTIONS": "0", "RECLAIM_CHANNELS": "/none/channels.toml",
		"RECLAIM_CODEC_KEYS": "/none/keys",
	})
	require.Error(t, err)
	for _, name := range []string{
		"DATABASE_URL", "RECLAIM_MIGRATE_URL", "RECLAIM_TASK_QUEUE", "RECLAIM_CONNECTIONS", "RECLAIM_CHANNELS", "TEMPORAL_",
		"RECLAIM_CODEC_KEYS",
	} {
		assert.Contains(t, err.Error(), name)
	}
}
