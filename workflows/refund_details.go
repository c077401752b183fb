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
	switch {
	case !r.known:
		r.details.tell(ctx, -row.Credits, "accepted for order %s: %s", contract.Plain(row.OrderID), told(row.Reason))
		if row.State != contract.RefundAccepted {
			r.details.tell(ctx, r.returned(row), "taken up as %s: %s", row.State,
				told(contract.OutcomeInWords(row.LastOutcome, row.LastCode)))
		}
	case row.State != known.State:
		who := ""
		if row.EndedBy == activities.SourcePerson {
			who = ", as a person decided"
		}
		r.details.tell(ctx, r.returned(row), "%s%s: %s", row.State, who,
			told(contract.OutcomeInWords(row.LastOutcome, row.LastCode)))
	case row.LastOutcome != known.LastOutcome || row.LastCode != known.LastCode:
		r.details.tell(ctx, 0, "asked the channel: %s", told(contract.OutcomeInWords(row.LastOutcome, row.LastCode)))
	}
	if r.known && row.Sends > known.Sends && known.Sends > 0 {
		r.details.tell(ctx, 0, "the same number was sent again")
	}
	if row.OpenIssues > known.OpenIssues {
		r.details.tell(ctx, 0, "an issue was opened: a report contradicts what is known, and changes nothing by itself")
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
		stands: fmt.Sprintf("**%s** · %d %s (in its smallest unit) through %s. Did the money go back? **%s** %s", status.State, status.Amount,
			contract.Plain(status.Currency), contract.Plain(r.row.Channel), contract.Plain(status.DidItHappen), contract.Plain(status.Known)),
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
	issues := fmt.Sprintf("its issues say why: `starter issue list --tenant %s`, and close each with `starter issue resolve`.", r.key.Tenant)
	switch {
	case !r.needsPerson():
		return ""
	case !r.row.State.Open():
		return "what was reported contradicts what is final. No signal changes that; " + issues
	case r.gaveUp:
		return fmt.Sprintf("the channel has not confirmed it in time. Look for the number `%s` at %s first, then decide by what you find.",
			r.key.RefundID, contract.Plain(r.row.Channel))
	case r.row.OpenIssues > 0:
		return "a report contradicts what is known; " + issues
	default:
		return fmt.Sprintf("it does not go on. Look whether the worker's configuration has channel %s for this tenant, and at the "+
			"last failure of FollowRefund under Pending Activities. It goes on by itself once that is mended.", contract.Plain(r.row.Channel))
	}
}

// decisions are what can be sent where a person is needed. What only a look at the channel tells is left empty: sent as it
// is, it is refused.
func (r *channelRefund) decisions(ctx workflow.Context) (choices []choice) {
	if !r.needsPerson() {
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
	return choices
}
