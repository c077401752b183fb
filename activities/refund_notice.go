package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// AppliedNotice is the refund as it stands. News is true where its row does not say what the notice says.
type AppliedNotice struct {
	RefundRow
	News bool `json:"news,omitempty"`
}

// ApplyNotice holds the content of a channel-notice signal against the row. (Histories know it by this name.) What a channel reports is committed before its
// run is told, so there is no news in it; a signal itself carries no signature, and what only it says is looked up.
func (r *Refunds) ApplyNotice(ctx context.Context, q NoticeRequest) (AppliedNotice, error) {
	if err := ownRefund(ctx, q.RefundKey); err != nil {
		return AppliedNotice{}, err
	}
	row, err := r.read(ctx, r.store.Queries, q.RefundKey)
	if err != nil {
		return AppliedNotice{}, err
	}
	heard := AppliedNotice{RefundRow: r.rowOf(row)}
	switch state := heard.State; q.Notice.Outcome {
	case contract.NoticeSucceeded:
		heard.News = state != contract.RefundSucceeded && state != contract.RefundReversed
	case contract.NoticeFailed:
		heard.News = state != contract.RefundFailed && state != contract.RefundReversed && state != contract.RefundCanceled
	default:
		heard.News = state == contract.RefundAccepted || state == contract.RefundUnknown || state == contract.RefundCanceled
	}
	return heard, nil
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
	taken := TakenNotice{Refund: owner, Notice: noticeOf(*e)}
	taken.Notice.ID = contract.Clip(notice.ID, 200)
	taken.Applied, err = r.apply(ctx, r.store.Queries, owner, Observation{
		Source: SourceNotice, Evidence: *e, Reversible: far.Capabilities().Reversible,
	})
	return taken, err
}

func (r *Refunds) ownerOf(ctx context.Context, name string, e *channel.Evidence) (contract.RefundKey, error) {
	if e.Number != "" {
		if !contract.ValidRefundNumber(e.Number) {
			return contract.RefundKey{}, pgx.ErrNoRows
		}
		row, err := r.store.GetRefundByNumber(ctx, e.Number)
		if err == nil && row.Channel != name {
			err = pgx.ErrNoRows
		}
		return contract.RefundKey{Tenant: row.TenantID, RefundID: row.RefundID}, err
	}
	row, err := r.store.FindRefundTenant(ctx, db.FindRefundTenantParams{
		Channel: name, Payments: paymentNames(e), ChannelRef: contract.Clip(e.Reference, 200),
	})
	if err == nil {
		// The evidence is compared with our name of the payment.
		e.Payment = row.Payment
	}
	return contract.RefundKey{Tenant: row.TenantID, RefundID: row.RefundID}, err
}

// paymentNames are those by which an order may know the payment.
func paymentNames(e *channel.Evidence) []string {
	names := []string{contract.Clip(e.Payment, 200)}
	if e.PaymentAlias != "" {
		names = append(names, contract.Clip(e.PaymentAlias, 200))
	}
	return names
}

// openUnknownRefund keeps a verified message about a refund that is not known here: money may have moved without us. The
// tenant is told whose order the payment bought, if it is one, and only if the channel is for that tenant: any tenant may
// name any payment in an order.
func (r *Refunds) openUnknownRefund(ctx context.Context, name string, notice channel.Notice) (TakenNotice, error) {
	e := notice.Evidence
	owners, err := r.store.ListPaymentTenants(ctx, db.ListPaymentTenantsParams{Channel: name, Payments: paymentNames(e)})
	if err != nil {
		return TakenNotice{}, schema.Classify("find the order that a notice is about", err)
	}
	owners = slices.DeleteFunc(owners, func(tenant string) bool {
		_, err := r.channels.Get(name, tenant)
		return err != nil
	})
	tenant := contract.UnassignedTenant
	if len(owners) == 1 {
		tenant = owners[0]
	}
	opened := unknownRefund(tenant, name, *e)
	err = r.store.OpenIssue(ctx, opened)
	if err != nil {
		return TakenNotice{}, schema.Classify("open an issue about an unknown refund", err)
	}
	return TakenNotice{IssueID: opened.IssueID}, nil
}

// unknownRefund is the issue about a refund of a channel's that nobody asked for here: one for each fact, however it is told,
// which is that the refund is there, and that it failed.
func unknownRefund(tenant, name string, e channel.Evidence) db.OpenIssueParams {
	fact := "made"
	if e.Outcome == channel.OutcomeFailed {
		fact = "failed"
	}
	sum := sha256.Sum256([]byte(name + "|" + e.Number + "|" + e.Reference + "|" + fact))
	return db.OpenIssueParams{
		TenantID: tenant, IssueID: IssueUnknownRefund + ":" + hex.EncodeToString(sum[:8]), Kind: IssueUnknownRefund,
		SubjectKind: "channel", SubjectID: name,
		Evidence: contract.Clip(fmt.Sprintf("%s says that refund %s (number %q) of payment %s over %d %s is %s %s: %s",
			name, e.Reference, e.Number, e.Payment, e.Amount, e.Currency, e.Outcome, e.Code, e.Detail), contract.MaxReasonBytes),
	}
}

// IssueUnknownRefund is the kind of issues about refunds of a channel's that nobody asked for here.
const IssueUnknownRefund = "unknown_refund"
