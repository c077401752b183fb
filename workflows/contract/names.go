package contract

import "time"

// Names of workflows, messages and queues. They appear in histories and in other people's programs, so none of
// them may ever change.
const (
	// TaskQueue is where Reclaim's own workflows and activities are polled, unless RECLAIM_TASK_QUEUE says otherwise.
	TaskQueue = "reclaim"
	// MeteredJobWorkflow is the workflow type of one metered job.
	MeteredJobWorkflow = "MeteredJob"
	// ChannelRefundWorkflow is the workflow type of one refund through a payment channel.
	ChannelRefundWorkflow = "ChannelRefund"
	// ChannelNoticeSignal tells a refund of what its channel sent.
	ChannelNoticeSignal = "channel-notice"
	// AwaitChargeUpdate answers the charge verdict of a submission.
	AwaitChargeUpdate = "await-charge"
	// OutcomeSignal reports from outside how an attempt of the work ended.
	OutcomeSignal = "outcome"
	// ResolveMessage is the name of both the signal and the update by which a person decides a job or a refund.
	ResolveMessage = "resolve"
	// StatusQuery answers where a job or a refund stands.
	StatusQuery = "status"
)

// UnassignedTenant holds the issues of channels' messages that belong to no one tenant's order. It can have no account.
const UnassignedTenant = "unassigned"

// Keyword search attributes of Reclaim's workflows. A namespace must have all of them. ReclaimRefund and ReclaimOrder are
// for channel refunds: registered ahead of them, since a workflow that sets an unknown one is stuck.
const (
	AttributeTenant    = "ReclaimTenant"
	AttributeAccount   = "ReclaimAccount"
	AttributeMoney     = "ReclaimMoney"
	AttributeAttention = "ReclaimAttention"
	AttributeRefund    = "ReclaimRefund"
	AttributeOrder     = "ReclaimOrder"
)

// SearchAttributes lists every search attribute that a namespace must have, all of type Keyword.
func SearchAttributes() []string {
	return []string{
		AttributeTenant, AttributeAccount, AttributeMoney, AttributeAttention, AttributeRefund, AttributeOrder,
	}
}

// Values of the ReclaimMoney search attribute.
const (
	MoneyCharged   = "charged"
	MoneyRefunded  = "refunded"
	MoneyReclaimed = "reclaimed"
	MoneyDeclined  = "declined"
)

// Values of the ReclaimAttention search attribute. It is unset unless a person is needed.
const (
	// AttentionDeadLetter: the attempts are used up and a person decides what becomes of the job.
	AttentionDeadLetter = "dead_letter"
	// AttentionRefundUnconfirmed: a channel refund could not be confirmed in the time its channel is given.
	AttentionRefundUnconfirmed = "refund_unconfirmed"
	// AttentionEvidenceConflict: what is known about an outcome disagrees, or could not be had (a probe that errs).
	AttentionEvidenceConflict = "evidence_conflict"
)

// Limits of the contract.
const (
	// MaxCost is the largest cost of a job and the largest top-up, in the account's smallest unit: 2^53−1, the
	// largest whole number that every JSON reader keeps exactly.
	MaxCost int64 = 1<<53 - 1
	// MaxInputBytes bounds a job's whole input, and MaxOutputBytes its stored output.
	MaxInputBytes  = 64 << 10
	MaxOutputBytes = 64 << 10
	// MaxDuration bounds every duration of a job: ten years of 365.25 days.
	MaxDuration = 87_660 * time.Hour
	// MaxReasonBytes bounds the free texts that are kept with money: reasons, evidence, errors.
	MaxReasonBytes = 2000
)

// JobWorkflowID returns the only workflow id under which the job may run.
func JobWorkflowID(tenant, jobID string) string { return "job/" + tenant + "/" + jobID }
