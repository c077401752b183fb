package webui_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/worker/render"
	"github.com/reclaimhq/reclaim/worker/webui"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// story is something that a customer asks support about, which the Web UI alone must explain.
type story struct {
	name string
	// view is where support begins, and workflowID what it clicks on there.
	view       webui.View
	workflowID string
	// first are words that the run's first page must say, and second those of its User Metadata, one click further.
	first, second []string
	// picture names the docs' picture of the second page, empty for none.
	picture string
	// resolve does what the page says, nil where nothing is left to do; it begins on the second page.
	resolve func(*browser)
}

// The numbers and jobs of the stories.
const (
	lateJob, twiceJob, deadJob, terminatedJob, canceledJob = "late", "twice", "dead", "terminated", "canceled"
	declinedJob, owingJob, debtJob                         = "declined", "owing", "in-debt"
)

// stories brings all of them about and waits until each has come to where support meets it.
func (s *stage) stories() []story {
	views := map[string]webui.View{}
	for _, v := range webui.Views(time.Now()) {
		views[v.Name] = v
	}
	ofStudio, waiting, ended := webui.OfAccount(tenant, studio), views["Needs a person"], views["Ended with a question"]

	slow := func(work, promise time.Duration) func(*render.Input, *contract.Job) {
		return func(in *render.Input, job *contract.Job) {
			in.SlowMs, job.Promise = work.Milliseconds(), contract.Duration(promise)
		}
	}
	late := s.job(lateJob, studio, slow(3*time.Second, time.Second))
	twice := s.job(twiceJob, studio, slow(4*time.Second, time.Minute))
	terminated := s.job(terminatedJob, studio, slow(5*time.Second, time.Minute))
	canceled := s.job(canceledJob, studio, slow(5*time.Minute, time.Minute))
	declined := s.job(declinedJob, "thin", nil)
	s.topUp("thin", 3)
	s.breakStudio()
	dead := s.job(deadJob, studio, func(in *render.Input, job *contract.Job) { in.FailWhile, job.Retry.MaxAttempts = outage, 2 })
	// The account's only credits pay for the job, leave by its refund, and are owed once it is delivered after all.
	s.order("order-owing", owingJob, devstack.Channel, 400, cost)
	owing := s.job(owingJob, owingJob, slow(4*time.Second, time.Second))
	owing.RefundTo, owing.OrderID = contract.RefundToSource, "order-owing"

	for _, job := range []contract.Job{late, twice, terminated, canceled, dead, owing} {
		s.submit(job, contract.VerdictCharged)
	}
	s.submit(declined, contract.VerdictDeclined)
	s.submit(twice, contract.VerdictAlready)

	unconfirmed := s.refund("order-unconfirmed", devstack.ImpatientChannel, map[string]any{
		"webhooks": map[string]any{"none": true}, "create": []any{map[string]any{"kind": simulator.FaultHTML, "applied": true}},
		"lookup": []any{map[string]any{"kind": simulator.FaultError, "times": -1}},
	})
	contradicted := s.refund("order-contradicted", devstack.Channel, life("failed", "succeeded"))
	reversed := s.refund("order-reversed", devstack.Channel, life("succeeded", "failed"))

	s.workIsInHand(terminated)
	require.NoError(s.t, s.Temporal().TerminateWorkflow(s.ctx(), terminated.WorkflowID(), "", "cleaned up by the night script"))
	s.workIsInHand(canceled)
	require.NoError(s.t, s.client.Cancel(s.ctx(), tenant, canceledJob))

	s.jobReaches(lateJob, contract.StateSucceeded)
	s.jobReaches(twiceJob, contract.StateSucceeded)
	s.jobReaches(canceledJob, contract.StateCanceled)
	s.jobReaches(deadJob, contract.StateDeadLetter)
	s.jobReaches(owingJob, contract.StateSucceeded)
	inDebt := s.job(debtJob, owingJob, nil)
	s.submit(inDebt, contract.VerdictDeclined)
	needsReview := func(refund reclaim.Refund) bool { return refund.NeedsReview }
	s.refundReaches(unconfirmed, needsReview)
	s.refundReaches(contradicted, needsReview)
	s.refundReaches(reversed, needsReview)

	return []story{
		{
			name: "late", view: views["Reclaimed today"], workflowID: late.WorkflowID(), picture: "late-success",
			first:  []string{`"late": true`, `"net": 40`, "promise 1s"},
			second: []string{"the promise of 1s passed without delivery", "late success, so the refund is reclaimed", "paid 40"},
		},
		{
			name: "declined", view: webui.OfAccount(tenant, "thin"), workflowID: declined.WorkflowID(),
			first:  []string{"account thin has 3 of the 40 that the job costs"},
			second: []string{"declined, so nothing was moved", "Top the account up (starter account topup"},
			resolve: func(*browser) {
				s.topUp("thin", 100)
				s.submit(declined, contract.VerdictCharged)
				s.jobReaches(declinedJob, contract.StateSucceeded)
			},
		},
		{
			name: "twice submitted", view: ofStudio, workflowID: twice.WorkflowID(),
			first:  []string{"await-charge", `"verdict":"already"`, `"net": 40`},
			second: []string{"charged 40 to account studio", "submitted again: it was charged before", "paid 40"},
		},
		{
			name: "dead letter", view: waiting, workflowID: dead.WorkflowID(), picture: "dead-letter",
			first:  []string{"attempt 2 of 2", `the studio is down while the file "studio-down" exists`, "dead letter"},
			second: []string{"the attempts are used up and the customer has the credits back", "the studio is down while the file"},
			resolve: func(b *browser) {
				s.mendStudio()
				b.send(signalDialog, b.filledIn("retry", map[string]any{"operator": "ann", "reason": "the studio is up again"}),
					"resolve-dialog")
				s.jobReaches(deadJob, contract.StateSucceeded)
				b.open(s.UI().Run(dead.WorkflowID()))
				b.click("[data-testid=user-metadata-tab]", "")
				b.sees("late success, so the refund is reclaimed")
			},
		},
		{
			name: "unconfirmed", view: waiting, workflowID: contract.RefundWorkflowID(tenant, unconfirmed), picture: "unconfirmed-refund",
			first:  []string{"FollowRefund", "5.00 EUR through " + devstack.ImpatientChannel},
			second: []string{"the channel has not confirmed it in time", unconfirmed, "Unknown: it was sent and not acknowledged"},
			resolve: func(b *browser) {
				b.send(updateDialog, b.filledIn("settle", map[string]any{
					"operator": "ann", "reason": "seen at the channel", "evidence": "its dashboard, today", "channelRef": "re_seen", "amount": 500,
				}), "")
				b.sees("Update successful")
				s.refundReaches(unconfirmed, func(r reclaim.Refund) bool { return r.State == contract.RefundSucceeded })
			},
		},
		{
			name: "contradicted", view: ended, workflowID: contract.RefundWorkflowID(tenant, contradicted),
			first: []string{`"state": "failed"`},
			second: []string{
				"what was reported contradicts what is final", "it is succeeded (500 eur", "An open issue disputes that",
				"starter issue resolve 'success_after_failure:" + contradicted,
			},
			resolve: func(*browser) { s.resolveIssue(contradicted, "success_after_failure") },
		},
		{
			name: "reversed", view: ended, workflowID: contract.RefundWorkflowID(tenant, reversed),
			first: []string{`"state": "reversed"`},
			second: []string{
				"the bank took it back later", "succeeded: the money went back", "starter issue resolve 'refund_reversed:" + reversed,
			},
			resolve: func(*browser) { s.resolveIssue(reversed, "refund_reversed") },
		},
		{
			name: "debt", view: webui.OfAccount(tenant, owingJob), workflowID: inDebt.WorkflowID(),
			first:  []string{"account owing owes 40, and the job costs 40: top it up by 80 or more first"},
			second: []string{"declined, so nothing was moved", "Top the account up (starter account topup"},
			resolve: func(*browser) {
				s.topUp(owingJob, 80)
				s.submit(inDebt, contract.VerdictCharged)
				s.jobReaches(debtJob, contract.StateSucceeded)
			},
		},
		{
			name: "terminated", view: ofStudio, workflowID: terminated.WorkflowID(),
			first:  []string{"Terminated", "cleaned up by the night script"},
			second: []string{"Job terminated costs account studio", "A run that was terminated goes on saying what was so before"},
			resolve: func(*browser) {
				s.submit(terminated, contract.VerdictAlready)
				s.jobReaches(terminatedJob, contract.StateSucceeded)
			},
		},
		{
			name: "canceled", view: ofStudio, workflowID: canceled.WorkflowID(),
			first:  []string{`"state": "canceled"`, `"net": 0`, "Workflow Execution Cancel Requested"},
			second: []string{"asked to be canceled", "refunded: canceled", "ended as canceled"},
		},
	}
}

// life is a channel's word on a refund: pending, then these, a second apart and each told by webhooks.
func life(states ...string) map[string]any {
	steps := []any{map[string]any{"status": "pending"}}
	for i, state := range states {
		steps = append(steps, map[string]any{"after": (time.Duration(2*i+1) * time.Second).String(), "status": state})
	}
	return map[string]any{"life": steps}
}

// resolveIssue closes the refund's issue, as its page says.
func (s *stage) resolveIssue(refund, kind string) {
	s.t.Helper()
	issues, err := s.client.Issues(s.ctx(), tenant, false)
	require.NoError(s.t, err)
	for _, issue := range issues {
		if issue.SubjectID == refund && issue.Kind == kind {
			_, err := s.client.ResolveIssue(s.ctx(), tenant, issue.IssueID, "seen-"+kind, "ann", "looked at with the channel")
			require.NoError(s.t, err)
			return
		}
	}
	s.t.Fatalf("refund %s has no issue %s: %v", refund, kind, issues)
}
