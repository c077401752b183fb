package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// GuardOptions say how to drive the guard statements.
type GuardOptions struct {
	// Jobs is how many statements of each kind are run, Concurrency how many at once.
	Jobs        int
	Concurrency int
	// DatabaseURL is where pgbench connects, if the machine has one.
	DatabaseURL string
	Progress    io.Writer
}

// GuardLine is what one statement did under one load.
type GuardLine struct {
	Statement string `json:"statement"`
	// Load says how many accounts the statements were spread over.
	Load             string  `json:"load"`
	GoPerSecond      float64 `json:"goPerSecond"`
	PgbenchPerSecond float64 `json:"pgbenchPerSecond,omitempty"`
	Ratio            float64 `json:"ratio,omitempty"`
	// Millis are the times of the statements from Go.
	Millis Quantiles `json:"ms"`
}

// Guards drives the charge and settle statements alone, from Go and, where the machine has pgbench, from pgbench with
// the same statement, the same clients and prepared statements, over many accounts and over one hot account.
func Guards(ctx context.Context, store *schema.Store, c *client.Client, o GuardOptions) ([]GuardLine, error) {
	var lines []GuardLine
	for _, spread := range []int{accounts, 1} {
		session := strings.ToLower(rand.Text()[:10])
		if err := fund(ctx, c, session); err != nil {
			return nil, err
		}
		load := fmt.Sprintf("%d accounts", spread)
		if spread == 1 {
			load = "one hot account"
		}
		b := &run{Options: Options{Concurrency: o.Concurrency}, System: System{Store: store}}
		statements := []struct {
			name string
			run  func(context.Context, string, int) (string, error)
		}{
			{"charge", func(ctx context.Context, id string, number int) (string, error) {
				row, err := store.ChargeJob(ctx, db.ChargeJobParams{
					TenantID: Tenant, JobID: id, AccountID: account(number % spread), Cost: 1, Fingerprint: "bench",
					Spec: "{}", Reason: "bench", NotAfter: store.NotAfter(),
				})
				return row.Answer, err
			}},
			{"settle", func(ctx context.Context, id string, _ int) (string, error) {
				row, err := store.SettleJob(ctx, db.SettleJobParams{
					TenantID: Tenant, JobID: id, Attempt: 1, Reason: "bench", NotAfter: store.NotAfter(),
				})
				return row.Answer, err
			}},
		}
		for _, statement := range statements {
			b.delivered = nil
			var spent, pgbenchSpent time.Duration
			// Go and pgbench take turns: what a statement costs depends on what ran before it.
			const blocks = 4
			size := o.Jobs / blocks
			for block := range blocks {
				goTime, err := b.each(ctx, size, func(ctx context.Context, number int) error {
					number += block * size
					began := time.Now()
					answer, err := statement.run(ctx, fmt.Sprintf("%s-%d", session, number), number)
					if err != nil || answer != "applied" {
						return fmt.Errorf("%s %d answered %q: %w", statement.name, number, answer, schema.Classify(statement.name, err))
					}
					b.mu.Lock()
					defer b.mu.Unlock()
					b.delivered = append(b.delivered, time.Since(began))
					return nil
				})
				if err != nil {
					return nil, err
				}
				rate, err := pgbench(ctx, o, statement.name, session, spread, block, size)
				if err != nil {
					return nil, err
				}
				spent += goTime
				if rate > 0 {
					pgbenchSpent += time.Duration(float64(size) / rate * float64(time.Second))
				}
			}
			line := GuardLine{
				Statement: statement.name, Load: load, GoPerSecond: float64(blocks*size) / spent.Seconds(),
				Millis: quantiles(b.delivered),
			}
			if pgbenchSpent > 0 {
				line.PgbenchPerSecond = float64(blocks*size) / pgbenchSpent.Seconds()
				line.Ratio = line.GoPerSecond / line.PgbenchPerSecond
			}
			lines = append(lines, line)
			if o.Progress != nil {
				fmt.Fprintf(o.Progress, "%s over %s is measured\n", statement.name, load)
			}
		}
	}
	return lines, nil
}

var pgbenchRate = regexp.MustCompile(`tps = ([0-9.]+)`)

// pgbench runs one block of the statement under pgbench and returns its transactions per second, 0 where the machine has none. Settle
// works on the jobs that pgbench itself charged before.
func pgbench(ctx context.Context, o GuardOptions, statement, session string, spread, block, size int) (float64, error) {
	binary, err := findPgbench()
	if err != nil || o.DatabaseURL == "" {
		return 0, nil //nolint:nilerr // without pgbench there is nothing to compare with
	}
	text, err := schema.QueryText(statement)
	if err != nil {
		return 0, err
	}
	folder, err := os.MkdirTemp("", "reclaim-bench-*")
	if err != nil {
		return 0, fmt.Errorf("make a folder for pgbench's script: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	perClient := max(size/o.Concurrency, 1)
	prefix := session + "-pgbench-"
	script := filepath.Join(folder, "script.sql")
	values := map[string]string{
		"tenant_id": Tenant, "cost": "1", "fingerprint": "bench", "spec": "{}", "reason": "bench", "attempt": "1",
		"not_after": "infinity",
	}
	text = strings.ReplaceAll(text, "sqlc.narg(output)", "NULL")
	text = strings.ReplaceAll(text, "@job_id", "'"+prefix+"' || :number")
	text = strings.ReplaceAll(text, "@account_id", "'account-' || :account")
	for name, value := range values {
		text = strings.ReplaceAll(text, "@"+name, "'"+value+"'")
	}
	text = fmt.Sprintf("\\set i :i + 1\n\\set number :client_id * 1000000 + :i\n\\set account :i %% %d\n%s", spread, text)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return 0, fmt.Errorf("write pgbench's script: %w", err)
	}
	command := exec.CommandContext(ctx, binary, "-n", "-M", "prepared", "-f", script, "-D", fmt.Sprintf("i=%d", block*perClient),
		"-c", strconv.Itoa(o.Concurrency), "-j", "2", "-t", strconv.Itoa(perClient), o.DatabaseURL)
	output, err := command.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("run pgbench: %w: %s", err, contract.Clip(string(output), 500))
	}
	found := pgbenchRate.FindSubmatch(output)
	if found == nil {
		return 0, fmt.Errorf("pgbench reported no rate: %s", contract.Clip(string(output), 500))
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// findPgbench looks on PATH and where Debian keeps it.
func findPgbench() (string, error) {
	if path, err := exec.LookPath("pgbench"); err == nil {
		return path, nil
	}
	known, err := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if err != nil || len(known) == 0 {
		return "", exec.ErrNotFound
	}
	return known[len(known)-1], nil
}
