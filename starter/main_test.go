package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

func TestMain(m *testing.M) { os.Exit(schematest.Run(m)) }

// terminal runs the program as a person at a terminal does.
type terminal struct {
	t     *testing.T
	env   map[string]string
	stdin string
	base  *schematest.Database
}

// answer is what one call printed and how it ended.
type answer struct {
	status         int
	stdout, stderr string
}

// newTerminal has a database and no Temporal.
func newTerminal(t *testing.T) *terminal {
	t.Helper()
	base := schematest.New(t)
	return &terminal{t: t, base: base, env: map[string]string{
		"DATABASE_URL": base.AppURL, "RECLAIM_TENANT": "acme", "RECLAIM_ACTOR": "cli:test",
		// Nothing listens on port 1, and no file of this machine's user is read.
		"TEMPORAL_ADDRESS": "127.0.0.1:1", "TEMPORAL_CONFIG_FILE": filepath.Join(t.TempDir(), "none.toml"),
	}}
}

func (c *terminal) run(args ...string) answer {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	status := run(ctx, args, strings.NewReader(c.stdin), &stdout, &stderr, func(name string) string { return c.env[name] })
	return answer{status, stdout.String(), stderr.String()}
}

// ok runs a call that must end well and returns what it printed.
func (c *terminal) ok(args ...string) string {
	c.t.Helper()
	got := c.run(args...)
	require.Equal(c.t, statusDone, got.status, "%s%s", got.stdout, got.stderr)
	assert.Empty(c.t, got.stderr)
	return got.stdout
}

// json runs a call with --output json and returns its status and the one JSON value that it printed.
func (c *terminal) json(args ...string) (int, map[string]any) {
	c.t.Helper()
	got := c.run(append(args, "--output", "json")...)
	assert.Empty(c.t, got.stderr)
	var value map[string]any
	require.NoError(c.t, json.Unmarshal([]byte(got.stdout), &value), "%s", got.stdout)
	return got.status, value
}

// refused runs a call that must end with status 1 and the code, in both formats, and returns the JSON.
func (c *terminal) refused(code string, args ...string) map[string]any {
	c.t.Helper()
	status, value := c.json(args...)
	assert.Equal(c.t, statusRefused, status)
	assert.Equal(c.t, code, value["code"], "%v", value)
	assert.NotEmpty(c.t, value["message"])
	assert.Contains(c.t, []any{"same_key", "new_key", "never"}, value["retry"])
	got := c.run(args...)
	assert.Equal(c.t, statusRefused, got.status)
	assert.True(c.t, strings.HasPrefix(got.stderr, code+": "), got.stderr)
	assert.Equal(c.t, 1, strings.Count(got.stderr, "\n"), "one line: %s", got.stderr)
	return value
}

func (c *terminal) sql(statement string) {
	c.t.Helper()
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, c.base.SuperuserURL)
	require.NoError(c.t, err)
	defer func() { _ = connection.Close(ctx) }()
	_, err = connection.Exec(ctx, "SET session_replication_role = replica;"+statement)
	require.NoError(c.t, err)
}

func TestUsageMistakesEndWithStatus2AndSayWhatToDo(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	topup := []string{"account", "topup", "team-7", "--key", "k"}
	adjust := []string{"account", "adjust", "team-7", "--key", "k", "--operator", "ann", "--reason", "why"}
	order := []string{"order", "add", "o-1", "--account", "a", "--channel", "c", "--payment", "p", "--currency", "eur", "--key", "k"}
	request := []string{"refund", "request", "--order", "o-1", "--key", "k", "--reason", "why"}
	const wholeNumber = "must be a whole number of the smallest unit"
	for _, mistake := range []struct {
		args []string
		says string
	}{
		{nil, "starter needs a verb"},
		{[]string{"acount"}, `no verb "acount"`},
		{[]string{"account"}, "account needs a verb"},
		{[]string{"account", "top-up"}, `no verb "top-up"`},
		{[]string{"--no-such-flag"}, "unknown flag: --no-such-flag"},
		{[]string{"account", "show"}, "ACCOUNT is missing"},
		{[]string{"account", "show", "a", "b"}, `"b" is too much`},
		{[]string{"account", "show", "a", "--output", "yaml"}, "must be table or json"},
		{[]string{"account", "show", "a", "--timeout", "soon"}, "--timeout"},
		{[]string{"account", "show", "a", "--timeout", "0s"}, "--timeout must be above 0"},
		{[]string{"account", "topup", "team-7", "--amount", "5"}, `"key" not set`},
		{topup, `"amount" not set`},
		{append(topup, "--amount", "1.5"), wholeNumber},
		{append(topup, "--amount", "1e3"), wholeNumber},
		{append(topup, "--amount", " 5"), wholeNumber},
		{append(topup, "--amount", "5 "), wholeNumber},
		{append(topup, "--amount", ""), wholeNumber},
		{append(topup, "--amount", "1,000"), wholeNumber},
		{append(topup, "--amount", "1_000"), wholeNumber},
		{append(topup, "--amount", "0x10"), wholeNumber},
		{append(topup, "--amount", "٣"), wholeNumber},
		{append(topup, "--amount", "-5"), "no sign"},
		{append(topup, "--amount", "+5"), "no sign"},
		{append(topup, "--amount", "9223372036854775808"), "beyond"},
		{append(adjust, "--amount", "-"), wholeNumber},
		{append(adjust, "--amount", "--5"), wholeNumber},
		{append(adjust, "--amount", "-1.0"), wholeNumber},
		{append(adjust, "--amount", "−5"), wholeNumber},
		{[]string{"account", "adjust", "team-7", "--amount", "5", "--key", "k"}, `"reason" not set`},
		{[]string{"job", "start"}, `"file" not set`},
		{[]string{"job", "start", "job.json"}, "too much"},
		{[]string{"job", "start", "-f", "-", "--wait", "forever"}, "charge, end"},
		{[]string{"job", "status"}, "JOB is missing"},
		{[]string{"job", "outcome", "j", "--state", "succeeded"}, `"source" not set`},
		{[]string{"job", "outcome", "j", "--state", "done", "--source", "s"}, "succeeded, failed"},
		{[]string{"job", "outcome", "j", "--state", "succeeded", "--source", "s", "--output-json", "{"}, "not valid JSON"},
		{[]string{"job", "resolve", "j", "--id", "1", "--operator", "ann", "--reason", "why"}, `"action" not set`},
		{[]string{"job", "resolve", "j", "--action", "undo"}, "retry, deliver, write_off"},
		{[]string{"order"}, "order needs a verb"},
		{[]string{"order", "add"}, "ORDER is missing"},
		{order, `"credits", "paid" not set`},
		{append(order, "--paid", "9.99", "--credits", "1"), wholeNumber},
		{append(order, "--paid", "-9", "--credits", "1"), "no sign"},
		{[]string{"order", "show"}, "ORDER is missing"},
		{[]string{"refund", "pay"}, `no verb "pay"`},
		{request, `"amount" not set`},
		{append(request, "--amount", "1", "o-1"), `"o-1" is too much`},
		{append(request, "--amount", "1e3"), wholeNumber},
		{append(request, "--amount", "1", "--credits", "-1"), "no sign"},
		{[]string{"refund", "status"}, "REFUND (or --key K) is missing"},
		{[]string{"refund", "status", "rf_1", "--key", "k"}, `"rf_1" is too much`},
		{[]string{"refund", "resolve", "rf_1", "--id", "1", "--operator", "ann", "--reason", "why"}, `"action" not set`},
		{[]string{"refund", "resolve", "rf_1", "--action", "undo"}, "settle, release, resend, extend, cancel"},
		{[]string{"issue", "list", "all"}, "too much"},
		{[]string{"issue", "resolve", "i-1", "--id", "1"}, `"reason" not set`},
		{[]string{"audit", "everything"}, "too much"},
		{[]string{"audit", "--all-tenants", "--tenant", "acme"}, "contradict"},
		{[]string{"audit", "--metrics-file", "audit.prom"}, "give --all-tenants too"},
		{[]string{"audit", "--since-checkpoint"}, "give --all-tenants"},
		{[]string{"audit", "--expect-head", "ab"}, "give --chain too"},
	} {
		got := c.run(mistake.args...)
		assert.Equal(t, statusUsage, got.status, "%q", mistake.args)
		assert.Contains(t, got.stderr, mistake.says, "%q", mistake.args)
		assert.Contains(t, got.stderr, "go run ./starter", "%q", mistake.args)
		assert.Empty(t, got.stdout, "%q", mistake.args)
	}
	assert.Contains(t, c.ok("account", "topup", "--help"), "--amount N")
}

func TestWhoAsksMustBeSaid(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	delete(c.env, "RECLAIM_ACTOR")
	order := []string{"order", "add", "o-1", "--account", "a", "--channel", "c", "--payment", "p", "--currency", "eur",
		"--paid", "1", "--credits", "1", "--key", "k"}
	request := []string{"refund", "request", "--order", "o-1", "--amount", "1", "--key", "k", "--reason", "why"}
	for _, args := range [][]string{
		{"account", "topup", "a", "--amount", "1", "--key", "k"}, order, request, {"refund", "status", "--key", "k"},
	} {
		got := c.run(args...)
		assert.Equal(t, statusUsage, got.status, "%q", args)
		assert.Contains(t, got.stderr, "RECLAIM_ACTOR", "%q", args)
	}
	for _, args := range [][]string{
		{"job", "resolve", "j", "--id", "1", "--action", "retry", "--reason", "why"},
		{"refund", "resolve", "rf_1", "--id", "1", "--action", "cancel", "--reason", "why"},
		{"issue", "resolve", "i", "--id", "1", "--reason", "why", "--operator", ""},
	} {
		got := c.run(args...)
		assert.Equal(t, statusUsage, got.status, "%q", args)
		assert.Contains(t, got.stderr, "no operator is given: add --operator NAME", "%q", args)
	}
	delete(c.env, "RECLAIM_TENANT")
	for _, args := range [][]string{
		{"account", "show", "a"}, {"account", "statement", "a"}, {"account", "topup", "a", "--amount", "1", "--key", "k"},
		{"job", "status", "j"}, {"job", "timeline", "j"}, {"job", "cancel", "j"}, {"audit"}, order, request,
		{"order", "show", "o-1"}, {"refund", "status", "rf_1"}, {"refund", "status", "--key", "k"}, {"issue", "list"},
		{"refund", "resolve", "rf_1", "--id", "1", "--action", "cancel", "--operator", "ann", "--reason", "why"},
		{"issue", "resolve", "i", "--id", "1", "--operator", "ann", "--reason", "why"},
	} {
		got := c.run(args...)
		assert.Equal(t, statusUsage, got.status, "%q", args)
		assert.Contains(t, got.stderr, "RECLAIM_TENANT", "%q", args)
	}
	c.ok("account", "topup", "a", "--amount", "1", "--key", "k", "--tenant", "globex", "--actor", "ann")
	c.ok("audit", "--all-tenants")
	assert.Contains(t, c.ok("audit", "--all-tenants", "--since-checkpoint", "--chain"), "CHAIN OF TENANT")
}

func TestEveryMistakeOfTheEnvironmentIsToldAtOnce(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.env["DATABASE_URL"] = "postgres://root:secret@db:port/app"
	c.env["RECLAIM_TASK_QUEUE"] = "/_sys/x"
	c.env["RECLAIM_TENANT"] = "no tenant"
	c.env["TEMPORAL_CONFIG_FILE"] = t.TempDir() // a folder
	got := c.run("account", "show", "a")
	assert.Equal(t, statusUsage, got.status)
	for _, name := range []string{"DATABASE_URL", "RECLAIM_TASK_QUEUE", "RECLAIM_TENANT", "TEMPORAL_"} {
		assert.Contains(t, got.stderr, name)
	}
	assert.NotContains(t, got.stderr, "secret")
	c.env = map[string]string{"TEMPORAL_CONFIG_FILE": filepath.Join(t.TempDir(), "none.toml")}
	assert.Contains(t, c.run("audit").stderr, "DATABASE_URL is missing")
}

func TestAccountVerbs(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.refused("NotFound", "account", "show", "team-7")
	c.refused("NotFound", "account", "statement", "team-7")
	c.refused("NotFound", "account", "adjust", "team-7", "--amount", "1", "--key", "k", "--operator", "ann", "--reason", "why")

	status, topped := c.json("account", "topup", "team-7", "--amount", "100", "--key", "order-1", "--reason", "order 1")
	assert.Equal(t, statusDone, status)
	assert.Equal(t, map[string]any{"account": "team-7", "amount": 100.0, "already": false, "seq": 1.0, "balanceAfter": 100.0}, topped)
	assert.Contains(t, c.ok("account", "topup", "team-7", "--amount", "100", "--key", "order-1"), "already made before")
	c.refused("Conflict", "account", "topup", "team-7", "--amount", "101", "--key", "order-1")
	refused := c.refused("BadInput", "account", "topup", "team-7", "--amount", "0", "--key", "order-2")
	assert.Equal(t, "amount", refused["fields"].([]any)[0].(map[string]any)["field"])
	c.refused("BadInput", "account", "topup", "team-7", "--amount", "1", "--key", "order-2", "--asset", "TOKEN")
	c.refused("BadInput", "account", "topup", "team-7", "--amount", "1", "--key", "")
	c.refused("BadInput", "account", "show", "not an id")

	adjusted := c.ok("account", "adjust", "team-7", "--amount", "-140", "--key", "t-1", "--operator", "ann", "--reason", "charge\nback")
	assert.Equal(t, "Answer         applied\nAccount        team-7\nAmount         -140\nBalance after  -40\nEntry          2\n", adjusted)
	assert.Contains(t, c.ok("account", "show", "team-7"), "Balance  -40 CREDIT (a debt: new jobs are declined until it is paid)\n")
	c.ok("account", "adjust", "team-7", "--amount", "+41", "--key", "t-2", "--operator", "ann", "--reason", "mended")

	_, shown := c.json("account", "show", "team-7")
	assert.Equal(t, 1.0, shown["balance"])
	assert.Equal(t, "CREDIT", shown["asset"])
	assert.Equal(t, 3.0, shown["entries"])

	table := c.ok("account", "statement", "team-7")
	instant := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	assert.Equal(t, ""+
		"SEQ     TIME  TYPE     AMOUNT        BALANCE       SUBJECT  REASON\n"+
		"1       TIME  topup            +100           100  -        order 1\n"+
		"2       TIME  adjust           -140           -40  -        charge back (ann)\n"+
		"3       TIME  adjust            +41             1  -        mended (ann)\n"+
		"Balance: 1 CREDIT, after 3 entries\n",
		strings.Replace(instant.ReplaceAllString(table, "TIME"), "TIME                  TYPE", "TIME  TYPE", 1))

	_, statement := c.json("account", "statement", "team-7")
	entries := statement["entries"].([]any)
	require.Len(t, entries, 3)
	second := entries[1].(map[string]any)
	delete(second, "createdAt")
	assert.Equal(t, map[string]any{
		"seq": 2.0, "type": "adjust", "amount": -140.0, "balanceAfter": -40.0, "reason": "charge\nback (ann)",
	}, second)
	assert.Equal(t, 1.0, statement["account"].(map[string]any)["balance"])
}

func TestALongStatementIsStreamed(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.sql(`INSERT INTO reclaim.accounts (tenant_id, account_id, asset, balance, seq) VALUES ('acme', 'team-7', 'CREDIT', 2500, 2500);
		INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
		SELECT 'acme', 'team-7', n, 'topup', 1, n, 'order ' || n FROM generate_series(1, 2500) AS n`)
	table := c.ok("account", "statement", "team-7")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	require.Len(t, lines, 2502)
	for _, line := range lines[1:2501] {
		require.Equal(t, strings.Index(lines[0], "REASON"), strings.Index(line, "order"), line)
	}
	_, statement := c.json("account", "statement", "team-7")
	assert.Len(t, statement["entries"], 2500)
	c.sql("INSERT INTO reclaim.accounts (tenant_id, account_id, asset) VALUES ('acme', 'empty', 'CREDIT')")
	_, statement = c.json("account", "statement", "empty")
	assert.Equal(t, []any{}, statement["entries"])
	assert.Equal(t, "Balance: 0 CREDIT, after 0 entries\n", c.ok("account", "statement", "empty"))
}

func TestAuditVerb(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.ok("account", "topup", "team-7", "--amount", "100", "--key", "order-1")
	c.ok("account", "topup", "team-8", "--amount", "5", "--key", "order-1", "--tenant", "globex")
	table := c.ok("audit")
	assert.Contains(t, table, "1 account, 1 entry, 0 jobs, 0 orders, 0 refunds, 1 operation against 45 rules")
	assert.Contains(t, table, "every invariant holds")
	status, sound := c.json("audit", "--all-tenants")
	assert.Equal(t, statusDone, status)
	assert.Equal(t, true, sound["sound"])
	assert.Equal(t, 2.0, sound["accounts"])
	assert.Equal(t, []any{}, sound["breaks"])

	c.sql("UPDATE reclaim.accounts SET balance = 7 WHERE account_id = 'team-8'")
	c.ok("audit")
	file := filepath.Join(t.TempDir(), "audit.prom")
	status, broken := c.json("audit", "--all-tenants", "--metrics-file", file)
	told, err := os.ReadFile(file)
	require.NoError(t, err, "it is written also where the audit finds a break")
	assert.Contains(t, string(told), "reclaim_audit_breaks{check=\"account_balance\"} 1\n")
	assert.Equal(t, statusRefused, status)
	assert.Equal(t, "InvariantBroken", broken["code"])
	assert.Equal(t, "never", broken["retry"])
	assert.Contains(t, broken["message"], "account_balance (1 time:")
	assert.Equal(t, map[string]any{
		"check": "account_balance", "tenant": "globex", "account": "team-8",
		"expected": "balance 5, the newest entry's balance_after", "found": "balance 7",
	}, broken["breaks"].([]any)[0])
	got := c.run("audit", "--tenant", "globex")
	assert.Equal(t, statusRefused, got.status)
	assert.Contains(t, got.stdout, "account_sum")
	assert.Contains(t, got.stdout, "Open jobs without a run: none\nOpen refunds without a run: none\n")
}

func TestAuditSaysWhereRunsWereNotChecked(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.ok("account", "topup", "team-7", "--amount", "100", "--key", "order-1")
	c.sql(`INSERT INTO reclaim.jobs (tenant_id, job_id, account_id, cost, fingerprint, state, spec)
		VALUES ('acme', 'free', 'team-7', 0, 'v1:x', 'running', '{}')`)
	assert.Contains(t, c.ok("audit"), "Open jobs and refunds without a run: not checked: ")
	_, report := c.json("audit")
	assert.Equal(t, false, report["runs"].(map[string]any)["checked"])
}

func TestWhatIsAwayIsUnavailableWithinTheTimeout(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.ok("account", "topup", "team-7", "--amount", "100", "--key", "order-1")
	c.stdin = `{"jobId":"j","account":"team-7","cost":1,"promise":"1s","work":{"activity":"A","taskQueue":"q","timeout":"1m"}}`
	for _, args := range [][]string{
		{"job", "start", "-f", "-", "--timeout", "1s"}, {"job", "status", "j", "--timeout", "1s"},
		{"job", "cancel", "j", "--timeout", "1s"},
		{"job", "outcome", "j", "--state", "failed", "--source", "s", "--timeout", "1s"},
	} {
		assert.Equal(t, "same_key", c.refused("Unavailable", args...)["retry"], "%q", args)
	}
	c.env["DATABASE_URL"] = "postgres://nobody@127.0.0.1:1/none"
	for _, args := range [][]string{
		{"account", "show", "a"}, {"account", "statement", "a"}, {"audit"},
		{"account", "topup", "a", "--amount", "1", "--key", "k"}, {"job", "timeline", "j"}, {"job", "start", "-f", "-", "--wait", "end"},
		{"order", "show", "o-1"}, {"refund", "status", "rf_1"}, {"issue", "list"},
		{"refund", "request", "--order", "o-1", "--amount", "1", "--key", "k", "--reason", "why"},
	} {
		assert.Equal(t, "same_key", c.refused("Unavailable", args...)["retry"], "%q", args)
	}
}

func TestADatabaseThatWasNotMigratedIsSaidToBe(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.stdin = `{"jobId":"j","account":"a","cost":1,"promise":"1s","work":{"activity":"A","taskQueue":"q","timeout":"1m"}}`
	verbs := [][]string{
		{"audit"}, {"account", "show", "a"}, {"account", "statement", "a"}, {"account", "topup", "a", "--amount", "1", "--key", "k"},
		{"job", "status", "j"}, {"job", "start", "-f", "-"}, {"order", "show", "o-1"}, {"refund", "status", "rf_1"}, {"issue", "list"},
	}
	c.sql("ALTER TABLE reclaim.accounts DROP COLUMN balance; DELETE FROM reclaim.schema_migrations WHERE version_id > 1")
	message := c.refused("Unavailable", verbs[1]...)["message"]
	assert.Regexp(t, "^the database is at schema version 1 and this program needs [0-9]+: run `worker migrate` first$", message)
	c.sql("DROP SCHEMA reclaim CASCADE")
	for _, args := range verbs {
		message := c.refused("Unavailable", args...)["message"]
		assert.Equal(t, "the database has no schema of Reclaim's: run `worker migrate` first", message, "%q", args)
	}
}

func TestANamespaceThatDoesNotExistIsNamed(t *testing.T) {
	t.Parallel()
	temporal, err := localstack.StartTemporal(t.Context(), localstack.TemporalOptions{Headless: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, temporal.Close()) })
	c := newTerminal(t)
	c.env["TEMPORAL_ADDRESS"], c.env["TEMPORAL_NAMESPACE"] = temporal.Address(), "nowhere"
	c.stdin = `{"jobId":"j","account":"a","cost":1,"promise":"1s","work":{"activity":"A","taskQueue":"q","timeout":"1m"}}`
	for _, args := range [][]string{
		{"job", "start", "-f", "-"}, {"job", "outcome", "j", "--state", "failed", "--source", "s"}, {"bench", "--jobs", "10"},
	} {
		message := c.refused("Unavailable", args...)["message"]
		assert.Contains(t, message, `the Temporal server has no namespace "nowhere": set TEMPORAL_NAMESPACE`, "%q", args)
	}
}

func TestTheJobsFileAndTheFlagsAgree(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	rest := `"jobId":"j","account":"team-7","cost":1,"promise":"1s","work":{"activity":"A","taskQueue":"q","timeout":"1m","input":{"n":1.50}}}`
	for _, file := range []struct{ text, filled string }{
		{"{" + rest, `{"tenant":"acme","actor":"cli:test",` + rest},
		{`{"tenant":"acme",` + rest, `{"actor":"cli:test","tenant":"acme",` + rest},
		{`{"tenant":"acme","actor":"cli:test",` + rest, `{"tenant":"acme","actor":"cli:test",` + rest},
		{`{}`, `{"tenant":"acme","actor":"cli:test"}`},
		{`[]`, `[]`}, {`{`, `{`}, {``, ``}, {`null`, `null`},
	} {
		a := &app{tenant: "acme", actor: "cli:test"}
		filled, err := a.fillIn([]byte(file.text))
		require.NoError(t, err)
		assert.Equal(t, file.filled, string(filled))
	}
	for _, member := range []string{"tenant", "actor"} {
		c.stdin = `{"` + member + `":"globex",` + rest
		refused := c.refused("BadInput", "job", "start", "-f", "-")
		assert.Contains(t, refused["message"], `the job's `+member+` is "globex"`)
	}
	c.stdin = `{"cost":1.5}`
	assert.Contains(t, c.refused("BadInput", "job", "start", "-f", "-")["message"], "whole number")
	c.stdin = `{"jobId":"j","jobId":"k"}`
	assert.Contains(t, c.refused("BadInput", "job", "start", "-f", "-")["message"], "twice")
	c.stdin = strings.Repeat(" ", 70) + `{"summary":"` + strings.Repeat("x", 70_000) + `"}`
	c.refused("BadInput", "job", "start", "-f", "-")
	c.refused("BadInput", "job", "start", "-f", filepath.Join(t.TempDir(), "none.json"))
}

func TestCommandsAreShownAsTheProgramWasCalled(t *testing.T) {
	for path, shown := range map[string]string{
		"/tmp/go-build123/b001/exe/starter": "go run ./starter", "/tmp/x/starter.test": "go run ./starter",
		"bin/starter": "bin/starter", "starter": "starter",
	} {
		assert.Equal(t, shown, calledAs(path))
	}
}
