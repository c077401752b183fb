package model_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// needsSpin skips the test where the model checker is missing.
func needsSpin(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing: the models are not checked (Debian's packages spin and gcc)", tool)
		}
	}
}

// search lets spin search a copy of the models in which a line was replaced, "" for none.
func search(t *testing.T, file, line, by string, searches ...string) (told string, err error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(".")))
	if line != "" {
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		guard, branch, found := strings.Cut(line, ": ")
		require.True(t, found)
		before, after, found := strings.Cut(string(text), "\ninline "+guard+"_guard() {")
		require.True(t, found, guard)
		body, rest, found := strings.Cut(after, "\n}\n")
		require.True(t, found, guard)
		require.Equal(t, 1, strings.Count(body, branch), "%s has the line %q", guard, branch)
		broken := before + "\ninline " + guard + "_guard() {" + strings.Replace(body, branch, by, 1) + "\n}\n" + rest
		require.NoError(t, os.WriteFile(path, []byte(broken), 0o644))
	}
	command := exec.CommandContext(t.Context(), "./check.sh", append([]string{dir}, searches...)...)
	if line != "" {
		command.Env = append(os.Environ(), "OPTIMIZE=-O0")
	}
	output, err := command.CombinedOutput()
	return strings.TrimSpace(string(output)), err
}

// The figures of this test are shown at the end of `make test`.
func TestTheModelsHold(t *testing.T) {
	t.Parallel()
	needsSpin(t)
	told, err := search(t, "", "", "")
	require.NoError(t, err, told)
	lines := strings.Split(told, "\n")
	assert.Len(t, lines, 3)
	for _, line := range lines {
		assert.Regexp(t, `: states [0-9]{5,}, transitions [0-9]{6,}, depth [0-9]+, errors: 0$`, line)
		t.Log(line)
	}
}

// A model that nothing can break proves nothing: each of these guards is one that a system like this has had.
func TestTheModelsFailWithABrokenGuard(t *testing.T) {
	t.Parallel()
	needsSpin(t)
	for _, broken := range []struct{ what, search, file, line, by string }{
		{
			"a late delivery that is not reclaimed", "jobs", "job_guards.pml",
			"settle: row == refunded_left  -> becomes(applied, succeeded_late, reclaim_entry)",
			"row == refunded_left -> becomes(applied, succeeded_late, no_entry)",
		},
		{
			"a second refund", "jobs", "job_guards.pml",
			"refund: row == refunded_used  -> becomes(already, refunded_used, no_entry)",
			"row == refunded_used -> becomes(applied, refunded_used, refund_entry)",
		},
		{
			"a cancel that undoes a delivery", "jobs", "job_guards.pml",
			"close_canceled: row == succeeded_late -> becomes(refused, succeeded_late, no_entry)",
			"row == succeeded_late -> becomes(applied, canceled, no_entry)",
		},
		{
			"a charge that does not know its own write", "jobs", "job_guards.pml",
			"charge: row == running_left   -> becomes(already, running_left, no_entry)",
			"row == running_left -> becomes(refused, running_left, no_entry)",
		},
		{
			"a job that is never parked", "ends", "job_guards.pml",
			"park: row == refunded_used  -> becomes(applied, dead_letter, no_entry)",
			"row == refunded_used -> becomes(refused, refunded_used, no_entry)",
		},
		{
			"a number that is sent when the channel honours it no longer", "refunds", "refund_guards.pml",
			"send_expired: row == unknown        -> becomes(refused, unknown, no_entry, order_same, no_entry)",
			"row == unknown -> becomes(applied, unknown_again, no_entry, order_same, no_entry)",
		},
		{
			"a refusal of a number that was sent twice, taken for its end", "refunds", "refund_guards.pml",
			"told_refused: row == unknown_again  -> becomes(already, unknown_again, no_entry, order_same, no_entry)",
			"row == unknown_again -> becomes(applied, failed_unnamed, return_entry, frees, no_entry)",
		},
		{
			"a refund that is accepted beyond what was paid", "refunds", "refund_guards.pml",
			"accept_full: row == none           -> becomes(refused, none, no_entry, order_same, no_entry)",
			"row == none -> becomes(applied, accepted, payout_entry, reserves, no_entry)",
		},
		{
			"a refund taken back whose credits stay away", "refunds", "refund_guards.pml",
			"told_failed: row == succeeded      -> becomes(applied, reversed, return_entry, regains, no_entry)",
			"row == succeeded -> becomes(applied, reversed, no_entry, regains, no_entry)",
		},
	} {
		t.Run(broken.what, func(t *testing.T) {
			t.Parallel()
			told, err := search(t, broken.file, broken.line, broken.by, broken.search)
			require.Error(t, err, told)
			assert.Regexp(t, `depth [0-9]+, errors: 1\npan:1: (assertion violated|non-progress cycle)`, told)
		})
	}
}
