package faults_test

import (
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// refundKillStage gives a stage of its own database, whose refunds are carried by worker processes.
func refundKillStage(t *testing.T, settings string) *refundStage {
	t.Helper()
	needsFaults(t)
	t.Parallel()
	s := sharedWorld(t).apart(t).stage(t, "")
	s.patience = 3 * time.Minute
	return s.withChannel(settings)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := localstack.FreePort()
	require.NoError(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// agree checks that the refund was made once, and that the channel's book and ours say the same of it.
func (s *refundStage) agree(refundID string, sends int) {
	s.t.Helper()
	s.refundEndsAs(refundID, contract.RefundSucceeded)
	s.assertSent(refundID, sends, 1)
	assert.EqualValues(s.t, 6000, s.simulator.MovedFor(refundID))
	assert.Equal(s.t, capacity{refunded: 6000}, s.capacity())
	assert.Equal(s.t, "payout", s.refundStory(refundID))
	assert.EqualValues(s.t, credits+orderCredits-600, s.balance())
	assert.Len(s.t, s.runsOf(contract.RefundWorkflowID(s.tenant, refundID)), 1)
	assert.Empty(s.t, s.issues())
}

func TestAWorkerKilledDuringTheChannelsCallRefundsOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault simulator.Fault
		sends int
	}{
		{"before the channel made the refund", simulator.Fault{Kind: simulator.FaultHang}, 2},
		{"after the channel made the refund", simulator.Fault{Kind: simulator.FaultHang, Applied: true}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := refundKillStage(t, "")
			first := s.startChild("", s.environment()...)
			id := s.refund(6000, mistreated(c.fault))
			within(t, s.patience, "the request is under way", func() bool {
				return s.simulator.Sends(id) == 1 && (s.simulator.Applied(id) == 1) == c.fault.Applied
			})
			first.kill()
			killed := time.Now()
			assert.Equal(t, contract.RefundUnknown, s.refundState(id), "sending was committed before the call")
			s.startChild("", s.environment()...)
			s.agree(id, c.sends)
			t.Logf("confirmed %s after the death", time.Since(killed).Round(time.Millisecond))
		})
	}
}

func TestAWorkerKilledWithARefundsStatementInFlightRefundsOnce(t *testing.T) {
	for _, name := range []string{"BeginSend", "ApplyEvidence"} {
		for _, how := range []string{
			// The statement takes effect after its worker died.
			"arrives after the death",
			// It took effect; the worker died before the reply.
			"loses its reply",
			// It is under way for so long that another worker has long confirmed the refund.
			"arrives after the end",
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				s := refundKillStage(t, "")
				proxy := schematest.NewLossyProxy(t, s.database.Address)
				first := s.startChild(proxy.URL(s.database.AppURL), s.environment()...)
				release := func() {}
				if how == "loses its reply" {
					proxy.LoseReply(statement(name), 1)
				} else {
					release = proxy.Hold(statement(name))
				}
				id := s.refund(6000, simulator.Script{})
				within(t, s.patience, name+" is in flight", func() bool { return proxy.Held()+proxy.Lost() > 0 })
				first.kill()
				killed := time.Now()
				if how == "arrives after the death" {
					release()
				}
				s.startChild("", s.environment()...)
				s.agree(id, 1)
				t.Logf("confirmed %s after the death; %q", time.Since(killed).Round(time.Millisecond), s.evidenceOf(id))
				if how == "arrives after the end" {
					release()
					within(t, patience, "the delayed statement is sent", func() bool { return proxy.Held() == 0 })
					for until := time.Now().Add(2 * time.Second); time.Now().Before(until); <-time.After(100 * time.Millisecond) {
						require.Equal(t, contract.RefundSucceeded, s.refundState(id))
					}
					s.agree(id, 1)
				}
			})
		}
	}
}

func TestAWorkerKilledWhileARefundIsPolledGoesOnInAnother(t *testing.T) {
	s := refundKillStage(t, "")
	first := s.startChild("", s.environment()...)
	id := s.refund(6000, life(step(0, "pending")))
	within(t, s.patience, "it is polled", func() bool { return s.refundRow(id).looks >= 2 })
	first.kill()
	killed, looks := time.Now(), s.refundRow(id).looks
	s.startChild("", s.environment()...)
	within(t, s.patience, "it is polled again", func() bool { return s.refundRow(id).looks > looks })
	t.Logf("looked up again %s after the death", time.Since(killed).Round(time.Millisecond))
	assert.Equal(t, capacity{reserved: 6000}, s.capacity())
	s.simulator.Script(id, life(step(0, "succeeded")))
	s.agree(id, 1)
}

// A notice whose worker died before the commit was not acknowledged, and is sent again. One whose worker died after it
// stands in the row, where the run finds it at its next look.
func TestAWorkerKilledWithANoticeInFlightTakesItWhenItIsSentAgain(t *testing.T) {
	for _, how := range []string{"arrives after the death", "loses its reply", "never arrives"} {
		t.Run(how, func(t *testing.T) {
			s := refundKillStage(t, "first_query = \"20s\"\npoll = [\"20s\"]\n")
			proxy := schematest.NewLossyProxy(t, s.database.Address)
			door := freeAddress(t)
			s.simulator.SetWebhookURL(s.noticesURL("http://" + door))
			first := s.startChild(proxy.URL(s.database.AppURL), s.environment("RECLAIM_LISTEN="+door)...)
			id := s.refund(6000, life(step(0, "pending"), step(time.Hour, "succeeded")))
			within(t, s.patience, "it is pending", func() bool { return s.refundState(id) == contract.RefundPending })
			s.simulator.Deliver()
			release := func() {}
			if how == "loses its reply" {
				proxy.LoseReply(statement("ApplyEvidence"), 1)
			} else {
				release = proxy.Hold(statement("ApplyEvidence"))
			}
			s.simulator.Advance(time.Hour)
			within(t, s.patience, "the notice is in flight", func() bool { return proxy.Held()+proxy.Lost() > 0 })
			first.kill()
			killed := time.Now()
			if how == "arrives after the death" {
				release()
			}
			s.startChild("", s.environment("RECLAIM_LISTEN="+door)...)
			s.agree(id, 1)
			t.Logf("confirmed %s after the death", time.Since(killed).Round(time.Millisecond))
			tries := map[int]int{}
			for _, d := range s.simulator.Deliveries() {
				tries[d.Status]++
			}
			// It was killed before it answered or, where it noticed that the reply was lost, after it had said that it cannot.
			assert.Positive(t, tries[0]+tries[http.StatusServiceUnavailable], "the killed worker's notice was not acknowledged")
			assert.Positive(t, tries[http.StatusOK])
			t.Logf("webhooks by status: %v", tries)
		})
	}
}
