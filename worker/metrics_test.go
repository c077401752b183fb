package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
	starter "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/config"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

var (
	rulesFile     = filepath.Join("deploy", "prometheus", "rules.yml")
	dashboardFile = filepath.Join("deploy", "grafana", "dashboards", "reclaim.json")
	metricsDocs   = filepath.Join("..", "docs", "metrics.md")
	runbook       = filepath.Join("..", "docs", "runbook.md")

	metricNames = regexp.MustCompile(`\b(?:reclaim|temporal|go|process)_[a-z_]+[a-z]\b`)
	suffixes    = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// alert is a rule of the rules' file.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var file struct {
		Groups []struct{ Rules []alert }
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

func TestEveryAlertSaysWhatToDo(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(runbook)
	require.NoError(t, err)
	for _, a := range alerts(t) {
		assert.Contains(t, []string{"page", "ticket"}, a.Labels["severity"], a.Alert)
		assert.NotEmpty(t, a.Annotations["summary"], a.Alert)
		assert.NotEmpty(t, a.Annotations["description"], a.Alert)
		page, anchor, found := strings.Cut(a.Annotations["runbook_url"], "#")
		require.True(t, found, a.Alert)
		assert.Equal(t, "https://github.com/reclaimhq/reclaim/blob/main/docs/runbook.md", page)
		assert.Equal(t, strings.ToLower(a.Alert), anchor)
		assert.Regexp(t, `(?m)^### `+a.Alert+`$`, string(text), "the runbook has a section of that name")
	}
}

func TestThePromtoolTestsOfTheRulesHold(t *testing.T) {
	t.Parallel()
	promtool, ok := localstack.PrometheusProgram("promtool", "..")
	if !ok {
		t.Skip("there is no promtool: `make prepare` unpacks it where Debian's packages are")
	}
	for _, arguments := range [][]string{
		{"check", "config", "prometheus.yml"}, {"check", "rules", "--lint=all", "--lint-fatal", "rules.yml"},
		{"test", "rules", "rules_test.yml"},
	} {
		command := exec.CommandContext(t.Context(), promtool, arguments...)
		command.Dir = filepath.Dir(rulesFile)
		output, err := command.CombinedOutput()
		assert.NoError(t, err, "%v:\n%s", arguments, output)
	}
	tests, err := os.ReadFile(filepath.Join(filepath.Dir(rulesFile), "rules_test.yml"))
	require.NoError(t, err)
	for _, a := range alerts(t) {
		assert.Regexp(t, `(?m)alertname: `+a.Alert+`\n +exp_alerts:[^\[]*\n +- exp_labels`, string(tests), "%s is seen to fire", a.Alert)
		assert.Contains(t, string(tests), "alertname: "+a.Alert+", exp_alerts: []}", "%s is seen to be silent", a.Alert)
	}
}

// dashboard is what the tests look at of the dashboard.
type dashboard struct {
	Panels []struct {
		Type        string
		Title       string
		Description string
		GridPos     struct{ X, Y, W, H int }
		Datasource  struct{ UID string }
		Targets     []struct{ Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

func TestTheDashboardsPanelsAskAndDoNotOverlap(t *testing.T) {
	t.Parallel()
	taken := map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				assert.Empty(t, taken[place], "%s lies on another panel", p.Title)
				taken[place] = p.Title
			}
		}
		if p.Type == "row" {
			assert.Regexp(t, `\?$`, p.Title, "a row answers a question")
			continue
		}
		assert.Equal(t, "prometheus", p.Datasource.UID, p.Title)
		assert.NotEmpty(t, p.Targets, p.Title)
	}
	promtool, ok := localstack.PrometheusProgram("promtool", "..")
	if !ok {
		t.Skip("there is no promtool: `make prepare` unpacks it where Debian's packages are")
	}
	// As recording rules, the queries are parsed by Prometheus itself.
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for n, p := range readDashboard(t).Panels {
		for i, target := range p.Targets {
			fmt.Fprintf(&rules, "  - record: panel_%d_%d\n    expr: %q\n", n, i, strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	require.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	output, err := exec.CommandContext(t.Context(), promtool, "check", "rules", "--lint=none", file).CombinedOutput()
	assert.NoError(t, err, "%s", output)
}

// documented are the metrics that docs/metrics.md has, but for those of the HTTP door.
func documented(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(metricsDocs)
	require.NoError(t, err)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		if !strings.HasPrefix(row[1], "reclaim_http_") {
			names = append(names, row[1])
		}
	}
	require.NotEmpty(t, names)
	return names
}

// families lists the metrics of a page as Prometheus reads it.
func families(page string) (names []string) {
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(page, -1) {
		names = append(names, line[1])
	}
	return names
}

// A worker's page, the documentation, the rules and the dashboard have the same metrics.
func TestAWorkersMetricsAreDocumentedAndThoseThatAreAskedForExist(t *testing.T) {
	t.Parallel()
	attributes := map[string]string{}
	for _, name := range contract.SearchAttributes() {
		attributes[name] = "Keyword"
	}
	temporal := startTemporal(t, attributes)
	database := schematest.New(t)
	c := settings(database.AppURL, temporal.Address())
	port, err := localstack.FreePort()
	require.NoError(t, err)
	c.Listen, c.AuditEvery = net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Second
	file := filepath.Join(t.TempDir(), "channels.toml")
	require.NoError(t, os.WriteFile(file, []byte("[[channel]]\nname = \"sim\"\nkind = \"simulator\"\napi_key_env = \"KEY\"\n"+
		"webhook_secret_env = \"SECRET\"\nbase_url = \"http://127.0.0.1:1\"\n"), 0o600))
	loaded, err := config.Load(func(name string) string {
		return map[string]string{"DATABASE_URL": database.AppURL, "RECLAIM_CHANNELS": file, "KEY": "sk_test_1", "SECRET": "whsec_1"}[name]
	})
	require.NoError(t, err)
	c.Channels = loaded.Channels
	r := startRun(t, c)
	r.waitFor(t, "polling")

	store, err := schema.Open(t.Context(), database.AppURL, schema.Options{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	connection, err := client.Dial(client.Options{HostPort: temporal.Address(), Logger: config.SDKLogger(zap.NewNop())})
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	asker := starter.New(connection, store, c.TaskQueue)
	_, err = asker.TopUp(t.Context(), starter.Movement{Tenant: "acme", Account: "team-7", Actor: "test", Key: "k", Amount: 100})
	require.NoError(t, err)
	// Work on Reclaim's own queue under a name that it does not have: its type must not become a label.
	job := contract.Job{
		Tenant: "acme", JobID: "j1", Account: "team-7", Cost: 40, Actor: "test", Promise: contract.Duration(time.Minute),
		Work: contract.Work{Activity: "MadeUp", TaskQueue: c.TaskQueue, Timeout: contract.Duration(time.Minute)},
	}
	job.Retry.MaxAttempts = 1
	verdict, err := asker.StartJob(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, contract.VerdictCharged, verdict.Verdict)
	_, err = store.Pool.Exec(t.Context(), `INSERT INTO reclaim.issues (tenant_id, issue_id, kind, subject_kind, subject_id, evidence)
		VALUES ('acme', 'i1', 'unknown_refund', 'channel', 'sim', '')`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var state string
		return store.Pool.QueryRow(t.Context(), "SELECT state FROM reclaim.jobs").Scan(&state) == nil && state == "dead_letter"
	}, time.Minute, 20*time.Millisecond, "the job is a dead letter")
	job.JobID, job.Cost = "j2", 1000
	verdict, err = asker.StartJob(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, contract.VerdictDeclined, verdict.Verdict)

	var page string
	require.Eventually(t, func() bool {
		page = get(t, "http://"+c.Listen+"/metrics")
		return strings.Contains(page, "reclaim_audit_breaks")
	}, time.Minute, 100*time.Millisecond, "an audit is made")
	for _, line := range []string{
		`reclaim_jobs{state="dead_letter"} 1`, `reclaim_jobs{state="running"} 0`,
		`reclaim_attention{kind="dead_letter"} 1`, `reclaim_attention{kind="evidence_conflict"} 0`,
		`reclaim_issues_open{kind="unknown_refund"} 1`, `reclaim_reading_success{reading="ledger"} 1`,
		`reclaim_guard_answers_total{call="ChargeJob",verdict="applied",why=""} 1`,
		`reclaim_guard_answers_total{call="ChargeJob",verdict="already",why=""} 0`,
		`reclaim_guard_answers_total{call="ChargeJob",verdict="refused",why="insufficient_credits"} 1`,
		`reclaim_guard_answers_total{call="ParkJob",verdict="applied",why=""} 1`,
		`reclaim_jobs_ended_total{state="declined"} 1`, `reclaim_jobs_ended_total{state="failed"} 0`,
		`reclaim_audit_breaks{check="account_balance"} 0`, `reclaim_audit_without_run{kind="job"} 0`,
		`reclaim_channel_call_seconds_count{channel="sim",operation="submit",outcome="unknown"} 0`,
	} {
		assert.Contains(t, page, "\n"+line+"\n")
	}
	assert.Contains(t, page, `activity_type="ChargeJob"`)
	assert.NotContains(t, page, "MadeUp")
	assert.NotContains(t, page, "j1", "no id is a label")
	assert.NotContains(t, page, "acme", "no tenant is a label")

	scraped, docs := families(page), documented(t)
	// Entries are counted when they are certainly committed: worker/meter has their test.
	scraped = append(scraped, "reclaim_money_moved_total", "reclaim_ledger_entries_total")
	for _, name := range scraped {
		if strings.HasPrefix(name, "reclaim_") || strings.HasPrefix(name, "temporal_") {
			assert.Contains(t, docs, name, "docs/metrics.md has every metric")
		}
	}
	for _, name := range docs {
		// What the SDK counts appears with its first time.
		if strings.HasPrefix(name, "reclaim_") {
			assert.Contains(t, scraped, name, "a worker has every metric of docs/metrics.md")
		}
	}
	var asked strings.Builder
	for _, a := range alerts(t) {
		asked.WriteString(a.Expr + "\n")
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			asked.WriteString(target.Expr + "\n")
		}
	}
	known := append(scraped, docs...)
	for _, name := range metricNames.FindAllString(asked.String(), -1) {
		assert.True(t, slices.Contains(known, name) || slices.Contains(known, suffixes.ReplaceAllString(name, "")),
			"%s is asked for by a rule or a panel", name)
	}
	r.stopsWithin(t, 30*time.Second)
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer func() { assert.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}
