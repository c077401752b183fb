package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (j *meteredJob) tell(ctx workflow.Context, ledger int64, format string, args ...any) {
	j.details.tell(ctx, ledger, format, args...)
}

// tellBeginning says what the run began with: a charge of its own, an earlier run's, or none.
func (j *meteredJob) tellBeginning(ctx workflow.Context) {
	switch {
	case !j.hasRow():
		j.tell(ctx, 0, "declined, so nothing was moved: %s", told(declinedInWords(j.job, *j.charge)))
	case j.charge.Verdict == activities.Applied:
		j.tell(ctx, -j.row.Cost, "charged %d to account %s", j.row.Cost, contract.Plain(j.job.Account))
	default:
		moved := "charged"
		if j.row.Refunded {
			moved += ", refunded"
		}
		if j.row.Reclaimed {
			moved += ", reclaimed"
		}
		j.tell(ctx, -j.row.Money().Net(), "taken up from an earlier run: charged at %s; %s (%s) after %d attempts",
			j.row.CreatedAt.UTC().Format("2006-01-02 15:04:05"), j.row.State, moved, j.row.Attempts)
	}
	if j.charge.Verdict == activities.Refused && j.charge.Why == activities.WhyConflict {
		j.tell(ctx, 0, "this run was started with other parameters, which are refused; it goes on with the job as it was charged")
	}
}

// tellRow says what the row says anew: whoever moved the money, the page shows it.
func (j *meteredJob) tellRow(ctx workflow.Context, row activities.JobRow, moved activities.SourceRefund) {
	known, reason := j.row, told(row.Reason)
	if row.CancelRequested && !known.CancelRequested {
		j.tell(ctx, 0, "asked to be canceled")
	}
	if row.Refunded && !known.Refunded {
		j.tell(ctx, row.Cost, "refunded: %s", reason)
	}
	if moved.RefundID != "" && moved.RefundID != j.moved.RefundID {
		j.tell(ctx, 0, "the credits leave by order %s, as refund `%s`", contract.Plain(j.job.OrderID), moved.RefundID)
	}
	if moved.Refusal != "" && moved.Refusal != j.moved.Refusal {
		j.tell(ctx, 0, "the credits stay on the account: %s", told(moved.Refusal))
	}
	switch {
	case row.State == known.State:
	case row.State == contract.StateSucceeded && row.Reclaimed:
		j.tell(ctx, -row.Cost, "late success, so the refund is reclaimed: %s", reason)
		switch {
		case moved.Withdrawn:
			j.tell(ctx, 0, "refund `%s` was withdrawn before it was sent: its credits are back and pay for that", moved.RefundID)
		case moved.RefundID != "":
			j.tell(ctx, 0, "refund `%s` had been sent: that is taken from what the account has, or owed", moved.RefundID)
		}
	case row.State == contract.StateDeadLetter:
		j.tell(ctx, 0, "dead letter: %s", reason)
	case row.State.Open(), row.State == contract.StateSucceeded:
		j.tell(ctx, 0, "%s", reason)
	default:
		j.tell(ctx, 0, "ended as %s: %s", row.State, reason)
	}
}

// showDetails shows the run as it now stands.
func (j *meteredJob) showDetails(ctx workflow.Context) {
	shows := "timeline"
	if !j.hasRow() {
		shows = "status"
	}
	j.details.show(ctx, page{
		stands: j.standsInWords(), waits: contract.Plain(j.waitsFor()), needs: j.needsInWords(), send: j.decisions(ctx),
		command: fmt.Sprintf("starter job %s %s --tenant %s", shows, j.key.JobID, j.key.Tenant),
	})
}

func (j *meteredJob) standsInWords() string {
	switch j.state() {
	case contract.StateCharging:
		return "**charging** · nothing was moved yet"
	case contract.StateDeclined:
		return fmt.Sprintf("**declined** · nothing was moved. Top the account up (`starter account topup %s --tenant %s --amount N "+
			"--key KEY`) and submit the job again, and it is charged. `starter account statement %s --tenant %s` says where its credits went.",
			j.job.Account, j.job.Tenant, j.job.Account, j.job.Tenant)
	}
	money := j.row.Money()
	stands := fmt.Sprintf("**%s** · charged %d", j.state(), money.Charged)
	if j.row.Refunded {
		stands += fmt.Sprintf(", refunded %d", money.Refunded)
	}
	if j.row.Reclaimed {
		stands += fmt.Sprintf(", reclaimed %d", money.Reclaimed)
	}
	return stands + fmt.Sprintf(" · the customer has paid **%d**", money.Net())
}

// needsInWords says why a person must look at the job, empty where nobody must.
func (j *meteredJob) needsInWords() string {
	switch {
	case j.state() == contract.StateDeadLetter:
		return "the attempts are used up and the customer has the credits back. Nothing more happens by itself."
	case j.attention == contract.AttentionEvidenceConflict && j.state().Open():
		return "the probe cannot tell what became of the last attempt. The job goes on by itself; decide only what you know for sure."
	case j.moved.Refusal != "" && j.state() != contract.StateSucceeded:
		return "the refund could not leave through its order, so the credits are on the account. " +
			"Refund by hand if the customer wants the money; there is no signal to send."
	default:
		return ""
	}
}

// decisions are what can be sent where a person is needed. What only the person knows is left empty: sent as it is, it is
// refused.
func (j *meteredJob) decisions(ctx workflow.Context) (choices []choice) {
	if j.state() != contract.StateDeadLetter && (j.attention == "" || !j.state().Open()) {
		return nil
	}
	for _, action := range j.state().Actions() {
		option := choice{fields: []string{`"id": "` + decisionID(ctx) + `"`, `"action": "` + string(action) + `"`}}
		switch action {
		case contract.ActionRetry:
			option.does = "**retry**: the cause is gone. The work runs again, and a success is charged."
			option.fields = append(option.fields, `"attempts": 1`)
		case contract.ActionDeliver:
			option.does = "**deliver**: the customer has the result, and the evidence says where. The job is charged once."
			option.fields = append(option.fields, `"evidence": ""`)
		case contract.ActionWriteOff:
			option.does = "**write_off**: it is given up. The customer keeps the credits, and the job ends."
		}
		option.fields = append(option.fields, `"operator": ""`, `"reason": ""`)
		choices = append(choices, option)
	}
	return choices
}

// inWords says how an attempt ended.
func (e ending) inWords() string {
	switch e {
	case endingFailed:
		return "failed"
	case endingFatal:
		return "failed for good"
	default:
		return "ended unknown"
	}
}
