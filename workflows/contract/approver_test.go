package contract_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestAnApproverIsNeitherTheOperatorNorTheSender(t *testing.T) {
	t.Parallel()
	for _, approver := range []string{"", " ", "bob"} {
		assert.NoError(t, contract.RefundResolution{Operator: "ann", Approver: approver}.CheckApprover("me", "the sender"), approver)
	}
	for _, approver := range []string{"ann", " Ann ", "ME"} {
		err := contract.RefundResolution{Operator: " ann", Approver: approver}.CheckApprover("me", "the sender")
		assert.Equal(t, contract.CodeBadInput, contract.CodeOf(err), approver)
		assert.ErrorContains(t, err, "must be a second person, neither the operator nor the sender")
	}
}
