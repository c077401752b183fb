package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// startPatience is how long RequestRefund waits for Temporal to start the refund's run.
const startPatience = 3 * time.Second

// RequestedRefund is the answer to RequestRefund: the refund that the key stands for, as it stands now. Created is false
// where it had been accepted before.
type RequestedRefund struct {
	RefundID string               `json:"refundId"`
	State    contract.RefundState `json:"state"`
	// Amount is in the smallest unit of Currency; Credits leave the account with it.
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Credits  int64  `json:"credits"`
	Created  bool   `json:"created"`
}

// RequestRefund accepts a refund through the order's channel: in one transaction it claims the key, reserves the order's
// money and credits, and takes the credits off the account. Its run is started at once. Where Temporal is away, that is
// no error: what was accepted stands with a row in the outbox, from which a worker starts the run as soon as it can, and
// the call then waits at most a few seconds.
//
// The same request under the same key answers with the same refund for ever; where that is open and lost its run, it
// gets a new one. Requests are the same if order, amount, currency, credits and reason are. A currency that is left out
// is the order's, in either case of letters. Credits that are left out follow from what is left of the order at the time,
// and so are another request than any that names them. Reasons count as they are written, byte by byte.
//
// Errors: BadInput (a rule is broken, or the currency is not the order's), Conflict (the key stands for another refund),
// Expired (the key was forgotten; the error names its refund), NotFound (no such order), CapacityExceeded (more than is
// left of the order), InsufficientCredits (the account cannot give the credits), Unavailable (repeat the same request).
func (c *Client) RequestRefund(ctx context.Context, request contract.RefundRequest) (RequestedRefund, error) {
	if err := request.Check(); err != nil {
		return RequestedRefund{}, err
	}
	request.Currency = strings.ToLower(request.Currency)
	tried := "refund order " + request.OrderID
	accepted, err := persist(ctx, tried, func(ctx context.Context) (acceptedRefund, error) {
		return c.acceptRefund(ctx, tried, request)
	})
	if err != nil {
		return RequestedRefund{}, err
	}
	if err := refundRefusal(tried, request, accepted); err != nil {
		return RequestedRefund{}, err
	}
	answer := RequestedRefund{
		RefundID: accepted.RefundID, State: contract.RefundState(accepted.State), Amount: accepted.Amount,
		Currency: accepted.Currency, Credits: accepted.Credits, Created: accepted.Answer == "applied",
	}
	if answer.State.Open() {
		starting, cancel := context.WithTimeout(ctx, startPatience)
		defer cancel()
		// That it does not succeed is no matter: the outbox starts it too.
		_ = c.startRefund(starting, Refund{
			Tenant: request.Tenant, RefundID: answer.RefundID, OrderID: request.OrderID, Account: accepted.order.AccountID,
			RefundStatus: contract.RefundStatus{Amount: answer.Amount, Currency: answer.Currency, Credits: answer.Credits},
		})
	}
	return answer, nil
}

// acceptedRefund is what the statement answered, and the order, zero where there is none.
type acceptedRefund struct {
	db.AcceptRefundRow
	order db.ReclaimOrder
}

func (c *Client) acceptRefund(ctx context.Context, tried string, request contract.RefundRequest) (acceptedRefund, error) {
	var accepted acceptedRefund
	err := pgx.BeginFunc(ctx, c.store.Pool, func(tx pgx.Tx) (err error) {
		q := c.store.WithTx(tx)
		key := db.LockOrderParams{TenantID: request.Tenant, OrderID: request.OrderID}
		accepted.order, err = q.LockOrder(ctx, key)
		missing := errors.Is(err, pgx.ErrNoRows)
		if err != nil && !missing {
			return err
		}
		if request.Currency == "" {
			request.Currency = accepted.order.Currency
		}
		// The wait for the lock is over: the statement has all the time that it is given.
		notAfter := c.store.NotAfter()
		if missing {
			// The key may still have an answer. An order that appears only now is not locked, though: it is left alone, and
			// the next attempt finds it.
			notAfter = time.Unix(0, 0)
		}
		accepted.AcceptRefundRow, err = q.AcceptRefund(ctx, db.AcceptRefundParams{
			TenantID: request.Tenant, RefundID: contract.RefundNumber(request.Tenant, request.Actor, request.Key),
			OrderID: request.OrderID, Actor: request.Actor, Key: request.Key, Fingerprint: request.Fingerprint(),
			Amount: &request.Amount, Credits: request.Credits, Currency: request.Currency, Reason: request.Reason,
			RetentionUs: contract.RefundKeyRetention.Microseconds(), NotAfter: notAfter,
		})
		return err
	})
	if err == nil && accepted.Answer == tooLate {
		err = c.tooLate(ctx, tried)
	}
	return accepted, err
}

func refundRefusal(tried string, request contract.RefundRequest, accepted acceptedRefund) error {
	order := accepted.order
	tooMuch := func(field string, asked, left, total int64, unit string) error {
		return refused(contract.CodeCapacityExceeded, contract.RetryNewKey, tried, field, fmt.Sprintf(
			"%d is more than the %d %s that are left of %d: the rest went back or is on its way", asked, left, unit, total))
	}
	noCredits := func(why string) error {
		return refused(contract.CodeInsufficientCredits, contract.RetrySameKey, tried, "", fmt.Sprintf(
			"%s: %d credits would leave account %s with the money. Top it up, or name 0 credits to let the customer keep them",
			why, accepted.Credits, order.AccountID))
	}
	switch accepted.Answer {
	case "applied", "already":
		return nil
	case "conflict":
		return refused(contract.CodeConflict, contract.RetryNewKey, tried, "", fmt.Sprintf("the key %q stands for refund %s, "+
			"whose order, amount, currency, credits or reason differ: repeat it with the first parameters; a new key makes "+
			"another refund", request.Key, accepted.RefundID))
	case "expired":
		return expiredKey(tried, request.Key, accepted.RefundID)
	case "unknown_order":
		return noOrder(request.Tenant, request.OrderID)
	case "other_currency":
		return refused(contract.CodeBadInput, contract.RetryNewKey, tried, "currency",
			fmt.Sprintf("is %s, but the order was paid in %s", request.Currency, accepted.Currency))
	case "capacity":
		return tooMuch("amount", request.Amount, accepted.LeftMoney, order.Paid, order.Currency)
	case "credits_capacity":
		return tooMuch("credits", accepted.Credits, accepted.LeftCredits, order.Credits, "credits")
	case "nothing_left":
		return refused(contract.CodeBadInput, contract.RetryNewKey, tried, "amount", "stands for no money: nothing is left")
	case "debt":
		return noCredits(fmt.Sprintf("the account is in debt (balance %d)", accepted.Balance))
	case "insufficient_credits":
		return noCredits(fmt.Sprintf("the account holds %d", accepted.Balance))
	default:
		return unknownAnswer(tried, accepted.Answer)
	}
}

func expiredKey(tried, key, refundID string) error {
	return refused(contract.CodeExpired, contract.RetryNever, tried, "", fmt.Sprintf(
		"the key %q was forgotten %d days after it was used, and its refund %s is kept: look at that one", key,
		int(contract.RefundKeyRetention.Hours()/24), refundID))
}

// RefundStartOptions are how every run of a refund is started, for callers who start the workflow themselves with a
// contract.RefundKey as its input: an open run is joined, and a closed id may run again, since the row decides what that
// run does. Of the refund, Tenant, RefundID, OrderID, Account, Amount, Currency and Credits are needed.
func (c *Client) RefundStartOptions(refund Refund) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       contract.RefundWorkflowID(refund.Tenant, refund.RefundID),
		TaskQueue:                c.taskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(contract.AttributeTenant).ValueSet(refund.Tenant),
			temporal.NewSearchAttributeKeyKeyword(contract.AttributeAccount).ValueSet(refund.Account),
			temporal.NewSearchAttributeKeyKeyword(contract.AttributeOrder).ValueSet(refund.OrderID),
			temporal.NewSearchAttributeKeyKeyword(contract.AttributeRefund).ValueSet(refund.RefundID),
		),
		StaticSummary: fmt.Sprintf("%d %s (smallest unit) · %s/%s", refund.Amount, refund.Currency, refund.Tenant, refund.Account),
		StaticDetails: describeRefund(refund),
	}
}

// StartRefund gives an accepted refund its run; one that is open is left as it is. Errors: BadInput, NotFound, Unavailable.
func (c *Client) StartRefund(ctx context.Context, tenant, refundID string) error {
	row, err := c.getRefund(ctx, tenant, refundID)
	if err != nil {
		return err
	}
	return translate("start refund "+refundID, c.startRefund(ctx, refundOf(row)))
}

func (c *Client) startRefund(ctx context.Context, refund Refund) error {
	_, err := c.temporal.ExecuteWorkflow(ctx, c.RefundStartOptions(refund), contract.ChannelRefundWorkflow,
		contract.RefundKey{Tenant: refund.Tenant, RefundID: refund.RefundID})
	return err
}

// FindRefund reads the refund that an operation key stands for. Errors: BadInput, NotFound (no refund was accepted under
// this key of this actor and tenant), Expired (the key was forgotten; the error names its refund), Unavailable.
func (c *Client) FindRefund(ctx context.Context, tenant, actor, key string) (Refund, error) {
	if err := together(contract.CheckID("tenant", tenant), contract.CheckText("actor", actor, 200),
		contract.CheckText("key", key, 200)); err != nil {
		return Refund{}, err
	}
	tried := "find the refund of key " + key
	operation, err := c.store.GetRefundOperation(ctx, db.GetRefundOperationParams{TenantID: tenant, Actor: actor, Key: key})
	if err == nil {
		return c.Refund(ctx, tenant, operation.SubjectID)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return Refund{}, unavailable(tried, err)
	}
	refundID := contract.RefundNumber(tenant, actor, key)
	_, err = c.getRefund(ctx, tenant, refundID)
	switch {
	case err == nil:
		return Refund{}, expiredKey(tried, key, refundID)
	case contract.CodeOf(err) == contract.CodeNotFound:
		return Refund{}, contract.NewError(contract.CodeNotFound, contract.RetryNever,
			fmt.Sprintf("%s of tenant %s has asked for no refund under the key %q", actor, tenant, key), nil)
	default:
		return Refund{}, err
	}
}

// getRefund returns the refund's row and fails with NotFound where there is none.
func (c *Client) getRefund(ctx context.Context, tenant, refundID string) (db.GetRefundRow, error) {
	if err := checkRefundID(tenant, refundID); err != nil {
		return db.GetRefundRow{}, err
	}
	row, err := c.store.GetRefund(ctx, db.GetRefundParams{TenantID: tenant, RefundID: refundID})
	if errors.Is(err, pgx.ErrNoRows) {
		return row, noRefund(tenant, refundID)
	}
	if err != nil {
		return row, unavailable("read refund "+refundID, err)
	}
	return row, nil
}

func checkRefundID(tenant, refundID string) error {
	err := contract.CheckID("tenant", tenant)
	if err == nil && !contract.ValidRefundNumber(refundID) {
		err = refused(contract.CodeBadInput, contract.RetryNewKey, "read the refund", "refundId",
			fmt.Sprintf("must be 1 to 64 characters of 0-9 A-Z a-z _ -, not %q", contract.Clip(refundID, 70)))
	}
	return err
}

func noRefund(tenant, refundID string) error {
	return contract.NewError(contract.CodeNotFound, contract.RetryNever,
		fmt.Sprintf("tenant %s has no refund %s", tenant, refundID), nil)
}

// ResolveRefund takes a person's decision to the refund and answers how it went. The same id with the same content is
// answered as the first time. An open refund without a run gets one. Errors: BadInput (an id that cannot be one),
// BadResolution (invalid, not possible in the refund's state, against what is known of it, or the id stands for another
// decision), NotFound, Unavailable.
func (c *Client) ResolveRefund(
	ctx context.Context, tenant, refundID string, decision contract.RefundResolution,
) (contract.RefundResolutionAnswer, error) {
	row, answer, err := c.foreseeRefundResolution(ctx, tenant, refundID, decision)
	if err != nil || answer.ID != "" {
		return answer, err
	}
	start := func() client.WithStartWorkflowOperation {
		return c.temporal.NewWithStartWorkflowOperation(c.RefundStartOptions(refundOf(row)), contract.ChannelRefundWorkflow,
			contract.RefundKey{Tenant: tenant, RefundID: refundID})
	}
	return sendDecision(ctx, c, "resolve refund "+refundID, contract.RefundWorkflowID(tenant, refundID), start, decision,
		func() (contract.RefundResolutionAnswer, bool, error) {
			return c.pastRefundResolution(ctx, row, decision)
		})
}

// foreseeRefundResolution answers a decision as far as that is known without its refund's run: what it was answered before, or
// that it is not possible. An answer without an id says that it is.
func (c *Client) foreseeRefundResolution(
	ctx context.Context, tenant, refundID string, decision contract.RefundResolution,
) (row db.GetRefundRow, answer contract.RefundResolutionAnswer, err error) {
	if err := decision.Check(); err != nil {
		return row, answer, err
	}
	if row, err = c.getRefund(ctx, tenant, refundID); err != nil {
		return row, answer, err
	}
	if past, known, err := c.pastRefundResolution(ctx, row, decision); known || err != nil {
		return row, past, err
	}
	if refusal := contract.RefundState(row.ReclaimRefund.State).Refuses(decision.Action); refusal != "" {
		return row, answer, contract.NewError(contract.CodeBadResolution, contract.RetryNever, refusal, nil)
	}
	return row, answer, nil
}

// pastRefundResolution answers a decision whose id was used before.
func (c *Client) pastRefundResolution(
	ctx context.Context, row db.GetRefundRow, decision contract.RefundResolution,
) (contract.RefundResolutionAnswer, bool, error) {
	refund := row.ReclaimRefund
	past, err := c.store.GetResolution(ctx, db.GetResolutionParams{
		TenantID: refund.TenantID, SubjectKind: "refund", SubjectID: refund.RefundID, ResolutionID: decision.ID,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return contract.RefundResolutionAnswer{}, false, nil
	}
	if err != nil {
		return contract.RefundResolutionAnswer{}, false, unavailable("read the resolutions of refund "+refund.RefundID, err)
	}
	particulars, err := decision.Particulars()
	if err != nil {
		return contract.RefundResolutionAnswer{}, false, fmt.Errorf("write the decision %s: %w", decision.ID, err)
	}
	same := past.Action == string(decision.Action) && past.Operator == decision.Operator &&
		past.Approver == decision.Approver && past.Reason == decision.Reason && past.Evidence == decision.Evidence &&
		past.Particulars == particulars
	return contract.RefundResolutionAnswer{
		ID: past.ResolutionID, Outcome: past.Outcome, State: contract.RefundState(past.State),
	}, true, pastRefusal(past, same)
}

// pastRefusal is the error with which a decision is answered whose id was used before, nil where it was taken then.
func pastRefusal(past db.ReclaimResolution, same bool) error {
	switch {
	case !same:
		return contract.NewError(contract.CodeBadResolution, contract.RetryNewKey,
			fmt.Sprintf("the resolution id %q stands for another decision: use a new id", past.ResolutionID), nil)
	case past.Outcome == contract.ResolutionRefused:
		return contract.NewError(contract.CodeBadResolution, contract.RetryNewKey, past.Refusal, nil)
	default:
		return nil
	}
}

// OpenRefund is a refund that is not final.
type OpenRefund struct {
	Tenant   string               `json:"tenant"`
	RefundID string               `json:"refundId"`
	OrderID  string               `json:"orderId"`
	State    contract.RefundState `json:"state"`
	// Since is when the row last changed.
	Since time.Time `json:"since"`
}

// OpenRefundsWithoutRun calls found for each open refund that has no open run: its run was terminated or reset away, or
// has not begun yet. Asking for the same refund again, or a decision about it, starts one. An empty tenant looks at all
// of them. An error of found ends it and is returned as it is. Errors: Unavailable.
func (c *Client) OpenRefundsWithoutRun(ctx context.Context, tenant string, found func(OpenRefund) error) error {
	page := db.ListOpenRefundsParams{OnlyTenant: tenant, PageSize: 500}
	for {
		rows, err := c.store.ListOpenRefunds(ctx, page)
		if err != nil {
			return unavailable("list the open refunds", err)
		}
		for _, row := range rows {
			page.AfterTenant, page.AfterRefund = row.TenantID, row.RefundID
			running, err := c.HasRun(ctx, contract.RefundWorkflowID(row.TenantID, row.RefundID))
			if err != nil {
				return err
			}
			if running {
				continue
			}
			// The run may have ended the refund between the page and the look.
			now, err := c.getRefund(ctx, row.TenantID, row.RefundID)
			if err != nil {
				return err
			}
			state := contract.RefundState(now.ReclaimRefund.State)
			if !state.Open() {
				continue
			}
			if err := found(OpenRefund{
				row.TenantID, row.RefundID, row.OrderID, state, now.ReclaimRefund.UpdatedAt.UTC(),
			}); err != nil {
				return err
			}
		}
		if len(rows) < int(page.PageSize) {
			return nil
		}
	}
}
