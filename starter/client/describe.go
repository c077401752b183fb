package client

import (
	"fmt"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// describeJob says in Markdown what a run is for. The Web UI shows it beside the summary, also where no worker runs.
func describeJob(job contract.Job) string {
	refund := "to the account's balance"
	if job.RefundTo == contract.RefundToSource {
		refund = "through order " + contract.Plain(job.OrderID)
	}
	by := ""
	if job.Actor != "" {
		by = ", for " + contract.Plain(job.Actor)
	}
	return fmt.Sprintf("Job %s costs account %s of %s **%d credits**%s. If it is not delivered within **%s**, they go back %s; "+
		"a later success is charged after all. The work is %s on queue %s, up to %s an attempt.\n\nA run that was terminated goes "+
		"on saying what was so before: submit the job again, or choose *More Actions*, *Start Workflow Like This One*, and a new run takes "+
		"the job up where it stands."+contract.BottomOfPage,
		contract.Plain(job.JobID), contract.Plain(job.Account), contract.Plain(job.Tenant), job.Cost, by, job.Promise, refund,
		contract.Plain(job.Work.Activity), contract.Plain(job.Work.TaskQueue), job.Work.Timeout)
}

// describeRefund says in Markdown what a refund's run is for.
func describeRefund(refund Refund) string {
	text := fmt.Sprintf("**%d %s** (in its smallest unit, such as cents) go back by order %s of account %s. The channel knows the "+
		"refund as `%s`.", refund.Amount, contract.Plain(refund.Currency), contract.Plain(refund.OrderID), contract.Plain(refund.Account), refund.RefundID)
	if refund.Credits > 0 {
		text += fmt.Sprintf(" %d credits left the account for it, and come back if no money moves.", refund.Credits)
	}
	return text + contract.BottomOfPage
}
