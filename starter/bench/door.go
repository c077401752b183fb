package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// DoorOptions say how to measure the HTTP door.
type DoorOptions struct {
	// URL is where it listens.
	URL string
	// Jobs is how many are submitted over HTTP, and as many through the Go client, Clients how many ask at once.
	Jobs    int
	Clients int
	// Reading is how long jobs are read while JobsPerSecond others are started and run. ReadsPerSecond is how many reads are
	// offered; 0: the clients read as fast as they can.
	Reading        time.Duration
	ReadsPerSecond int
	JobsPerSecond  int
	// Entries is how long the statement is.
	Entries  int64
	Progress io.Writer
}

// DoorReport is what Door measured.
type DoorReport struct {
	Clients int `json:"clients"`
	// SubmitMillis and GoMillis are times to the charged answer; SubmitRatio is the summed times over HTTP by those through
	// the Go client.
	SubmitMillis Quantiles `json:"submitMs"`
	GoMillis     Quantiles `json:"goMs"`
	SubmitRatio  float64   `json:"submitRatio"`
	// OfferedReadsPerSecond and OfferedJobsPerSecond are what was asked of the system, ReadsPerSecond (GET job) and
	// JobsPerSecond what ended in that time. ReadMillis are from the moment at which a read was due, or, with 0 offered, sent.
	OfferedReadsPerSecond int       `json:"offeredReadsPerSecond"`
	OfferedJobsPerSecond  int       `json:"offeredJobsPerSecond"`
	ReadsPerSecond        float64   `json:"readsPerSecond"`
	ReadMillis            Quantiles `json:"readMs"`
	JobsPerSecond         float64   `json:"jobsPerSecond"`
	// DoorReadMillis is the processor time that a read took of the door's process, the kernel's share included.
	DoorReadMillis float64 `json:"doorReadMs"`
	// StatementEntries were streamed in StatementSeconds, while the door's process held at most DoorMegabytes (resident).
	StatementEntries int64   `json:"statementEntries"`
	StatementSeconds float64 `json:"statementSeconds"`
	StatementBytes   int64   `json:"statementBytes"`
	DoorMegabytes    float64 `json:"doorMegabytes"`
}

// Door measures a door that leads to the system. The store must have no statement timeout: it makes the statement's entries
// first.
func Door(ctx context.Context, system System, o DoorOptions) (DoorReport, error) {
	session := strings.ToLower(rand.Text()[:10])
	if err := fund(ctx, system.Client, session); err != nil {
		return DoorReport{}, err
	}
	b := &run{
		System: system, Options: Options{Concurrency: o.Clients}, session: session, work: "bench-work-" + session,
		plain: "bench-plain-" + session,
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop, err := b.startWorkers(ctx, cancel)
	if err != nil {
		return DoorReport{}, err
	}
	defer stop()
	d := &doorRun{run: b, o: o, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.Clients}}}
	for range o.Clients {
		key, err := system.Client.CreateKey(ctx, Tenant, "bench", []contract.Scope{
			contract.ScopeJobsRead, contract.ScopeJobsWrite, contract.ScopeAccountsRead,
		})
		if err != nil {
			return DoorReport{}, err
		}
		d.keys = append(d.keys, key)
	}
	defer d.revoke(ctx)
	report := DoorReport{
		Clients: o.Clients, StatementEntries: o.Entries, OfferedReadsPerSecond: o.ReadsPerSecond, OfferedJobsPerSecond: o.JobsPerSecond,
	}
	for _, part := range []struct {
		name string
		run  func(context.Context, *DoorReport) error
	}{{"submissions", d.submissions}, {"reads", d.reads}, {"the statement", d.statement}} {
		if err := part.run(ctx, &report); err != nil {
			return report, err
		}
		if o.Progress != nil {
			_, _ = fmt.Fprintln(o.Progress, part.name, "measured")
		}
	}
	return report, nil
}

type doorRun struct {
	*run
	o    DoorOptions
	http *http.Client
	keys []client.CreatedKey
}

// revoke takes the keys away again; ctx may have ended.
func (d *doorRun) revoke(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, key := range d.keys {
		// A key that stays has the bench's own tenant only.
		_, _ = d.Client.RevokeKey(ctx, Tenant, key.KeyID)
	}
}

func (d *doorRun) job(kind string, number int) contract.Job {
	return contract.Job{
		Tenant: Tenant, JobID: fmt.Sprintf("%s-%s-%d", d.session, kind, number), Account: account(number), Cost: 1, Actor: "bench",
		Promise: contract.Duration(limit), Work: contract.Work{
			Activity: workActivity, TaskQueue: d.work, Input: json.RawMessage(`{"width":64}`), Timeout: contract.Duration(limit),
		},
	}
}

// call sends a request and returns its answer, which must have the status.
func (d *doorRun) call(ctx context.Context, number int, method, path string, body []byte, status int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, d.o.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+d.keys[number%len(d.keys)].Secret)
	request.Header.Set("Content-Type", "application/json")
	answer, err := d.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the door: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != status {
		err = fmt.Errorf("status %d instead of %d: %s", answer.StatusCode, status, contract.Clip(string(text), 300))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return text, nil
}

// submissions submits jobs over HTTP and, by turns, through the Go client. After each block its jobs are waited for, so that
// they do not run in the next one's time.
func (d *doorRun) submissions(ctx context.Context, report *DoorReport) error {
	const blocks = 8
	kinds := []struct {
		name   string
		submit func(context.Context, int, contract.Job) error
		times  []time.Duration
		sum    time.Duration
	}{{name: "http", submit: func(ctx context.Context, number int, job contract.Job) error {
		raw, _, err := job.Encode()
		if err != nil {
			return err
		}
		_, err = d.call(ctx, number, http.MethodPost, "/v1/jobs", raw, http.StatusCreated)
		return err
	}}, {name: "go", submit: func(ctx context.Context, _ int, job contract.Job) error {
		verdict, err := d.Client.StartJob(ctx, job)
		if err == nil && verdict.Verdict != contract.VerdictCharged {
			err = fmt.Errorf("job %s: %s", job.JobID, verdict.Verdict)
		}
		return err
	}}}
	size := max(d.o.Jobs/blocks, 1)
	// The first block of each warms up and is not counted.
	for block := range blocks + 1 {
		for i := range kinds {
			kind := &kinds[(i+block)%2]
			_, err := d.each(ctx, size, func(ctx context.Context, number int) error {
				number += block * size
				began := time.Now()
				if err := kind.submit(ctx, number, d.job(kind.name, number)); err != nil {
					return err
				}
				if block > 0 {
					d.mu.Lock()
					defer d.mu.Unlock()
					kind.times, kind.sum = append(kind.times, time.Since(began)), kind.sum+time.Since(began)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if _, err := d.each(ctx, size, func(ctx context.Context, number int) error {
				_, err := d.Client.AwaitJob(ctx, Tenant, d.job(kind.name, number+block*size).JobID)
				return err
			}); err != nil {
				return err
			}
		}
	}
	report.SubmitRatio = kinds[0].sum.Seconds() / kinds[1].sum.Seconds()
	report.SubmitMillis, report.GoMillis = quantiles(kinds[0].times), quantiles(kinds[1].times)
	return nil
}

// statement streams a long statement and looks, while it does, at what the door's process holds.
func (d *doorRun) statement(ctx context.Context, report *DoorReport) error {
	long := d.session + "-statement"
	if err := d.Store.FillAccount(ctx, db.FillAccountParams{TenantID: Tenant, AccountID: long, Entries: d.o.Entries}); err != nil {
		return fmt.Errorf("make an account of %d entries: %w", d.o.Entries, err)
	}
	watching, stop := context.WithCancel(ctx)
	var most float64
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for watching.Err() == nil {
			if resident, err := d.metric(watching, "process_resident_memory_bytes"); err == nil {
				most = max(most, resident)
			}
			select {
			case <-watching.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	began := time.Now()
	n, err := d.streamStatement(ctx, long)
	report.StatementSeconds, report.StatementBytes = time.Since(began).Seconds(), n
	stop()
	watcher.Wait()
	if err == nil && most == 0 {
		err = errors.New("the door's metrics do not tell what its process holds")
	}
	report.DoorMegabytes = most / (1 << 20)
	return err
}

func (d *doorRun) streamStatement(ctx context.Context, long string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.o.URL+"/v1/accounts/"+long+"/statement?format=csv", nil)
	if err != nil {
		return 0, fmt.Errorf("make a request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+d.keys[0].Secret)
	answer, err := d.http.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask for a statement: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("ask for a statement: status %d", answer.StatusCode)
	}
	lines := &lineCounter{}
	n, err := io.Copy(lines, answer.Body)
	if err != nil {
		return n, fmt.Errorf("read a statement: %w", err)
	}
	// Beside the entries, there are a header, an opening and a closing.
	if lines.n != d.o.Entries+3 {
		return n, fmt.Errorf("the statement has %d lines for %d entries", lines.n, d.o.Entries)
	}
	return n, nil
}

type lineCounter struct{ n int64 }

// Write counts the lines.
func (c *lineCounter) Write(p []byte) (int, error) {
	c.n += int64(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

// metric reads one of the door's metrics that has no labels.
func (d *doorRun) metric(ctx context.Context, name string) (float64, error) {
	text, err := d.call(ctx, 0, http.MethodGet, "/metrics", nil, http.StatusOK)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("the door's metrics have no %s", name)
}
