package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/api"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

var curlOfTheReadme = regexp.MustCompile("(?s)## From any language: curl\n.*?```bash\n(.*?)```")

func TestTheReadmesCurlDoesWhatItSays(t *testing.T) {
	for _, program := range []string{"bash", "curl", "sed"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s", program)
		}
	}
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	require.NoError(t, err)
	script := curlOfTheReadme.FindSubmatch(readme)
	require.NotNil(t, script, "README.md shows no curl")
	assert.LessOrEqual(t, bytes.Count(script[1], []byte("\n")), 30)

	// A folder that every user may enter, unlike t.TempDir: Postgres does not run as root.
	dir, err := os.MkdirTemp("", "reclaim-readme-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	startDev(t, devstack.Options{Dir: dir})

	follow := func() (told []json.RawMessage) {
		bash := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", `. "$0"`+"\n"+string(script[1]), filepath.Join(dir, "env"))
		bash.Dir = ".."
		var said, complained bytes.Buffer
		bash.Stdout, bash.Stderr = &said, &complained
		require.NoError(t, bash.Run(), "%s%s", &said, &complained)
		for decoder := json.NewDecoder(bytes.NewReader(said.Bytes())); decoder.More(); {
			var answer json.RawMessage
			require.NoError(t, decoder.Decode(&answer), "%s", &said)
			told = append(told, answer)
		}
		require.Len(t, told, 5, "%s", &said)
		return told
	}
	first := follow()
	assert.Equal(t, api.Moved{
		Account: "team-9", Amount: 1000, Moved: client.Moved{Seq: 1, BalanceAfter: 1000},
	}, parsed[api.Moved](t, first[0]))
	submitted := parsed[api.Submitted](t, first[1])
	assert.Equal(t, contract.VerdictCharged, submitted.Charge)
	require.NotNil(t, submitted.Balance)
	assert.EqualValues(t, 960, *submitted.Balance)
	job := parsed[client.Job](t, first[2])
	assert.Equal(t, contract.StateSucceeded, job.State)
	assert.EqualValues(t, 40, job.Net)
	timeline := parsed[api.Timeline](t, first[3])
	require.NotEmpty(t, timeline.Moments)
	assert.Equal(t, "charge", timeline.Moments[0].Kind)
	statement := parsed[api.StatementAnswer](t, first[4])
	assert.EqualValues(t, 960, statement.Closing)
	assert.Nil(t, statement.Next)

	again := follow()
	assert.True(t, parsed[api.Moved](t, again[0]).Already)
	assert.Equal(t, contract.VerdictAlready, parsed[api.Submitted](t, again[1]).Charge)
	assert.EqualValues(t, 960, parsed[api.StatementAnswer](t, again[4]).Closing, "nothing happens twice")
}

func parsed[T any](t *testing.T, text []byte) (value T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, &value), "%s", text)
	return value
}
