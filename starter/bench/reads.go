package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// linesOfClient is how many connections a client has where reads are due at their moments: while some wait for answers,
// others are there for what is due.
const linesOfClient = 4

// reads reads jobs from all clients while others are started at a steady rate and run. Both loads are open: each read and
// each job has its own moment, whatever became of those before, and a read's time counts from that moment.
func (d *doorRun) reads(ctx context.Context, report *DoorReport) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var ended atomic.Int64
	stop := d.jobsBeside(ctx, fail, &ended)
	defer stop()
	// The load is steady once its first jobs have ended.
	for ended.Load() < int64(d.o.JobsPerSecond) && ctx.Err() == nil {
		<-time.After(10 * time.Millisecond)
	}
	lines := make([]*line, d.o.Clients)
	if d.o.ReadsPerSecond > 0 {
		lines = make([]*line, d.o.Clients*linesOfClient)
	}
	for i := range lines {
		var err error
		if lines[i], err = d.connect(ctx, i); err != nil {
			return err
		}
		defer lines[i].close()
	}
	const processor = "process_cpu_seconds_total"
	spentBefore, err := d.metric(ctx, processor)
	if err != nil {
		return err
	}
	before, began := ended.Load(), time.Now()
	var next atomic.Int64
	times := make([][]time.Duration, len(lines))
	var readers sync.WaitGroup
	for i, line := range lines {
		readers.Go(func() {
			for ctx.Err() == nil {
				due := time.Now()
				if d.o.ReadsPerSecond > 0 {
					due = began.Add(time.Duration(next.Add(1)) * time.Second / time.Duration(d.o.ReadsPerSecond))
					<-time.After(time.Until(due))
				}
				if due.Sub(began) >= d.o.Reading {
					return
				}
				if err := line.read(); err != nil {
					fail(err)
					return
				}
				times[i] = append(times[i], time.Since(due))
			}
		})
	}
	readers.Wait()
	spent := time.Since(began)
	report.JobsPerSecond = float64(ended.Load()-before) / spent.Seconds()
	all := slices.Concat(times...)
	report.ReadsPerSecond, report.ReadMillis = float64(len(all))/spent.Seconds(), quantiles(all)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	spentAfter, err := d.metric(ctx, processor)
	report.DoorReadMillis = (spentAfter - spentBefore) * 1000 / float64(max(len(all), 1))
	return err
}

// jobsBeside starts jobs, each at its own moment, and counts those that have ended, until stop is called, which waits for the
// rest of them.
func (d *doorRun) jobsBeside(ctx context.Context, fail context.CancelCauseFunc, ended *atomic.Int64) (stop func()) {
	starting, enough := context.WithCancel(ctx)
	running, abandon := context.WithCancel(ctx)
	var jobs sync.WaitGroup
	jobs.Go(func() {
		began := time.Now()
		for number := 0; ; number++ {
			select {
			case <-starting.Done():
				return
			case <-time.After(time.Until(began.Add(time.Duration(number) * time.Second / time.Duration(d.o.JobsPerSecond)))):
			}
			jobs.Go(func() {
				switch err := d.runJob(running, d.job("beside", number)); {
				case err == nil:
					ended.Add(1)
				case running.Err() == nil:
					fail(err)
				}
			})
		}
	})
	return func() {
		enough()
		// A server that had more than it can do may have lost a job's work until its timeout: that is not waited for.
		abandoning := time.AfterFunc(30*time.Second, abandon)
		jobs.Wait()
		abandoning.Stop()
		abandon()
	}
}

// line is a connection by which one client reads one job again and again. It is written to and read from directly: the
// standard client's own work would take a good part of the machine from what is measured.
type line struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	// proof is what the right answer has in it.
	proof []byte
	body  bytes.Buffer
}

func (d *doorRun) connect(ctx context.Context, number int) (*line, error) {
	door, err := url.Parse(d.o.URL)
	if err != nil || door.Scheme != "http" {
		return nil, fmt.Errorf("the door's address must be http://host:port to be measured, not %q", d.o.URL)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", door.Host)
	if err != nil {
		return nil, fmt.Errorf("reach the door: %w", err)
	}
	job := d.job("go", number%max(d.o.Jobs, 1)).JobID
	return &line{
		conn: conn, in: bufio.NewReader(conn), proof: []byte(`"jobId":"` + job + `"`),
		request: fmt.Appendf(nil, "GET /v1/jobs/%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: application/json\r\n\r\n",
			job, door.Host, d.keys[number%len(d.keys)].Secret),
	}, nil
}

func (l *line) close() { _ = l.conn.Close() }

// read asks for the job once and looks at the answer.
func (l *line) read() error {
	if _, err := l.conn.Write(l.request); err != nil {
		return fmt.Errorf("ask the door: %w", err)
	}
	answer, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return fmt.Errorf("read the door's answer: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	l.body.Reset()
	if _, err := io.Copy(&l.body, answer.Body); err != nil {
		return fmt.Errorf("read the door's answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK || !bytes.Contains(l.body.Bytes(), l.proof) {
		return fmt.Errorf("read a job: status %d: %s", answer.StatusCode, contract.Clip(l.body.String(), 300))
	}
	return nil
}
