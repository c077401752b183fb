package workflows

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// channelRefund is the memory of one run. Whatever it holds is a copy of Postgres' row.
type channelRefund struct {
	key   contract.RefundKey
	calls workflow.Mutex

	row   activities.RefundRow
	known bool
	// missing is the run's error where the refund was never accepted.
	missing error
	// schedule says in words when the channel is asked.
	schedule string
	// gaveUp is set while the time for looking has passed and a person decides.
	gaveUp bool

	// following is the activity that brings the refund on, nil where none runs, and stop ends it.
	following workflow.Future
	stop      workflow.CancelFunc

	notices     workflow.ReceiveChannel
	resolutions workflow.ReceiveChannel
	stirred     bool

	attributes refundAttributes
	details    details
}

// ChannelRefund is the run of one refund through a payment channel: it sends the refund under its number, looks until the
// channel has confirmed what became of it, and waits for a person where the channel does not say in time. Its input is a
// contract.RefundKey as JSON and its result a contract.RefundResult. It fails with error type BadInput, or NotFound where
// the refund was never accepted.
func ChannelRefund(ctx workflow.Context, input converter.RawValue) (*contract.RefundResult, error) {
	// A cancel of the run is not a cancel of the refund: money that may be under way is followed to its end.
	own, _ := workflow.NewDisconnectedContext(ctx)
	r := &channelRefund{calls: workflow.NewMutex(own)}
	badInput := r.readInput(own, input.Payload().GetData())
	if err := r.listen(own, badInput); err != nil {
		return nil, err
	}
	if badInput != nil && (!r.addressed() || !r.adoptNamed(own)) {
		return nil, refusal(badInput)
	}
	if err := r.begin(own); err != nil {
		if badInput != nil {
			return nil, refusal(badInput)
		}
		return nil, err
	}
	for {
		r.collect(own)
		switch {
		case !r.row.State.Open():
			r.stopFollowing()
			switch {
			case !r.finished(own):
			case badInput != nil:
				return nil, refusal(badInput)
			default:
				r.showDetails(own)
				return r.result(), nil
			}
		case r.following == nil && !r.gaveUp:
			r.follow(own)
		default:
			r.await(own)
		}
	}
}

func (r *channelRefund) readInput(ctx workflow.Context, raw []byte) (err error) {
	if r.key, err = contract.ParseRefundKey(raw); err != nil {
		return err
	}
	wanted := contract.RefundWorkflowID(r.key.Tenant, r.key.RefundID)
	if id := workflow.GetInfo(ctx).WorkflowExecution.ID; id != wanted {
		return contract.NewError(contract.CodeBadInput, contract.RetryNewKey, fmt.Sprintf(
			"the workflow id of this refund must be %q, not %q: the id is what keeps a refund to one run", wanted, id), nil)
	}
	return nil
}

// addressed says whether a message waits for this run. A run that is refused its own input then follows the refund that its
// id names, since that is what was meant and no message may be lost, and answers with its refusal at that refund's end.
func (r *channelRefund) addressed() bool { return r.notices.Len() > 0 || r.resolutions.Len() > 0 }

// adoptNamed takes the refund that the workflow id names, and reports whether it names one.
func (r *channelRefund) adoptNamed(ctx workflow.Context) bool {
	parts := strings.Split(workflow.GetInfo(ctx).WorkflowExecution.ID, "/")
	if len(parts) != 3 || parts[0] != "refund" || !contract.ValidID(parts[1]) || !contract.ValidRefundNumber(parts[2]) {
		return false
	}
	r.key = contract.RefundKey{Tenant: parts[1], RefundID: parts[2]}
	return true
}

func (r *channelRefund) begin(ctx workflow.Context) error {
	row, err := readRefund(ctx, r.key)
	if failure, ok := errors.AsType[*temporal.ApplicationError](err); ok && failure.Type() == activities.ErrorNoRefund {
		r.missing = refusal(contract.NewError(contract.CodeNotFound, contract.RetryNever,
			"there is no refund "+r.key.RefundID+": it was never accepted", nil))
		awaitHandlers(ctx)
		return r.missing
	}
	if err != nil {
		panic(err)
	}
	r.obey(ctx, row)
	r.known = true
	return nil
}

// obey takes in the row that a call answered.
func (r *channelRefund) obey(ctx workflow.Context, row activities.RefundRow) {
	r.tellRow(ctx, row)
	r.row = row
	if row.Schedule != "" {
		r.schedule = row.Schedule
	}
	r.showAttributes(ctx)
}

// follow starts the activity that sends and looks. It is retried on the channel's schedule and costs the history nothing
// while the channel says nothing new.
func (r *channelRefund) follow(ctx workflow.Context) {
	followCtx, stop := workflow.WithCancel(ctx)
	r.stop = stop
	r.following = workflow.ExecuteActivity(followCall(followCtx, r.row), refundActivities.FollowRefund,
		activities.FollowRequest{RefundKey: r.key, Known: r.row.State, NeedsReview: r.row.NeedsReview})
}

// stopFollowing gives the running activity up. What an attempt in flight finds out is applied all the same.
func (r *channelRefund) stopFollowing() {
	if r.following != nil {
		r.stop()
		r.following = nil
	}
}

// collect takes in everything that has happened since the last look.
func (r *channelRefund) collect(ctx workflow.Context) {
	r.stirred = false
	if r.following != nil && r.following.IsReady() {
		var answer activities.FollowAnswer
		err := r.following.Get(ctx, &answer)
		r.following = nil
		if err == nil {
			r.gaveUp = answer.GaveUp
			r.obey(ctx, answer.Row)
		} else if !temporal.IsCanceledError(err) {
			// It never gives up by itself: only a fault of the program or the schema ends it. A person can let it go on.
			workflow.GetLogger(ctx).Error("Following the refund ended", "error", err)
			r.gaveUp = true
			r.reread(ctx)
			r.showAttributes(ctx)
		}
	}
	r.collectMessages(ctx)
}

func (r *channelRefund) reread(ctx workflow.Context) {
	if err := r.calls.Lock(ctx); err != nil {
		panic(err)
	}
	defer r.calls.Unlock()
	if row, err := readRefund(ctx, r.key); err == nil {
		r.obey(ctx, row)
	}
}

// needsPerson says whether somebody must look at the refund: the row says so, or the run waits for a decision.
func (r *channelRefund) needsPerson() bool {
	return r.row.NeedsReview || r.gaveUp && r.row.State.Open()
}

func (r *channelRefund) await(ctx workflow.Context) {
	r.showDetails(ctx)
	err := workflow.Await(ctx, func() bool {
		return r.stirred || r.notices.Len() > 0 || r.resolutions.Len() > 0 ||
			r.following != nil && r.following.IsReady()
	})
	if err != nil {
		panic(err)
	}
}

// finished waits for handlers that are still answering and reports whether nothing arrived meanwhile.
func (r *channelRefund) finished(ctx workflow.Context) bool {
	awaitHandlers(ctx)
	return !r.stirred && r.notices.Len() == 0 && r.resolutions.Len() == 0 && !r.row.State.Open()
}

func awaitHandlers(ctx workflow.Context) {
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		panic(err)
	}
}

func (r *channelRefund) result() *contract.RefundResult {
	return &contract.RefundResult{
		RefundID: r.key.RefundID, State: r.row.State, ChannelRef: r.row.ChannelRef, Amount: r.row.Amount,
		Currency: r.row.Currency, Credits: r.row.Credits, Reason: r.row.Reason,
	}
}
