package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/starter/client"
)

// insertEntries gives an account n entries of one credit each, an hour apart from 2026-10-24T00:30:00Z on.
func (c *terminal) insertEntries(account string, n int) {
	c.t.Helper()
	c.sql(fmt.Sprintf(`INSERT INTO reclaim.accounts (tenant_id, account_id, asset, balance, seq) VALUES ('acme', '%[1]s', 'CREDIT', %[2]d, %[2]d);
		INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason, created_at)
		SELECT 'acme', '%[1]s', n, 'topup', 1, n, 'order ' || n, '2026-10-23T23:30:00Z'::timestamptz + n * interval '1 hour'
		FROM generate_series(1, %[2]d) AS n`, account, n))
}

func TestAStatementOfAPeriod(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.insertEntries("team-7", 50)
	day := []string{"account", "statement", "team-7", "--from", "2026-10-25", "--to", "2026-10-26", "--time-zone", "Europe/Berlin"}
	table := strings.Split(c.ok(day...), "\n")
	require.Len(t, table, 29)
	assert.Equal(t, "Opening balance: 22 CREDIT on 2026-10-25T00:00:00+02:00, after 22 entries", table[0])
	assert.Regexp(t, `^SEQ +TIME +TYPE +AMOUNT +BALANCE +SUBJECT +REASON$`, table[1])
	assert.Regexp(t, `^23 +2026-10-25T00:30:00\+02:00 +topup +\+1 +23 +- +order 23$`, table[2])
	assert.Regexp(t, `^47 +2026-10-25T23:30:00\+01:00 `, table[26])
	assert.Equal(t, "Closing balance: 47 CREDIT on 2026-10-26T00:00:00+01:00, after 47 entries", table[27])

	status, statement := c.json(day...)
	assert.Equal(t, statusDone, status)
	assert.Equal(t, map[string]any{
		"from": "2026-10-25T00:00:00+02:00", "to": "2026-10-26T00:00:00+01:00", "timeZone": "Europe/Berlin",
	}, statement["period"])
	assert.Equal(t, 22.0, statement["opening"])
	assert.Equal(t, 47.0, statement["closing"])
	assert.Equal(t, 47.0, statement["account"].(map[string]any)["balance"])
	assert.Len(t, statement["entries"], 25)
	assert.Contains(t, statement, "next")
	assert.Nil(t, statement["next"])

	lines := strings.Split(c.ok(append(day, "--output", "csv")...), "\r\n")
	require.Len(t, lines, 29)
	assert.Equal(t, "seq,time,type,amount,balance,job,order,refund,reason", lines[0])
	assert.Equal(t, `22,2026-10-25T00:00:00+02:00,opening,,22,,,,"account team-7, CREDIT, Europe/Berlin"`, lines[1])
	assert.Equal(t, "23,2026-10-25T00:30:00+02:00,topup,1,23,,,,order 23", lines[2])
	assert.Equal(t, "47,2026-10-26T00:00:00+01:00,closing,,47,,,,", lines[27])
	// The flag may stand before the verb.
	assert.Equal(t, c.ok(append(day, "--output", "csv")...), c.ok(append([]string{"--output", "csv"}, day...)...))

	part := c.ok("account", "statement", "team-7", "--after", "10", "--limit", "2")
	assert.Regexp(t, `(?s)^SEQ.*\n11 .*\n12 .*\nThere are more entries: go on with --after 12\n$`, part)
	_, statement = c.json("account", "statement", "team-7", "--after", "10", "--limit", "2")
	assert.Equal(t, 12.0, statement["next"])
	assert.Len(t, statement["entries"], 2)
	assert.Equal(t, 0.0, statement["opening"])
	assert.Equal(t, 50.0, statement["closing"])
	assert.Regexp(t, `(?s)^SEQ.*\n50 .*\nBalance: 50 CREDIT, after 50 entries\n$`, c.ok("account", "statement", "team-7", "--after", "49", "--limit", "2"))
}

func TestAStatementThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.insertEntries("team-7", 1)
	for field, flags := range map[string][]string{
		"from":     {"--from", "last month"},
		"to":       {"--from", "2026-11-01", "--to", "2026-11-01"},
		"timeZone": {"--time-zone", "Local"},
		"after":    {"--after", "-1"},
		"limit":    {"--limit", "-1"},
	} {
		args := append([]string{"account", "statement", "team-7"}, flags...)
		refused := c.refused("BadInput", args...)
		assert.Equal(t, field, refused["fields"].([]any)[0].(map[string]any)["field"])
		got := c.run(append(args, "--output", "csv")...)
		assert.Equal(t, statusRefused, got.status)
		assert.Empty(t, got.stdout)
		assert.True(t, strings.HasPrefix(got.stderr, "BadInput: "+field), got.stderr)
	}
	for _, args := range [][]string{
		{"account", "statement", "team-7", "--output", "xlsx"}, {"account", "statement", "team-7", "--limit", "many"},
		{"account", "show", "team-7", "--output", "csv"}, {"audit", "--output", "csv"},
	} {
		got := c.run(args...)
		assert.Equal(t, statusUsage, got.status, "%q", args)
		assert.Empty(t, got.stdout)
	}
}

func TestAStatementThatBreaksOffSaysSo(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.insertEntries("team-7", 2000)
	c.sql("DELETE FROM reclaim.ledger_entries WHERE seq = 1900")
	status, statement := c.json("account", "statement", "team-7")
	assert.Equal(t, statusRefused, status)
	assert.Len(t, statement["entries"], 1899)
	assert.Equal(t, "Unavailable", statement["error"].(map[string]any)["code"])
	assert.Equal(t, "never", statement["error"].(map[string]any)["retry"])
	assert.NotContains(t, statement, "closing")
	assert.NotContains(t, statement, "next")
	for format, last := range map[string]string{"csv": "1899,", "table": "1899 "} {
		got := c.run("account", "statement", "team-7", "--output", format)
		assert.Equal(t, statusRefused, got.status)
		assert.Contains(t, got.stderr, "entry 1900 is missing")
		lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
		assert.True(t, strings.HasPrefix(lines[len(lines)-1], last), lines[len(lines)-1])
	}
	c.sql("DELETE FROM reclaim.ledger_entries WHERE seq = 3")
	assert.Contains(t, c.refused("Unavailable", "account", "statement", "team-7", "--limit", "5")["message"], "entry 3 is missing")
}

// The figures of docs/benchmarks.md: the program itself, its memory as Linux counts it.
func TestAMillionEntriesStreamInBoundedMemory(t *testing.T) {
	if os.Getenv("RECLAIM_MILLION") == "" || runtime.GOOS != "linux" {
		t.Skip("takes a minute: set RECLAIM_MILLION=1 (Linux only)")
	}
	const entries = 1_000_000
	c := newTerminal(t)
	c.insertEntries("team-7", entries)
	c.sql("ANALYZE reclaim.ledger_entries")
	program := filepath.Join(t.TempDir(), "starter")
	built, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(built))
	environment := os.Environ()
	for name, value := range c.env {
		environment = append(environment, name+"="+value)
	}
	for _, format := range []string{"table", "json", "csv"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, program, "account", "statement", "team-7", "--output", format)
		command.Env = environment
		stdout, err := command.StdoutPipe()
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, command.Start())
		var read, lines, peak int64
		var last []byte
		reader := bufio.NewReaderSize(stdout, 1<<20)
		for {
			line, err := reader.ReadSlice('\n')
			if err != nil {
				break
			}
			read, lines = read+int64(len(line)), lines+1
			if lines%10_000 == 0 || lines > entries {
				peak = max(peak, peakMemory(t, command.Process.Pid))
			}
			last = append(last[:0], line...)
		}
		require.NoError(t, command.Wait())
		took := time.Since(began)
		t.Logf("%s: %d MB in %.1f s, peak memory %d MB", format, read>>20, took.Seconds(), peak>>20)
		assert.GreaterOrEqual(t, lines, int64(entries+1))
		assert.Contains(t, string(last), strconv.Itoa(entries))
		assert.Positive(t, peak)
		assert.Less(t, peak, int64(64<<20), format)
	}

	store, err := schema.Open(t.Context(), c.base.AppURL, schema.Options{})
	require.NoError(t, err)
	defer store.Close()
	asked := client.New(nil, store, "")
	var times []time.Duration
	for day := range 500 {
		period := client.Period{From: time.Date(2026, 11, 1+day*80, 0, 0, 0, 0, time.UTC)}
		period.To = period.From.AddDate(0, 1, 0)
		began := time.Now()
		statement, err := asked.Statement(t.Context(), client.StatementQuery{Tenant: "acme", Account: "team-7", Period: period})
		times = append(times, time.Since(began))
		require.NoError(t, err)
		assert.Equal(t, int64(period.To.Sub(period.From).Hours()), statement.ClosingSeq-statement.OpeningSeq)
	}
	slices.Sort(times)
	t.Logf("to find a month: p50 %.1f ms, p95 %.1f ms, most %.1f ms", millis(times[250]), millis(times[475]), millis(times[499]))
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMemory is the most memory that the process has had, in bytes; 0 where it has just ended.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	found := highWater.FindSubmatch(status)
	if found == nil {
		return 0
	}
	kilobytes, err := strconv.ParseInt(string(found[1]), 10, 64)
	require.NoError(t, err)
	return kilobytes << 10
}
