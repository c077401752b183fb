package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/schematest"
)

// TestMain lets this test binary stand for the program where the stack starts it with "run" or "render".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
		return
	}
	os.Exit(schematest.Run(m))
}

func TestMistakesOfTheCommandLineAndTheEnvironmentAreWrongUsage(t *testing.T) {
	t.Setenv("DATABASE_URL", "mysql://me:secret@h/d")
	t.Setenv("RECLAIM_MIGRATE_URL", "")
	t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(t.TempDir(), "none.toml"))
	t.Setenv("TEMPORAL_PROFILE", "unknown")
	for args, says := range map[string]string{
		"walk": "unknown command", "run fast": "unknown command", "run --fast": "unknown flag", "dev fast": "comes after --",
		"run": "DATABASE_URL must begin with postgres://", "migrate": "DATABASE_URL must", "render": "TEMPORAL_",
		"views --account team-7": "--tenant goes with", "views --tenant acme --order a/b": "--order",
	} {
		root := command()
		root.SetArgs(strings.Fields(args))
		root.SetOut(io.Discard)
		err := execute(t.Context(), root)
		require.ErrorIs(t, err, errUsage, args)
		require.ErrorContains(t, err, says, args)
		require.NotContains(t, err.Error(), "secret", args)
	}
}
