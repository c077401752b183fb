package faults_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// absentTemporal returns a client of a server that is away until it is let in.
func (s *stage) absentTemporal() (absent client.Client, letIn func()) {
	s.t.Helper()
	port, err := localstack.FreePort()
	require.NoError(s.t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	absent, err = client.NewLazyClient(client.Options{
		HostPort: address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(s.t, err)
	s.t.Cleanup(absent.Close)
	return absent, func() {
		listener, err := net.Listen("tcp", address)
		require.NoError(s.t, err)
		s.t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				near, err := listener.Accept()
				if err != nil {
					return
				}
				go s.forward(near)
			}
		}()
	}
}

func (s *stage) forward(near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := net.Dial("tcp", s.address)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
}

// outboxRow is a subject's row in the outbox.
type outboxRow struct {
	lastError string
	delivered bool
}

func (s *stage) outboxRow(subject string) (row outboxRow) {
	s.t.Helper()
	require.NoError(s.t, s.direct.QueryRow(s.ctx(), `SELECT last_error, delivered_at IS NOT NULL FROM reclaim.outbox
		WHERE tenant_id = $1 AND subject_id = $2`, s.tenant, subject).Scan(&row.lastError, &row.delivered))
	return row
}

// noteDeferrals lets Postgres note every pause that a relay gives a row of this world, at the moment when it is given: who
// looks from outside may miss one.
func (s *refundStage) noteDeferrals() {
	s.t.Helper()
	for _, sql := range []string{
		// The pause lies between the two, since the statement reads the clock after it began and before this looks at it.
		`CREATE TABLE public.deferrals (subject text, attempt int, at_least interval, at_most interval)`,
		`CREATE FUNCTION public.note_deferral() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			INSERT INTO public.deferrals VALUES (NEW.subject_id, NEW.attempts, NEW.next_attempt_at - clock_timestamp(),
				NEW.next_attempt_at - statement_timestamp());
			RETURN NULL;
		END $$`,
		// Taking a row counts an attempt; putting it off does not.
		`CREATE TRIGGER note_deferral AFTER UPDATE OF next_attempt_at ON reclaim.outbox FOR EACH ROW
			WHEN (NEW.attempts = OLD.attempts) EXECUTE FUNCTION public.note_deferral()`,
	} {
		_, err := s.direct.Exec(s.ctx(), sql)
		require.NoError(s.t, err)
	}
}

// deferral is a pause that a relay gave a row after an attempt.
type deferral struct {
	attempt         int
	atLeast, atMost time.Duration
}

func (s *refundStage) deferrals(subject string) (all []deferral) {
	s.t.Helper()
	rows, err := s.direct.Query(s.ctx(), `SELECT attempt, extract(epoch FROM at_least)::float8, extract(epoch FROM at_most)::float8
		FROM public.deferrals WHERE subject = $1 ORDER BY attempt`, subject)
	require.NoError(s.t, err)
	for rows.Next() {
		var d deferral
		var atLeast, atMost float64
		require.NoError(s.t, rows.Scan(&d.attempt, &atLeast, &atMost))
		d.atLeast, d.atMost = time.Duration(atLeast*float64(time.Second)), time.Duration(atMost*float64(time.Second))
		all = append(all, d)
	}
	require.NoError(s.t, rows.Err())
	return all
}

func TestARefundAcceptedWhileTemporalIsAwayIsStartedOnceItIsBack(t *testing.T) {
	s := newStageApart(t, "")
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	absent, letIn := s.absentTemporal()
	here := s.client
	s.client = reclaim.New(absent, s.store, s.queue)
	id := s.refund(6000, simulator.Script{})
	s.client = here
	t.Cleanup(s.startRelay(absent))
	eventually(t, "the relay says what is wrong", func() bool { return s.outboxRow(id).lastError != "" })
	assert.False(t, s.outboxRow(id).delivered)
	assert.Equal(t, contract.RefundAccepted, s.refundState(id))
	letIn()
	s.refundEndsAs(id, contract.RefundSucceeded)
	eventually(t, "the row is done with", func() bool { return s.outboxRow(id).delivered })
	assert.Empty(t, s.outboxRow(id).lastError)
	assert.Len(t, s.runsOf(contract.RefundWorkflowID(s.tenant, id)), 1)
	s.assertSent(id, 1, 1)
}

func TestAnOutboxRowThatCannotBeDeliveredBacksOffAndHoldsUpNobody(t *testing.T) {
	s := newStageApart(t, "")
	absent, _ := s.absentTemporal()
	s.client = reclaim.New(absent, s.store, s.queue)
	for subject, row := range map[string][2]string{
		"unreadable": {"start_refund", `refunds!`},
		"missing":    {"start_refund", fmt.Sprintf(`{"tenant":%q,"refundId":"rf_missing"}`, s.tenant)},
	} {
		_, err := s.direct.Exec(s.ctx(), `INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload) VALUES ($1, $2, $3, $4)`,
			row[0], s.tenant, subject, row[1])
		require.NoError(t, err)
	}
	s.noteDeferrals()
	id := s.refund(6000, simulator.Script{})
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	began := time.Now()
	t.Cleanup(s.startRelay(s.temporal))
	s.refundEndsAs(id, contract.RefundSucceeded)
	t.Logf("the refund behind two poisoned rows ended %s after the relay's start", time.Since(began).Round(time.Millisecond))
	for _, subject := range []string{"unreadable", "missing"} {
		eventually(t, "the row has been put off three times", func() bool { return len(s.deferrals(subject)) >= 3 })
		pauses := s.deferrals(subject)
		for n, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			assert.Equal(t, n+1, pauses[n].attempt, "%s: %v", subject, pauses)
			assert.LessOrEqual(t, pauses[n].atLeast, pause, "%s: the pauses double: %v", subject, pauses)
			assert.GreaterOrEqual(t, pauses[n].atMost, pause, "%s: the pauses double: %v", subject, pauses)
		}
		row := s.outboxRow(subject)
		assert.False(t, row.delivered)
		assert.NotEmpty(t, row.lastError)
		t.Logf("%s: %s", subject, row.lastError)
	}
}

func TestTheRelayForgetsKeysAndRowsAfterTheirRetention(t *testing.T) {
	s := newStageApart(t, "")
	id, kept := s.refund(1000, simulator.Script{}), s.refund(1000, simulator.Script{})
	_, err := s.direct.Exec(s.ctx(), `UPDATE reclaim.operations SET expires_at = clock_timestamp() WHERE subject_id = $1`, id)
	require.NoError(t, err)
	_, err = s.direct.Exec(s.ctx(), `UPDATE reclaim.outbox SET delivered_at = clock_timestamp() - interval '8 days' WHERE subject_id = $1`, id)
	require.NoError(t, err)
	t.Cleanup(s.startRelay(s.temporal))
	eventually(t, "the old ones are gone", func() bool {
		return value[int](s.stage, `SELECT (SELECT count(*) FROM reclaim.operations WHERE subject_id = $1)
			+ (SELECT count(*) FROM reclaim.outbox WHERE subject_id = $1)`, id) == 0
	})
	assert.Equal(t, 2, value[int](s.stage, `SELECT (SELECT count(*) FROM reclaim.operations WHERE subject_id = $1)
		+ (SELECT count(*) FROM reclaim.outbox WHERE subject_id = $1)`, kept))
	_, err = s.client.RequestRefund(s.ctx(), s.request(0, 1000))
	assert.Equal(t, contract.CodeExpired, contract.CodeOf(err), "the refund is kept, and its key makes no other: %v", err)
	// Whoever carries them out now finds both.
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	s.refundEndsAs(id, contract.RefundSucceeded)
	s.refundEndsAs(kept, contract.RefundSucceeded)
}

// counting counts how often each workflow is started.
type counting struct {
	client.Client
	mu     sync.Mutex
	starts map[string]int
}

func (c *counting) ExecuteWorkflow(
	ctx context.Context, options client.StartWorkflowOptions, workflow any, args ...any,
) (client.WorkflowRun, error) {
	c.mu.Lock()
	c.starts[options.ID]++
	c.mu.Unlock()
	return c.Client.ExecuteWorkflow(ctx, options, workflow, args...)
}

func TestTwoRelaysAtOnceStartEachRefundOnce(t *testing.T) {
	// Rows are left to the relay that took them for so long; on a busy machine it may not be through with its batch by then.
	const refunds, lease = 60, 30 * time.Second
	s := newStageApart(t, "")
	absent, _ := s.absentTemporal()
	asker := reclaim.New(absent, s.store, s.queue)
	var asking sync.WaitGroup
	for n := range refunds {
		asking.Go(func() {
			// Repeated as the error says: sixty at once may have to wait for the order's lock for too long.
			for deadline := time.Now().Add(patience); ; {
				_, err := asker.RequestRefund(s.ctx(), s.request(n, 100))
				if contract.CodeOf(err) != contract.CodeUnavailable || time.Now().After(deadline) {
					assert.NoError(t, err)
					return
				}
			}
		})
	}
	asking.Wait()
	began := time.Now()
	relays := []*counting{{Client: s.temporal, starts: map[string]int{}}, {Client: s.temporal, starts: map[string]int{}}}
	for _, one := range relays {
		t.Cleanup(s.startRelay(one))
	}
	eventually(t, "the outbox is empty", func() bool {
		return value[int](s.stage, `SELECT count(*) FROM reclaim.outbox WHERE delivered_at IS NULL`) == 0
	})
	leases := 1 + int(time.Since(began)/lease)
	for n := range refunds {
		id, starts := contract.RefundWorkflowID(s.tenant, s.number(n)), 0
		for _, one := range relays {
			one.mu.Lock()
			starts += one.starts[id]
			one.mu.Unlock()
		}
		assert.Positive(t, starts, id)
		assert.LessOrEqual(t, starts, leases, id)
		eventually(t, "its run is listed", func() bool { return len(s.runsOf(id)) > 0 })
		assert.Len(t, s.runsOf(id), 1)
	}
	t.Logf("of %d refunds one relay started %d and the other %d", refunds, len(relays[0].starts), len(relays[1].starts))
}
