package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// NoticeRequest hands the content of a channel-notice signal on.
type NoticeRequest struct {
	contract.RefundKey
	Notice contract.ChannelNotice `json:"notice"`
}

// ApplyNotice applies what a notice says of the refund and answers with its row.
func (r *Refunds) ApplyNotice(ctx context.Context, q NoticeRequest) (RefundRow, error) {
	if err := ownRefund(ctx, q.RefundKey); err != nil {
		return RefundRow{}, err
	}
	row, err := r.read(ctx, r.store.Queries, q.RefundKey)
	if err != nil {
		return RefundRow{}, err
	}
	reversible := false
	if far, err := r.channels.Named(row.Channel); err == nil {
		reversible = far.Capabilities().Reversible
	}
	n := q.Notice
	if _, err := r.apply(ctx, r.store.Queries, q.RefundKey, Observation{
		Source: SourceNotice, Reversible: reversible,
		Evidence: channel.Evidence{
			Outcome: channel.Outcome(n.Outcome), Number: n.Number, Reference: n.ChannelRef, Payment: n.Payment,
			Amount: n.Amount, Currency: n.Currency, Code: n.Code, Detail: n.ID, ObservedAt: n.ObservedAt,
		},
	}); err != nil {
		return RefundRow{}, err
	}
	if row, err = r.read(ctx, r.store.Queries, q.RefundKey); err != nil {
		return RefundRow{}, err
	}
	return refundRowOf(row), nil
}

// TakenNotice is how a webhook went. Refund is empty where it was about none of ours: IssueID then names the issue that was
// opened, or is empty too where the message needs no one's attention.
type TakenNotice struct {
	Refund  contract.RefundKey
	Notice  contract.ChannelNotice
	IssueID string
	Applied AppliedEvidence
}

// TakeNotice verifies a channel's webhook and applies what it says. When it returns without an error, everything that the
// message means is committed, so that it may be acknowledged. Errors: *channel.NoticeError where it is not accepted, and
// database failures, after which the channel sends it again.
func (r *Refunds) TakeNotice(
	ctx context.Context, name string, header http.Header, body []byte, now time.Time,
) (TakenNotice, error) {
	if err := noActivity(ctx); err != nil {
		return TakenNotice{}, err
	}
	far, err := r.channels.Named(name)
	if err != nil {
		return TakenNotice{}, err
	}
	notice, err := far.ParseNotice(header, body, now)
	if err != nil || notice.Evidence == nil {
		return TakenNotice{}, err
	}
	e := notice.Evidence
	owner, err := r.ownerOf(ctx, name, e)
	if errors.Is(err, pgx.ErrNoRows) {
		return r.openUnknownRefund(ctx, name, notice)
	}
	if err != nil {
		return TakenNotice{}, schema.Classify("find the refund that a notice is about", err)
	}
	taken := TakenNotice{Refund: owner, Notice: contract.ChannelNotice{
		ID: contract.Clip(notice.ID, 200), Outcome: contract.RefundOutcome(e.Outcome), Number: e.Number,
		ChannelRef: e.Reference, Payment: e.Payment, Amount: e.Amount, Currency: e.Currency,
		Code: contract.Clip(e.Code, 200), ObservedAt: e.ObservedAt,
	}}
	taken.Applied, err = r.apply(ctx, r.store.Queries, owner, Observation{
		Source: SourceNotice, Evidence: *e, Reversible: far.Capabilities().Reversible,
	})
	return taken, err
}

func (r *Refunds) ownerOf(ctx context.Context, name string, e *channel.Evidence) (contract.RefundKey, error) {
	if e.Number != "" {
		row, err := r.store.GetRefundByNumber(ctx, e.Number)
		if err != nil || row.Channel != name {
			return contract.RefundKey{}, errors.Join(err, pgx.ErrNoRows)
		}
		return contract.RefundKey{Tenant: row.TenantID, RefundID: row.RefundID}, nil
	}
	row, err := r.store.FindRefundTenant(ctx, db.FindRefundTenantParams{
		Channel: name, Payments: paymentNames(e), ChannelRef: e.Reference,
	})
	if err == nil {
		// The evidence is compared with our name of the payment.
		e.Payment = row.Payment
	}
	return contract.RefundKey{Tenant: row.TenantID, RefundID: row.RefundID}, err
}

// paymentNames are those by which an order may know the payment.
func paymentNames(e *channel.Evidence) []string {
	if e.PaymentAlias == "" {
		return []string{e.Payment}
	}
	return []string{e.Payment, e.PaymentAlias}
}

// UnassignedTenant holds the issues of messages that belong to no tenant's order.
const UnassignedTenant = "unassigned"

// openUnknownRefund keeps a verified message about a refund that is not known here: money may have moved without us.
func (r *Refunds) openUnknownRefund(ctx context.Context, name string, notice channel.Notice) (TakenNotice, error) {
	e := notice.Evidence
	tenant := UnassignedTenant
	owner, err := r.store.FindPaymentTenant(ctx, db.FindPaymentTenantParams{Channel: name, Payments: paymentNames(e)})
	switch {
	case err == nil:
		tenant = owner
	case !errors.Is(err, pgx.ErrNoRows):
		return TakenNotice{}, schema.Classify("find the order that a notice is about", err)
	}
	sum := sha256.Sum256([]byte(name + "|" + e.Number + "|" + e.Reference + "|" + e.Payment + "|" + string(e.Outcome)))
	id := "unknown_refund:" + hex.EncodeToString(sum[:8])
	err = r.store.OpenIssue(ctx, db.OpenIssueParams{
		TenantID: tenant, IssueID: id, Kind: "unknown_refund", SubjectKind: "channel", SubjectID: name,
		Evidence: contract.Clip(fmt.Sprintf("%s says that refund %s (number %q) of payment %s over %d %s is %s %s: %s",
			name, e.Reference, e.Number, e.Payment, e.Amount, e.Currency, e.Outcome, e.Code, e.Detail), contract.MaxReasonBytes),
	})
	if err != nil {
		return TakenNotice{}, schema.Classify("open an issue about an unknown refund", err)
	}
	return TakenNotice{IssueID: id}, nil
}
