package client_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

// The figures of docs/benchmarks.md: a whole audit by a Postgres that was just started, of files that the kernel does not have
// in memory, and audits of what is new.
func TestAuditsOfTwoMillionEntriesFromCold(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("RECLAIM_AUDIT_ROUNDS"))
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("takes minutes: set RECLAIM_AUDIT_ROUNDS=14 for 2,100,000 entries (Linux only)")
	}
	postgres, err := localstack.StartPostgres(t.Context(), localstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, postgres.Close()) })
	base := schematest.NewOn(t, postgres.SuperuserURL("postgres"))
	store, err := schema.Open(t.Context(), base.AppURL, schema.Options{StatementTimeout: -1})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	fill := func(prefix string, rounds, accounts int64) {
		require.NoError(t, store.FillLedger(t.Context(), db.FillLedgerParams{
			TenantID: "acme", Prefix: prefix, Rounds: rounds, Accounts: accounts,
		}))
	}
	fill("old-", int64(rounds), 10_000)
	admin, err := pgx.Connect(t.Context(), base.SuperuserURL)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "VACUUM (ANALYZE)")
	require.NoError(t, err)
	require.NoError(t, admin.Close(t.Context()))
	asked := client.New(nil, store, "")

	for run := range 3 {
		postgres.Stop()
		forget(t, postgres.Dir())
		require.NoError(t, postgres.Restart(t.Context()))
		store.Pool.Reset()
		require.NoError(t, store.Pool.Ping(t.Context()))
		began := time.Now()
		report, err := asked.Audit(t.Context(), "")
		took := time.Since(began)
		require.NoError(t, err)
		assert.True(t, report.Sound && report.Checkpoint.Written, "%+v", report.Checkpoint)
		t.Logf("whole, from cold, run %d: %d entries and %d jobs in %.2f s, %.0f entries/s", run+1, report.Entries, report.Jobs,
			took.Seconds(), float64(report.Entries)/took.Seconds())
	}
	for _, accounts := range []int64{0, 667} {
		fill("new-", 1, accounts)
		began := time.Now()
		report, err := asked.AuditSinceCheckpoint(t.Context(), 0)
		require.NoError(t, err)
		assert.True(t, report.Sound && !report.Whole, "%+v", report.Checkpoint)
		assert.Equal(t, 15*accounts, report.Entries)
		t.Logf("since the checkpoint: %d new entries in %.2f s", report.Entries, time.Since(began).Seconds())
	}
}

// forget makes the kernel give up what it holds of the files, once they are on the disk.
func forget(t *testing.T, dir string) {
	t.Helper()
	const dontNeed = 4 // POSIX_FADV_DONTNEED
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		if err := file.Sync(); err != nil {
			return err
		}
		if _, _, failed := syscall.Syscall6(syscall.SYS_FADVISE64, file.Fd(), 0, 0, dontNeed, 0, 0); failed != 0 {
			return failed
		}
		return nil
	}))
}
