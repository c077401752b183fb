package activities

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// SourceOrder is the order through whose channel a job's refund leaves. The zero value is none: credits stay on the
// account.
type SourceOrder struct {
	OrderID string `json:"orderId,omitempty"`
	Account string `json:"account,omitempty"`
}

// SourceRefund is what became of a job's refund to its source. Refusal says in words why the credits stay on the account.
type SourceRefund struct {
	RefundID string `json:"refundId,omitempty"`
	Refusal  string `json:"refusal,omitempty"`
	// Withdrawn is true where the refund was canceled before it was sent.
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// withSource runs a guard of a job that may move its refund to the source, in one transaction with what follows from it: a
// job that is refunded then has its channel refund accepted, and one that is delivered has it withdrawn if it was not
// sent. Locks are taken in the order job, refund, order, account.
func (j *Jobs) withSource(
	ctx context.Context, key JobKey, source SourceOrder, guard func(*db.Queries) (jobGuardRow, error),
) (row jobGuardRow, moved SourceRefund, err error) {
	if source.OrderID == "" {
		row, err = guard(j.store.Queries)
		return row, SourceRefund{}, err
	}
	refundID := contract.JobRefundNumber(key.Tenant, key.JobID)
	err = pgx.BeginFunc(ctx, j.store.Pool, func(tx pgx.Tx) error {
		queries := j.store.WithTx(tx)
		if _, err := queries.LockJob(ctx, db.LockJobParams{TenantID: key.Tenant, JobID: key.JobID}); err != nil {
			return err
		}
		_, err := queries.LockRefund(ctx, db.LockRefundParams{TenantID: key.Tenant, RefundID: refundID})
		accepted := err == nil
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		_, err = queries.LockOrder(ctx, db.LockOrderParams{TenantID: key.Tenant, OrderID: source.OrderID})
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if row, err = guard(queries); err != nil {
			return err
		}
		if accepted {
			moved.RefundID = refundID
		}
		switch {
		case row.Answer == "too_late":
			return nil
		case row.State == string(contract.StateSucceeded):
			if accepted {
				var withdrawn db.CancelRefundRow
				withdrawn, err = queries.CancelRefund(ctx, db.CancelRefundParams{
					TenantID: key.Tenant, RefundID: refundID, Actor: "job " + key.JobID,
					Reason: "withdrawn before it was sent: the job was delivered after all",
				})
				moved.Withdrawn = withdrawn.Answer == "applied" || withdrawn.Answer == "already"
			}
			return err
		case row.Answer != "applied" && row.Answer != "already":
			// A decision that is refused pays nothing out.
			return nil
		case row.IsRefunded && row.Cost > 0 && !accepted:
			moved, err = j.acceptSource(ctx, queries, key, source, row)
			return err
		default:
			return nil
		}
	})
	return row, moved, err
}

// acceptSource accepts the channel refund of a job that was refunded to its balance, in the transaction that refunded it.
// A refusal leaves the credits on the account and is told in the job's story.
func (j *Jobs) acceptSource(
	ctx context.Context, queries *db.Queries, key JobKey, source SourceOrder, job jobGuardRow,
) (SourceRefund, error) {
	credits, refundID := job.Cost, contract.JobRefundNumber(key.Tenant, key.JobID)
	row, err := queries.AcceptRefund(ctx, db.AcceptRefundParams{
		TenantID: key.Tenant, RefundID: refundID, OrderID: source.OrderID, JobID: &key.JobID, AccountID: &source.Account,
		Key: contract.JobRefundKey(key.JobID), Credits: &credits,
		Fingerprint: contract.Fingerprint("job", key.JobID, "order", source.OrderID, "credits", strconv.FormatInt(credits, 10)),
		Reason:      contract.Clip("refund of job "+key.JobID+" to its source: "+job.Reason, contract.MaxReasonBytes),
		RetentionUs: contract.RefundKeyRetention.Microseconds(), NotAfter: j.store.NotAfter(),
	})
	if err != nil {
		return SourceRefund{}, err
	}
	moved := SourceRefund{RefundID: refundID}
	kind, detail := EventSourceRefund, fmt.Sprintf("refund %s of %d %s through order %s", refundID, row.Amount, row.Currency,
		source.OrderID)
	switch row.Answer {
	case "applied", "already":
	case "too_late":
		return SourceRefund{}, schema.TooLate("refund job " + key.JobID + " to its source")
	default:
		moved = SourceRefund{Refusal: sourceRefusalInWords(row, source)}
		kind, detail = EventSourceRefused, moved.Refusal
	}
	_, err = queries.RecordJobEvent(ctx, db.RecordJobEventParams{
		TenantID: key.Tenant, JobID: key.JobID, Kind: kind, Detail: detail,
	})
	return moved, err
}

func sourceRefusalInWords(row db.AcceptRefundRow, source SourceOrder) string {
	why := "the credits stay on the account: "
	switch row.Answer {
	case "unknown_order":
		return why + "there is no order " + source.OrderID
	case "other_account":
		return why + "order " + source.OrderID + " is another account's"
	case "capacity", "credits_capacity", "nothing_left":
		return why + fmt.Sprintf("order %s has %d %s and %d credits left to send back", source.OrderID, row.LeftMoney,
			row.Currency, row.LeftCredits)
	case "debt":
		return why + fmt.Sprintf("the account owes %d", -row.Balance)
	case "insufficient_credits":
		return why + fmt.Sprintf("the account has only %d of them", row.Balance)
	default:
		return why + row.Answer
	}
}

// checkSource says why a job may not be charged whose refund is to leave through an order, or nothing. Orders are never
// removed, so a job that was charged passes for ever.
func (j *Jobs) checkSource(ctx context.Context, key JobKey, source SourceOrder) (why string, err error) {
	if source.OrderID == "" {
		return "", nil
	}
	order, err := j.store.GetOrder(ctx, db.GetOrderParams{TenantID: key.Tenant, OrderID: source.OrderID})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return WhyUnknownOrder, nil
	case err != nil:
		return "", retry(ctx, schema.Classify("read order "+source.OrderID, err))
	case order.AccountID != source.Account:
		return WhyOtherAccount, nil
	default:
		return "", nil
	}
}
