package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/api"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

var (
	openAPISource    = filepath.Join("..", "..", "starter", "api", "testdata", "openapi-tools")
	openAPIInstalled = filepath.Join("..", "..", ".cache", "openapi")
)

// needsOpenAPITools skips a test where the checks that others wrote are not installed, and returns a folder that has them.
func needsOpenAPITools(t *testing.T) (folder string) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("there is no Node.js")
	}
	wanted, wantedErr := os.ReadFile(filepath.Join(openAPISource, "package-lock.json"))
	has, hasErr := os.ReadFile(filepath.Join(openAPIInstalled, "package-lock.json"))
	// npm writes this file last.
	_, unfinished := os.Stat(filepath.Join(openAPIInstalled, "node_modules", ".package-lock.json"))
	if errors.Join(wantedErr, hasErr, unfinished) != nil || !bytes.Equal(has, wanted) {
		t.Skip("the packages of starter/api/testdata/openapi-tools are not installed: make prepare")
	}
	modules, err := filepath.Abs(filepath.Join(openAPIInstalled, "node_modules"))
	require.NoError(t, err)
	folder = t.TempDir()
	require.NoError(t, os.Symlink(modules, filepath.Join(folder, "node_modules")))
	return folder
}

func TestTheDescriptionOfTheRoutesIsSound(t *testing.T) {
	folder := needsOpenAPITools(t)
	s := newStage(t)
	description := openHTTP(t, s.client).get("/openapi.json", "")
	require.Equal(t, http.StatusOK, description.status)
	file := filepath.Join(folder, "openapi.json")
	require.NoError(t, os.WriteFile(file, description.body, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lint := exec.CommandContext(ctx, filepath.Join(folder, "node_modules", ".bin", "redocly"), "lint", file)
	lint.Dir = folder
	lint.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	output, err := lint.CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Contains(t, string(output), "Your API description is valid")
}

// openAPIReport is what ask.mjs prints.
type openAPIReport struct {
	Summary map[string]struct {
		Sent     int
		Statuses map[string]int
		// Seconds is the time that the answers took together.
		Seconds float64
	}
	Found    int
	Findings []json.RawMessage
	// Strict are the rules for which the door refused what its schemas allow.
	Strict []struct {
		Operation, Field, Rule string
		Request                json.RawMessage
	}
}

// beyondSchemas are the rules that no schema of the description says, as "field rule": they hang together with other fields,
// with what there is, or with clocks and calendars.
var beyondSchemas = map[string]*regexp.Regexp{
	"top-up-account": regexp.MustCompile(`^ top up account \S+: the (account holds|balance is)`),
	"add-order":      regexp.MustCompile(`^(asset is \S+, but the account holds|credits would take the balance)`),
	"submit-job": regexp.MustCompile(`^( orderId must name an order of|orderId is missing: refundTo|work\.(activity|probe) must not begin with|` +
		`(promise|work\.\w+|retry\.\w+) must be (a duration such as|more than 0s|between 0s and))`),
	"cancel-job":     regexp.MustCompile(`^ job \S+ is \w+ already: only an open job`),
	"get-statement":  regexp.MustCompile(`^(from|to|timeZone|limit) `),
	"request-refund": regexp.MustCompile(`^currency is \w+, but the order was paid in`),
}

func TestRequestsMadeFromTheDescriptionAreAnsweredAsItSays(t *testing.T) {
	folder := needsOpenAPITools(t)
	// Nothing of what is started at random here may burden other tests: its workers stop with it.
	s := newStageApart(t, silent)
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	t.Cleanup(s.startRelay(s.temporal))
	door := openHTTP(t, s.client, func(o *api.Options) { o.Limits.Rate, o.Limits.Burst = 100_000, 100_000 })
	description := door.get("/openapi.json", "")
	require.Equal(t, http.StatusOK, description.status)

	nobody := "nobody-" + s.tenant
	var jobs, toResolve, toCancel, refunds []string
	for n := range 12 {
		id := fmt.Sprintf("known-%d", n)
		s.startCharged(s.job(id, func(j *contract.Job) { j.Work.TaskQueue = nobody }))
		kept := []*[]string{&jobs, &toResolve, &toCancel}[n%3]
		*kept = append(*kept, id)
	}
	// A refund of this one is never sent: no worker has its channel.
	const elsewhere = "o-elsewhere"
	_, err := s.client.AddOrder(s.ctx(), contract.Order{
		Tenant: s.tenant, OrderID: elsewhere, Account: account, Channel: "not-configured", Payment: payment(elsewhere),
		Currency: currency, Paid: paid, Credits: orderCredits, Actor: "test", Key: "order",
	})
	require.NoError(t, err)
	for n := range 6 {
		requested, err := s.client.RequestRefund(s.ctx(), contract.RefundRequest{
			Tenant: s.tenant, Actor: "test", Key: fmt.Sprintf("known %d", n), OrderID: []string{order, elsewhere}[n%2], Amount: 100, Reason: "ticket 17",
		})
		require.NoError(t, err)
		refunds = append(refunds, requested.RefundID)
	}
	seed := time.Now().UnixNano() % 1_000_000_007
	t.Logf("the seed is %d", seed)
	settings, err := json.Marshal(map[string]any{
		"url": door.url, "key": s.keyOf(s.tenant).Secret, "description": json.RawMessage(description.body),
		"seed": seed, "each": 250, "atOnce": 8,
		// What a credential decides, what nobody is to carry out, and what would only take time.
		"always": map[string]any{
			"tenant": []string{s.tenant}, "actor": []string{"test"}, "taskQueue": []string{nobody}, "Prefer": []string{"wait=0", "wait=1", "x"},
		},
		// What would be closed too early otherwise.
		"own": map[string]any{
			"resolve-job": map[string]any{"job": toResolve}, "cancel-job": map[string]any{"job": toCancel},
		},
		"known": map[string]any{
			"account": []string{account, "team-8"}, "job": jobs, "order": []string{order, elsewhere}, "orderId": []string{order, elsewhere, "o2"},
			"refund": refunds, "jobId": []string{"j1", "j2", "j3", jobs[0]}, "cost": []int{0, 1, 40}, "amount": []int{1, 100},
			"key": []string{"known 0", "known 1"}, "Idempotency-Key": []string{"k1", "k2", "known 0"}, "currency": []string{currency},
			"from": []string{"2026-01-01", "2026-11-01T09:30:00+01:00"}, "to": []string{"2099-01-01"}, "timeZone": []string{"UTC", "Europe/Berlin"},
			"asset": []string{"CREDIT"}, "id": []string{"r1", "r2", "r3"}, "attempts": []int{1}, "attempt": []int{0, 1},
		},
	})
	require.NoError(t, err)
	began := time.Now()
	report := askByDescription(t, folder, settings)
	t.Logf("asked for %s: %+v", time.Since(began), report.Summary)

	for _, finding := range report.Findings {
		t.Errorf("%s", finding)
	}
	require.Zero(t, report.Found)
	var paths struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	require.NoError(t, json.Unmarshal(description.body, &paths))
	for _, methods := range paths.Paths {
		for _, operation := range methods {
			told := report.Summary[operation.OperationID]
			assert.GreaterOrEqual(t, told.Sent, 250, operation.OperationID)
			taken := told.Statuses["200"] + told.Statuses["201"] + told.Statuses["202"]
			assert.NotZero(t, taken, "nothing that was taken by %s: %v", operation.OperationID, told.Statuses)
			assert.NotZero(t, told.Statuses["400"], "nothing that was refused by %s: %v", operation.OperationID, told.Statuses)
		}
	}
	for _, strict := range report.Strict {
		rule := strict.Field + " " + strict.Rule
		if known := beyondSchemas[strict.Operation]; known == nil || !known.MatchString(rule) {
			t.Errorf("%s refuses what its schema allows: %s: %s", strict.Operation, rule, strict.Request)
		}
	}
}

func askByDescription(t *testing.T, folder string, settings []byte) (report openAPIReport) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(openAPISource, "ask.mjs"))
	require.NoError(t, err)
	file := filepath.Join(folder, "ask.mjs")
	require.NoError(t, os.WriteFile(file, program, 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ask := exec.CommandContext(ctx, "node", file)
	ask.Stdin = bytes.NewReader(settings)
	var said, complained bytes.Buffer
	ask.Stdout, ask.Stderr = &said, &complained
	require.NoError(t, ask.Run(), "%s", &complained)
	require.NoError(t, json.Unmarshal(said.Bytes(), &report), "%s", &said)
	return report
}
