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
	var updates []temporal.SearchAttributeUpdate
	change := func(key temporal.SearchAttributeKeyKeyword, have, want string) {
		switch {
		case have == want:
		case want == "":
			updates = append(updates, key.ValueUnset())
		default:
			updates = append(updates, key.ValueSet(want))
		}
	}
	change(tenantKey, j.attributes.tenant, wanted.tenant)
	change(accountKey, j.attributes.account, wanted.account)
	change(moneyKey, j.attributes.money, wanted.money)
	change(attentionKey, j.attributes.attention, wanted.attention)
	if len(updates) == 0 {
		return
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		panic(err)
	}
	j.attributes = wanted
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
