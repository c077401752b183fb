package workflows

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// page is what the Web UI shows of the run now.
func (s *scene) page() string {
	s.t.Helper()
	answer, err := s.env.QueryWorkflow("__temporal_workflow_metadata")
	require.NoError(s.t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(s.t, answer.Get(&metadata))
	return metadata.GetCurrentDetails()
}

// shownSteps lists the cells of the page's table: when, step and ledger.
func (s *scene) shownSteps() (rows [][]string) {
	s.t.Helper()
	for line := range strings.Lines(s.page()) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "| "), " |"), " | ")
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| when") {
			require.Len(s.t, cells, 3, line)
			rows = append(rows, cells)
		}
	}
	return rows
}

// shownLedger sums the page's ledger column.
func (s *scene) shownLedger() (sum int64) {
	s.t.Helper()
	for _, cells := range s.shownSteps() {
		if cells[2] != "" {
			amount, err := strconv.ParseInt(cells[2], 10, 64)
			require.NoError(s.t, err)
			sum += amount
		}
	}
	return sum
}

// steps lists the page's steps without their times.
func (s *scene) steps() (steps []string) {
	for _, cells := range s.shownSteps() {
		steps = append(steps, strings.TrimSpace(cells[1]+" "+cells[2]))
	}
	return steps
}

func TestThePageTellsALateSuccess(t *testing.T) {
	s := newStage(t, delivers(45*time.Second, "v"))
	var before, waiting string
	s.at(29*time.Second, func() { before = s.page() })
	s.at(31*time.Second, func() { waiting = s.page() })
	s.run()
	assert.Contains(t, before, "**running** · charged 40 · the customer has paid **40**")
	assert.Contains(t, before, "**Waits for:** attempt 1, promised by 2026-03-01T12:00:30Z")
	assert.NotContains(t, before, "A person")
	assert.Contains(t, waiting, "**running** · charged 40, refunded 40 · the customer has paid **0**")
	assert.Contains(t, waiting, "**Waits for:** late success of attempt 1 (the customer is refunded)")
	assert.Contains(t, s.page(), "**succeeded** · charged 40, refunded 40, reclaimed 40 · the customer has paid **40**")
	assert.Contains(t, s.page(), "| 1\u00a0Mar\u00a012:00:30 | refunded: the promise of 30s passed without delivery | +40 |")
	assert.Contains(t, s.page(), "`starter job timeline j1 --tenant acme`")
	assert.Equal(t, []string{
		"charged 40 to account team -40", "attempt 1 of 3: RenderVideo on queue gpu",
		"refunded: the promise of 30s passed without delivery +40",
		"late success, so the refund is reclaimed: delivered by attempt 1 -40",
	}, s.steps())
}

func TestThePageOfADeadLetterHasWhatCanBeSent(t *testing.T) {
	s := newStage(t, fails(time.Second, "disk full"), delivers(time.Second, "v")).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
	s.at(time.Minute, func() {
		page := s.page()
		assert.Contains(t, page, "**A person is needed:** the attempts are used up")
		payloads := pasted(t, page)
		require.Len(t, payloads, 3)
		for _, payload := range payloads {
			_, err := contract.ParseResolution([]byte(payload))
			assert.ErrorContains(t, err, "operator", "sent as it is, it is refused")
		}
		s.signal(contract.ResolveMessage, json.RawMessage(filled(payloads[0])))
	})
	s.run()
	assert.Equal(t, contract.StateSucceeded, s.result.State)
	assert.Equal(t, []string{
		"charged 40 to account team -40", "attempt 1 of 1: RenderVideo on queue gpu", `attempt 1 failed: RenderError: disk full`,
		"refunded: attempt 1 failed: RenderError: disk full +40", "dead letter: 1 attempts are used up: a person decides",
		"retry by ann", "attempt 2 of 2: RenderVideo on queue gpu",
		"late success, so the refund is reclaimed: delivered by attempt 2 -40",
	}, s.steps())
	assert.NotContains(t, s.page(), "A person")
}

// pasted lists the messages that a page proposes.
func pasted(t *testing.T, page string) (payloads []string) {
	t.Helper()
	for part := range strings.SplitSeq(page, "```json\n") {
		if payload, _, found := strings.Cut(part, "\n```"); found {
			payloads = append(payloads, payload)
		}
	}
	return payloads
}

// filled is a proposed message after a person has filled it in.
func filled(payload string) string {
	return strings.NewReplacer(`"operator": ""`, `"operator": "ann"`, `"reason": ""`, `"reason": "seen"`,
		`"evidence": ""`, `"evidence": "the dashboard"`, `"channelRef": ""`, `"channelRef": "re_1"`, `"amount": 0`, `"amount": 1250`).Replace(payload)
}

func TestAPageShowsOutsideTextsAsTextAndStaysBounded(t *testing.T) {
	nasty := "a|b\n# c ![x](http://evil.example/p.png) <img src=x> `d` " + strings.Repeat("é", 4000)
	acts := []act{}
	for range 30 {
		acts = append(acts, fails(time.Second, nasty))
	}
	s := newStage(t, append(acts, delivers(time.Second, "v"))...).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 40 })
	s.run()
	page := s.page()
	assert.Contains(t, page, `a\|b \# c \!\[x\](http:\//evil.example/p.png) \<img src=x\> \`+"`d\\`")
	assert.NotContains(t, page, "![")
	assert.Len(t, s.shownSteps(), shownSteps+1)
	assert.Equal(t, "charged 40 to account team -40", s.steps()[0])
	assert.Contains(t, s.steps()[1], "more, see the timeline")
	assert.Less(t, len(page), 40_000)
}

func TestThePageTellsOfASecondSubmission(t *testing.T) {
	s := newStage(t, delivers(10*time.Second, "v"))
	for _, second := range []time.Duration{1, 2} {
		s.at(second*time.Second, func() { s.update("u"+second.String(), contract.AwaitChargeUpdate, json.RawMessage(s.raw())) })
	}
	s.run()
	assert.Equal(t, []string{
		"charged 40 to account team -40", "attempt 1 of 3: RenderVideo on queue gpu",
		"submitted again: it was charged before, so nothing was moved", "delivered by attempt 1",
	}, s.steps())
}

func TestThePageOfADeclinedJobSaysWhy(t *testing.T) {
	s := newStage(t)
	s.book.balances["team"] = 39
	s.run()
	assert.Contains(t, s.page(), "**declined** · nothing was moved")
	assert.Equal(t, []string{"declined, so nothing was moved: account team has 39 of the 40 that the job costs"}, s.steps())
}

func TestThePageOfAJobThatIsTakenUpSaysWhereItStood(t *testing.T) {
	s := newStage(t, delivers(time.Second, "v"))
	s.charged(10 * time.Second)
	s.run()
	assert.Equal(t, "taken up from an earlier run: charged at 2026-03-01 11:59:50; running (charged) after 0 attempts -40", s.steps()[0])
}

func TestARefusedDecisionIsOnThePage(t *testing.T) {
	s := newStage(t, delivers(10*time.Second, "v"))
	s.at(time.Second, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionRetry)) })
	s.at(2*time.Second, func() { s.signal(contract.ResolveMessage, "a text") })
	s.run()
	assert.Contains(t, s.steps()[2], "a decision of ada was refused: retry is not possible while the job is running")
	assert.Contains(t, s.steps()[3], "a decision of an unnamed operator was refused: ")
}

func TestThePageOfARefundHasWhatCanBeSent(t *testing.T) {
	s := newRefundStage(t, noAnswer)
	var page string
	s.at(3*givesUp, func() {
		page = s.page()
		s.signal(contract.ResolveMessage, json.RawMessage(filled(pasted(t, page)[0])))
	})
	s.run()
	assert.Contains(t, page, "**unknown** · 1250 eur (in its smallest unit) through bank. Did the money go back? **Unknown: it was sent and not acknowledged")
	assert.Contains(t, page, "**A person is needed:** the channel has not confirmed it in time. Look for the number `rf1` at bank first")
	payloads := pasted(t, page)
	require.Len(t, payloads, 4)
	for _, payload := range payloads {
		_, err := contract.ParseRefundResolution([]byte(payload))
		assert.ErrorContains(t, err, "operator", "sent as it is, it is refused")
		_, err = contract.ParseRefundResolution([]byte(filled(payload)))
		assert.NoError(t, err)
	}
	assert.Equal(t, contract.RefundSucceeded, s.result.State)
	assert.Contains(t, s.steps(), "accepted for order o1: the customer asked -40")
	assert.Contains(t, s.steps()[len(s.steps())-1], "succeeded: the money went back (settle)")
}

func TestThePageOfAFailedRefundGivesTheCreditsBack(t *testing.T) {
	s := newRefundStage(t, refused).run()
	assert.Equal(t, []string{
		"accepted for order o1: the customer asked -40", `failed: no money moved and none will (card\_expired) +40`,
	}, s.steps())
	assert.Zero(t, s.shownLedger())
}

func TestThePageTellsWhatBecameOfTheRefundToItsSource(t *testing.T) {
	for name, sent := range map[string]bool{"was withdrawn before it was sent": false, "had been sent": true} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, delivers(45*time.Second, "v")).toSource()
			s.at(40*time.Second, func() {
				if sent {
					s.row().source = contract.RefundPending
				}
			})
			s.run()
			assert.Contains(t, s.steps()[len(s.steps())-1], name)
		})
	}
}
