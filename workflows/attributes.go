package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

var (
	tenantKey    = temporal.NewSearchAttributeKeyKeyword(contract.AttributeTenant)
	accountKey   = temporal.NewSearchAttributeKeyKeyword(contract.AttributeAccount)
	moneyKey     = temporal.NewSearchAttributeKeyKeyword(contract.AttributeMoney)
	refundKey    = temporal.NewSearchAttributeKeyKeyword(contract.AttributeRefund)
	orderKey     = temporal.NewSearchAttributeKeyKeyword(contract.AttributeOrder)
	attentionKey = temporal.NewSearchAttributeKeyKeyword(contract.AttributeAttention)
)

// attributes are the values that the run's search attributes have. All are short by the contract's rules.
type attributes struct {
	known                             bool
	tenant, account, money, attention string
}

// showAttributes brings the search attributes in line with the row, all changes in one event and none without a change:
// each upsert costs the server many index writes.
func (j *meteredJob) showAttributes(ctx workflow.Context) {
	if !j.attributes.known {
		given := workflow.GetTypedSearchAttributes(ctx)
		j.attributes.tenant, _ = given.GetKeyword(tenantKey)
		j.attributes.account, _ = given.GetKeyword(accountKey)
		j.attributes.money, _ = given.GetKeyword(moneyKey)
		j.attributes.attention, _ = given.GetKeyword(attentionKey)
		j.attributes.known = true
	}
	wanted := attributes{known: true, tenant: j.job.Tenant, account: j.job.Account, money: j.moneyInWord()}
	wanted.attention = j.attention
	if j.row.State == contract.StateDeadLetter {
		wanted.attention = contract.AttentionDeadLetter
	} else if !j.row.State.Open() {
		wanted.attention = ""
	}
	if wanted.attention == "" && j.moved.Refusal != "" && j.row.State != contract.StateSucceeded {
		wanted.attention = contract.AttentionRefundUnconfirmed
	}
	upsert(ctx,
		attributeChange{tenantKey, j.attributes.tenant, wanted.tenant},
		attributeChange{accountKey, j.attributes.account, wanted.account},
		attributeChange{moneyKey, j.attributes.money, wanted.money},
		attributeChange{attentionKey, j.attributes.attention, wanted.attention},
	)
	j.attributes = wanted
}

// attributeChange is a search attribute with the value that it has and the one that it should have, empty for none.
type attributeChange struct {
	key        temporal.SearchAttributeKeyKeyword
	have, want string
}

// upsert makes all changes in one event, and none where nothing changes.
func upsert(ctx workflow.Context, changes ...attributeChange) {
	var updates []temporal.SearchAttributeUpdate
	for _, change := range changes {
		switch {
		case change.have == change.want:
		case change.want == "":
			updates = append(updates, change.key.ValueUnset())
		default:
			updates = append(updates, change.key.ValueSet(change.want))
		}
	}
	if len(updates) == 0 {
		return
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		panic(err)
	}
}

// refundAttributes are the values that a refund run's search attributes have.
type refundAttributes struct {
	known                                     bool
	tenant, account, order, refund, attention string
}

// showAttributes brings the search attributes in line with the row.
func (r *channelRefund) showAttributes(ctx workflow.Context) {
	if !r.attributes.known {
		given := workflow.GetTypedSearchAttributes(ctx)
		r.attributes.tenant, _ = given.GetKeyword(tenantKey)
		r.attributes.account, _ = given.GetKeyword(accountKey)
		r.attributes.order, _ = given.GetKeyword(orderKey)
		r.attributes.refund, _ = given.GetKeyword(refundKey)
		r.attributes.attention, _ = given.GetKeyword(attentionKey)
		r.attributes.known = true
	}
	wanted := refundAttributes{
		known: true, tenant: r.key.Tenant, account: r.row.Account, order: r.row.OrderID, refund: r.key.RefundID,
	}
	switch {
	case r.needsPerson() && r.row.State.Open():
		wanted.attention = contract.AttentionRefundUnconfirmed
	case r.needsPerson():
		wanted.attention = contract.AttentionEvidenceConflict
	}
	upsert(ctx,
		attributeChange{tenantKey, r.attributes.tenant, wanted.tenant},
		attributeChange{accountKey, r.attributes.account, wanted.account},
		attributeChange{orderKey, r.attributes.order, wanted.order},
		attributeChange{refundKey, r.attributes.refund, wanted.refund},
		attributeChange{attentionKey, r.attributes.attention, wanted.attention},
	)
	r.attributes = wanted
}

func (j *meteredJob) moneyInWord() string {
	switch {
	case !j.hasRow():
		return contract.MoneyDeclined
	case j.row.Reclaimed:
		return contract.MoneyReclaimed
	case j.row.Refunded:
		return contract.MoneyRefunded
	default:
		return contract.MoneyCharged
	}
}
