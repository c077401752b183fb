package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// tellRow says what the row says anew.
func (r *channelRefund) tellRow(ctx workflow.Context, row activities.RefundRow) {
	known := r.row
	if r.known && row.Sends > known.Sends && known.Sends > 0 {
		r.details.tell(ctx, 0, "the same number was sent again")
	}
	switch {
	case !r.known:
		r.tellPast(ctx, row)
	case row.State != known.State:
		r.details.tell(ctx, r.returned(row), "%s%s: %s", row.State, r.byWhom(row), lastInWords(row))
	case row.LastOutcome != known.LastOutcome || row.LastCode != known.LastCode:
		r.details.tell(ctx, 0, "asked the channel: %s", told(contract.OutcomeInWords(row.LastOutcome, row.LastCode)))
	}
	if row.OpenIssues > known.OpenIssues {
		r.details.tell(ctx, 0, "an issue was opened: %s", told(row.IssueEvidence))
	}
}

// tellPast says what had become of the refund before this run read its row.
func (r *channelRefund) tellPast(ctx workflow.Context, row activities.RefundRow) {
	at := func(instant time.Time) time.Time {
		if instant.IsZero() {
			// A row that another release's worker read has no such times.
			return workflow.Now(ctx)
		}
		return instant
	}
	last := lastInWords(row)
	r.details.tellAt(at(row.Accepted), -row.Credits, "accepted for order %s: %s", contract.Plain(row.OrderID), told(row.Reason))
	if row.Sends > 0 {
		r.details.tellAt(at(row.FirstSent), 0, "sent to the channel")
	}
	if row.State == contract.RefundReversed && !row.Succeeded.IsZero() {
		r.details.tellAt(row.Succeeded, 0, "%s: the money went back", contract.RefundSucceeded)
	}
	switch row.State {
	case contract.RefundAccepted, contract.RefundUnknown:
	case contract.RefundSucceeded:
		r.details.tellAt(at(row.Succeeded), 0, "%s%s: %s", row.State, r.byWhom(row), last)
	case contract.RefundFailed, contract.RefundCanceled, contract.RefundReversed:
		r.details.tellAt(at(row.Returned), r.returned(row), "%s%s: %s", row.State, r.byWhom(row), last)
	default:
		r.details.tellAt(at(row.Updated), 0, "%s: %s", row.State, last)
	}
}

// byWhom says so where a person's word ended the refund.
func (r *channelRefund) byWhom(row activities.RefundRow) string {
	if row.EndedBy == activities.SourcePerson {
		return ", as a person decided"
	}
	return ""
}

// tellDecision says what a person decided and what came of it.
func (r *channelRefund) tellDecision(ctx workflow.Context, request activities.ResolveRefundRequest, answer activities.ResolveRefundAnswer) {
	decision := request.Resolution
	switch {
	case answer.Verdict == activities.Already:
	case answer.Verdict == activities.Refused || answer.Outcome == contract.ResolutionRefused:
		r.details.tellRefusal(ctx, decision.Operator, answer.Refusal)
	default:
		r.details.tell(ctx, 0, "%s decided %s: %s", told(decision.Operator), decision.Action, told(decision.Reason))
	}
}

// returned is what the row's state gave back to the account.
func (r *channelRefund) returned(row activities.RefundRow) int64 {
	switch row.State {
	case contract.RefundFailed, contract.RefundCanceled, contract.RefundReversed:
		return row.Credits
	default:
		return 0
	}
}

// showDetails shows the run as it now stands.
func (r *channelRefund) showDetails(ctx workflow.Context) {
	status := r.status()
	r.details.show(ctx, page{
		stands: fmt.Sprintf("**%s** · %s through %s. Did the money go back? **%s** %s", status.State, contract.Plain(r.row.Money()),
			contract.Plain(r.row.Channel), contract.Plain(status.DidItHappen), contract.Plain(status.Known)),
		waits: contract.Plain(status.WaitsFor) + r.lookInWords(status) + " Then: " + contract.Plain(status.Then) + ".",
		needs: r.needsInWords(), send: r.decisions(ctx),
		command: fmt.Sprintf("starter refund status %s --tenant %s", r.key.RefundID, r.key.Tenant),
	})
}

func (r *channelRefund) lookInWords(status contract.RefundStatus) string {
	if status.NextLook.IsZero() {
		return "."
	}
	return fmt.Sprintf(", next at %s, until %s.", status.NextLook.UTC().Format(time.DateTime), status.LookUntil.UTC().Format(time.DateTime))
}

// needsInWords says why a person must look at the refund, empty where nobody must.
func (r *channelRefund) needsInWords() string {
	issues := fmt.Sprintf("`starter issue list --tenant %s` lists its issues.", r.key.Tenant)
	if r.row.IssueID != "" {
		issues = fmt.Sprintf("%s. Look at %s what is true%s, and close the issue (others: "+
			"`starter issue list`) with\n\n```sh\nstarter issue resolve '%s' --tenant %s \\\n  --id resolve-1 --operator WHO --reason WHY\n```\n\n"+
			"A run that has ended shows what was so at its end: `starter refund status` says whether the issue was closed since.",
			told(r.row.IssueEvidence), contract.Plain(r.row.Channel), r.correction(), r.row.IssueID, r.key.Tenant)
	}
	switch {
	case !r.needsPerson():
		return ""
	case !r.row.State.Open():
		if r.row.State == contract.RefundReversed {
			return "the bank took the money back after the refund had succeeded, and the credits are back on the account. No signal " +
				"changes that: " + issues
		}
		return "what was reported contradicts what is final. No signal changes that: " + issues
	case r.gaveUp:
		return fmt.Sprintf("the channel has not confirmed it in time. Look for the number `%s` at %s first, then decide by what you find.",
			r.key.RefundID, contract.Plain(r.row.Channel))
	case r.row.OpenIssues > 0:
		return "a report contradicts what is known: " + issues
	default:
		return fmt.Sprintf("it does not go on. Look whether the worker's configuration has channel %s for this tenant, and at the "+
			"last failure of FollowRefund under Pending Activities. It goes on by itself once that is mended.", contract.Plain(r.row.Channel))
	}
}

// correction says how a balance is corrected where money left though the credits came back.
func (r *channelRefund) correction() string {
	if r.row.State != contract.RefundFailed || r.row.Credits == 0 {
		return ""
	}
	return fmt.Sprintf("; if the money did leave, take the %d credits again (`starter account adjust %s --tenant %s --amount -%d`)",
		r.row.Credits, r.row.Account, r.key.Tenant, r.row.Credits)
}

// lastInWords is what was last observed, as it ended the refund.
func lastInWords(row activities.RefundRow) string {
	if row.State == contract.RefundReversed {
		return "the bank took the money back (" + told(row.LastCode) + ")"
	}
	return told(contract.OutcomeInWords(row.LastOutcome, row.LastCode))
}

// decisions are what can be sent where a person is needed. What only a look at the channel tells is left empty: sent as it
// is, it is refused.
func (r *channelRefund) decisions(ctx workflow.Context) (choices []choice) {
	if !r.needsPerson() || !r.row.State.Open() {
		return nil
	}
	for _, action := range r.row.State.Actions() {
		option := choice{fields: []string{`"id": "` + decisionID(ctx) + `"`, `"action": "` + string(action) + `"`}}
		switch action {
		case contract.ActionSettle:
			option.does = "**settle**: you found that it succeeded."
			option.fields = append(option.fields, `"channelRef": ""`, `"amount": 0`, `"evidence": ""`)
		case contract.ActionRelease:
			option.does = "**release**: you found that it failed, or is not there and never will be. The credits come back."
			option.fields = append(option.fields, `"amount": 0`, `"evidence": ""`)
		case contract.ActionResend:
			option.does = "**resend**: it is not there, and the channel still honours its number. The same number is sent again."
		case contract.ActionExtend:
			option.does = "**extend**: it is still under way. It is looked for during another period."
		case contract.ActionCancel:
			option.does = "**cancel**: it was not sent and is withdrawn. The credits come back."
		}
		option.fields = append(option.fields, `"operator": ""`, `"approver": ""`, `"reason": ""`)
		choices = append(choices, option)
	}
	choices[0].does += " An `amount` is in the smallest unit, and an `approver` is needed only where the amount asks for a second person."
	return choices
}
