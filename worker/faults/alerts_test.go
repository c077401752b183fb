package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

var (
	prometheusFolder = filepath.Join("..", "deploy", "prometheus")
	dashboardFile    = filepath.Join("..", "deploy", "grafana", "dashboards", "reclaim.json")
)

// watcher is a Prometheus that looks at a worker every second by the rules of the installation, whose waits and windows are
// cut to seconds. Their limits stay.
type watcher struct {
	t   *testing.T
	url string
}

var (
	waits   = regexp.MustCompile(`(?m)^( +for: ).+$`)
	windows = regexp.MustCompile(`\[\d+[mh]\]`)
	pauses  = regexp.MustCompile(`(?m)^( +\w+_interval: ).+$`)
)

// shortWindow is long enough for a worker to read its database twice.
const shortWindow = "[25s]"

func startWatcher(t *testing.T, worker string) *watcher {
	t.Helper()
	program, ok := localstack.PrometheusProgram("prometheus", filepath.Join("..", ".."))
	if !ok {
		t.Skip("there is no prometheus: `make prepare` unpacks it where Debian's packages are")
	}
	folder := t.TempDir()
	rules, err := os.ReadFile(filepath.Join(prometheusFolder, "rules.yml"))
	require.NoError(t, err)
	rules = windows.ReplaceAll(waits.ReplaceAll(rules, []byte("${1}1s")), []byte(shortWindow))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "rules.yml"), rules, 0o600))
	settings, err := os.ReadFile(filepath.Join(prometheusFolder, "prometheus.yml"))
	require.NoError(t, err)
	const workers = "dns_sd_configs: [{names: [worker], type: A, port: 8081}]"
	require.Contains(t, string(settings), workers)
	settings = pauses.ReplaceAll(settings, []byte("${1}1s"))
	settings = []byte(strings.NewReplacer(
		workers, "static_configs: [{targets: ["+strconv.Quote(worker)+"]}]", "gateway:8080", "127.0.0.1:1", "temporal:9090", "127.0.0.1:1",
	).Replace(string(settings)))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "prometheus.yml"), settings, 0o600))
	port, err := localstack.FreePort()
	require.NoError(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	log := filepath.Join(folder, "log")
	child, err := localstack.StartChild("prometheus", localstack.ChildOptions{Path: program, Log: log, Env: os.Environ(), Args: []string{
		"--config.file=" + filepath.Join(folder, "prometheus.yml"), "--storage.tsdb.path=" + filepath.Join(folder, "data"),
		"--web.listen-address=" + address,
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		child.Stop(10 * time.Second)
		if t.Failed() {
			said, _ := os.ReadFile(log)
			t.Logf("prometheus said:\n%s", said)
		}
	})
	w := &watcher{t: t, url: "http://" + address}
	eventually(t, "Prometheus is ready", func() bool {
		select {
		case <-child.Exited():
			t.Fatal(child.Failure("ended by itself"))
		default:
		}
		response, err := http.Get(w.url + "/-/ready")
		if err != nil {
			return false
		}
		require.NoError(t, response.Body.Close())
		return response.StatusCode == http.StatusOK
	})
	return w
}

// ask reads an answer of Prometheus' API.
func ask[T any](w *watcher, path string) T {
	w.t.Helper()
	response, err := http.Get(w.url + "/api/v1/" + path)
	require.NoError(w.t, err)
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          T
	}
	require.NoError(w.t, json.NewDecoder(response.Body).Decode(&answer))
	require.Equal(w.t, "success", answer.Status, answer.Error)
	return answer.Data
}

// firing lists the alerts that fire now, sorted, as "name" or, where the alert tells several subjects apart, "name subject".
func (w *watcher) firing() (names []string) {
	w.t.Helper()
	for _, alert := range ask[struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}](w, "alerts").Alerts {
		name := alert.Labels["alertname"]
		for _, label := range []string{"kind", "check", "workflow_type", "reading", "call"} {
			if subject := alert.Labels[label]; subject != "" {
				name += " " + subject
			}
		}
		if alert.State == "firing" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fire waits until each of the alerts has been seen to fire, and end until none of them fires.
func (w *watcher) fire(wanted ...string) {
	w.t.Helper()
	began, seen := time.Now(), map[string]bool{}
	for len(seen) < len(wanted) {
		for _, name := range w.firing() {
			if slices.Contains(wanted, name) && !seen[name] {
				seen[name] = true
				w.t.Logf("%s fires after %s", name, time.Since(began).Round(time.Second))
			}
		}
		if time.Since(began) > patience {
			w.t.Fatalf("of %q only %v fired", wanted, seen)
		}
		<-time.After(200 * time.Millisecond)
	}
}

func (w *watcher) end(wanted ...string) {
	w.t.Helper()
	began := time.Now()
	var still []string
	for first := true; first || len(still) > 0; first = false {
		still = slices.DeleteFunc(w.firing(), func(name string) bool { return !slices.Contains(wanted, name) })
		if time.Since(began) > patience {
			w.t.Fatalf("%q do not end", still)
		}
		<-time.After(200 * time.Millisecond)
	}
	w.t.Logf("%d have ended after %s", len(wanted), time.Since(began).Round(time.Second))
}

// number is the value of a query that has one, or -1.
func (w *watcher) number(query string) float64 {
	w.t.Helper()
	for _, result := range ask[struct{ Result []struct{ Value [2]any } }](w, "query?query="+url.QueryEscape(query)).Result {
		value, err := strconv.ParseFloat(result.Value[1].(string), 64)
		require.NoError(w.t, err)
		return value
	}
	return -1
}

// moody is a way to the channel that can be broken.
func (s *refundStage) moody() (broken *atomic.Bool, address string) {
	s.t.Helper()
	target, err := url.Parse(s.simulator.URL())
	require.NoError(s.t, err)
	broken = new(atomic.Bool)
	proxy := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			http.Error(w, "bad gateway", http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	s.t.Cleanup(server.Close)
	return broken, server.URL
}

// Each alert rule of the installation is made to fire by what it is about, by a real Prometheus that scrapes a real worker,
// and seen to end when that ends.
func TestEachAlertFiresAndEnds(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	s := sharedWorld(t).apart(t).stage(t, "").withChannel(eager)
	t.Cleanup(s.crew.start(t, s.address))
	broken, address := s.moody()
	s.connect(address, eager)
	port, err := localstack.FreePort()
	require.NoError(t, err)
	listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	watch := startWatcher(t, listen)

	// A worker that audits nothing and may not read the issues.
	s.stage.change("REVOKE SELECT ON reclaim.issues FROM reclaim_app")
	worker := s.startChild("", s.environment("RECLAIM_LISTEN="+listen)...)
	watch.fire("AuditStale", "DatabaseUnread issues")
	s.stage.change("GRANT SELECT ON reclaim.issues TO reclaim_app")
	watch.end("DatabaseUnread issues")
	worker.kill()
	watch.fire("WorkerAbsent")
	s.startChild("", s.environment("RECLAIM_LISTEN="+listen, "RECLAIM_AUDIT_EVERY=1s")...)
	watch.end("WorkerAbsent", "AuditStale")
	eventually(t, "all is quiet", func() bool { return len(watch.firing()) == 0 })

	// A refund that its channel never confirms, as if it had been asked for two days ago.
	never := s.refund(1000, simulator.Script{Life: []simulator.Step{{After: 1000 * time.Hour, Status: "succeeded"}}})
	s.refundReaches(never, contract.RefundPending)
	s.change(never, "created_at = created_at - interval '2 days', look_until = clock_timestamp()")
	// Work that fails.
	letters := []string{"d1", "d2", "d3", "d4", "d5"}
	for _, id := range letters {
		s.cast(id, func(p *part) {
			p.work = func(context.Context, contract.WorkMeta) (any, error) {
				return nil, temporal.NewApplicationError("out of memory", "OOM")
			}
		})
		s.startCharged(s.job(id, attempts(1)))
	}
	for _, id := range letters {
		s.reaches(id, contract.StateDeadLetter)
	}
	// A row of the outbox that nobody can carry out.
	s.stage.change(`INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload, created_at)
		VALUES ('start_refund', $1, 'poison', 'not a refund', clock_timestamp() - interval '1 minute')`, s.tenant)
	// A balance that was changed by hand.
	s.topUp("spare", 10)
	s.stage.change("UPDATE reclaim.accounts SET balance = balance + 1 WHERE account_id = 'spare'")
	// A channel that answers with the page of a broken gateway.
	broken.Store(true)
	unanswered := s.refund(1000, simulator.Script{})
	s.refundReaches(unanswered, contract.RefundUnknown)
	// A right that a migration forgot: a delivery is tried again and again.
	s.stage.change("REVOKE UPDATE (delivered_at) ON reclaim.jobs FROM reclaim_app")
	s.cast("denied", answersAtOnce("done"))
	s.startCharged(s.job("denied"))
	// A constraint that is not Reclaim's: these charges can never succeed.
	s.stage.change("ALTER TABLE reclaim.jobs ADD CONSTRAINT foreign_rule CHECK (job_id NOT LIKE 'stuck%') NOT VALID")
	var stuck []client.WorkflowRun
	for _, id := range []string{"stuck1", "stuck2", "stuck3"} {
		job := s.job(id)
		s.jobs = slices.DeleteFunc(s.jobs, func(other string) bool { return other == id }) // its history has failed tasks
		s.cast(id, answersAtOnce("done"))
		stuck = append(stuck, s.startPlain(job, id))
	}

	all := []string{
		"RefundUnconfirmedTooLong", "DeadLettersGrowing", "AttentionWaiting dead_letter", "AttentionWaiting refund_unconfirmed", "OutboxLag",
		"AuditBroken account_balance", "WorkflowTaskFailures MeteredJob",
		"MoneyCallsFailing SettleJob", "ChannelCallsFailing",
	}
	watch.fire(all...)

	s.stage.change("GRANT UPDATE (delivered_at) ON reclaim.jobs TO reclaim_app")
	s.stage.change("ALTER TABLE reclaim.jobs DROP CONSTRAINT foreign_rule")
	broken.Store(false)
	s.stage.change("UPDATE reclaim.accounts SET balance = balance - 1 WHERE account_id = 'spare'")
	s.stage.change("UPDATE reclaim.outbox SET delivered_at = clock_timestamp() WHERE subject_id = 'poison'")
	for _, id := range letters {
		s.resolve(id, decision("r-"+id, contract.ActionWriteOff))
	}
	s.simulator.Script(never, simulator.Script{Life: []simulator.Step{{Status: "succeeded"}}})
	s.decided(never, contract.RefundResolution{ID: "r1", Action: contract.ActionExtend})
	s.refundEndsAs(never, contract.RefundSucceeded)
	s.refundEndsAs(unanswered, contract.RefundSucceeded)
	for _, run := range stuck {
		require.NoError(t, run.Get(s.ctx(), nil))
	}
	s.assertDelivered(s.runEnds("denied"))
	watch.end(all...)
	eventually(t, "all is quiet", func() bool { return len(watch.firing()) == 0 })

	for query, want := range map[string]float64{
		`reclaim_money_moved_total{type="charge",direction="debit",asset="CREDIT"}`:               9 * cost,
		`reclaim_ledger_entries_total{type="charge"}`:                                             9,
		`reclaim_money_moved_total{type="refund",direction="credit"}`:                             5 * cost,
		`reclaim_refund_transitions_total{state="succeeded"}`:                                     2,
		`reclaim_jobs_ended_total{state="written_off"}`:                                           5,
		`reclaim_guard_answers_total{call="ParkJob",verdict="applied"}`:                           5,
		`reclaim_refunds{state="pending"}`:                                                        0,
		`sum(reclaim_channel_call_seconds_count{operation="submit",outcome!="unknown"}) > bool 0`: 1,
	} {
		eventually(t, fmt.Sprintf("%s is %g", query, want), func() bool { return watch.number(query) == want })
	}
	s.checkNames(watch)
}

var askedNames = regexp.MustCompile(`\b(?:reclaim|temporal|go|process)_[a-z_]*[a-z]\b`)

// checkNames checks that every metric that a rule or a panel asks for has been there, and that every one that has been there
// is documented.
func (s *refundStage) checkNames(watch *watcher) {
	s.t.Helper()
	there := ask[[]string](watch, "label/__name__/values")
	for _, file := range []string{filepath.Join(prometheusFolder, "rules.yml"), dashboardFile} {
		text, err := os.ReadFile(file)
		require.NoError(s.t, err)
		for _, name := range askedNames.FindAllString(string(text), -1) {
			// No issue is open, and nothing that Temporal was asked has failed, but by chance.
			if name != "reclaim_issues_open" && name != "temporal_request_failure_total" {
				assert.Contains(s.t, there, name, "%s asks for it", file)
			}
		}
	}
	docs, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	require.NoError(s.t, err)
	for _, name := range there {
		if strings.HasPrefix(name, "reclaim_") || strings.HasPrefix(name, "temporal_") {
			name = regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
			assert.Contains(s.t, string(docs), "| `"+name+"` |", "docs/metrics.md has every metric")
		}
	}
}
