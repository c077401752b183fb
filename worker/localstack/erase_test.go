package localstack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEraseDeletesTheServersDataAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"postgres", "temporal", "mine"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "data"), 0o700))
	}
	lock, err := tryLock(filepath.Join(dir, "temporal", "lock"))
	require.NoError(t, err)
	require.ErrorContains(t, Erase(dir), "in use by another copy")
	assert.DirExists(t, filepath.Join(dir, "postgres", "data"), "one that runs protects the others")

	require.NoError(t, lock.Close())
	require.NoError(t, Erase(dir))
	assert.NoDirExists(t, filepath.Join(dir, "postgres"))
	assert.NoDirExists(t, filepath.Join(dir, "temporal"))
	assert.DirExists(t, filepath.Join(dir, "mine", "data"))
	require.NoError(t, Erase(filepath.Join(dir, "never-used")))
}
