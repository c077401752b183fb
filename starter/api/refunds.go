package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// RefundBody is the body of a request for money back.
type RefundBody struct {
	OrderID  string `json:"orderId" pattern:"^[A-Za-z0-9._:-]+$" minLength:"1" maxLength:"100"`
	Amount   int64  `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"In the smallest unit of the order's currency"`
	Currency string `json:"currency,omitempty" pattern:"^[A-Za-z]{3}$" doc:"The order's, which need not be named"`
	Credits  *int64 `json:"credits,omitempty" minimum:"0" maximum:"9007199254740991" doc:"What leaves the account with the money: left out, as many as it stands for; 0: goodwill, the customer keeps them"`
	Reason   string `json:"reason" pattern:"\\S" maxLength:"2000"`
}

// RefundResolutionBody describes the body of a decision about a refund, which the contract's own decoder reads.
type RefundResolutionBody struct {
	ID         string                `json:"id" pattern:"^[A-Za-z0-9._:-]+$" minLength:"1" maxLength:"100" doc:"Makes the decision repeatable: the same id and content is answered as the first time"`
	Action     contract.RefundAction `json:"action" enum:"settle,release,resend,extend,cancel"`
	Operator   string                `json:"operator,omitempty" maxLength:"2000" doc:"Who decided, the key's actor if left out"`
	Approver   string                `json:"approver,omitempty" maxLength:"2000" doc:"A second person; above the channel's amount there must be one"`
	Reason     string                `json:"reason" pattern:"\\S" maxLength:"2000"`
	Evidence   string                `json:"evidence,omitempty" maxLength:"2000" doc:"How it is known; settle and release need it, with the amount"`
	Number     string                `json:"number,omitempty" pattern:"^[A-Za-z0-9_-]+$" maxLength:"64" doc:"The refund's number, which need not be named"`
	ChannelRef string                `json:"channelRef,omitempty" maxLength:"200" doc:"The channel's own reference of the refund; settle needs it"`
	Amount     int64                 `json:"amount,omitempty" minimum:"1" maximum:"9007199254740991" doc:"The refund's, so that the right one is decided"`
	Currency   string                `json:"currency,omitempty" pattern:"^[A-Za-z]{3}$" doc:"The refund's, which need not be named"`
}

func (d *Door) refundRoutes(routes huma.API) {
	type requestInput struct {
		Key string `header:"Idempotency-Key" doc:"Your key for this refund, 1 to 200 bytes: the same for every retry, for ever"`
	}
	type requestOutput struct {
		Status   int
		Location string `header:"Location"`
		Body     client.RequestedRefund
	}
	handle(routes, route{
		id: "request-refund", method: http.MethodPost, path: "/v1/refunds", tag: "refunds",
		summary: "Send money of an order back through its channel", scope: "refunds:write", body: RefundBody{},
		status: http.StatusCreated, again: "The key's refund was accepted before; this is how it stands now",
		errors: []int{402, 404, 409, 410},
	}, func(ctx context.Context, key client.Key, input *requestInput) (*requestOutput, error) {
		operation, err := idempotencyKey(input.Key)
		if err != nil {
			return nil, err
		}
		body, err := decoded[RefundBody](ctx)
		if err != nil {
			return nil, err
		}
		refund, err := d.client.RequestRefund(ctx, contract.RefundRequest{
			Tenant: key.Tenant, Actor: key.Actor, Key: operation, OrderID: body.OrderID, Amount: body.Amount,
			Currency: body.Currency, Credits: body.Credits, Reason: body.Reason,
		})
		return &requestOutput{created(refund.Created), "/v1/refunds/" + refund.RefundID, refund}, err
	})

	type refundInput struct {
		Refund string `path:"refund"`
		Prefer string `header:"Prefer" doc:"wait=N: answer once the refund has ended, after N seconds at the latest"`
	}
	type refundOutput struct {
		Applied string `header:"Preference-Applied"`
		Body    client.Refund
	}
	handle(routes, route{
		id: "get-refund", method: http.MethodGet, path: "/v1/refunds/{refund}", tag: "refunds",
		summary: "Read a refund and its story", scope: "refunds:read", status: http.StatusOK, errors: []int{404},
	}, func(ctx context.Context, key client.Key, input *refundInput) (*refundOutput, error) {
		refund, err := d.client.Refund(ctx, key.Tenant, input.Refund)
		if err != nil {
			return nil, err
		}
		ctx, applied, err := d.wait(ctx, input.Prefer, func(ctx context.Context) error {
			if !refund.State.Open() {
				return nil
			}
			return d.client.AwaitRefund(ctx, key.Tenant, input.Refund)
		})
		if err != nil {
			return nil, err
		}
		if applied != "" {
			refund, err = d.client.Refund(ctx, key.Tenant, input.Refund)
		}
		return &refundOutput{applied, refund}, err
	})

	type findInput struct {
		Key string `query:"key" doc:"The Idempotency-Key under which this key's actor asked for it"`
	}
	type findOutput struct{ Body client.Refund }
	handle(routes, route{
		id: "find-refund", method: http.MethodGet, path: "/v1/refunds", tag: "refunds",
		summary: "Find a refund by its operation key", scope: "refunds:read", status: http.StatusOK, errors: []int{404, 410},
	}, func(ctx context.Context, key client.Key, input *findInput) (*findOutput, error) {
		refund, err := d.client.FindRefund(ctx, key.Tenant, key.Actor, input.Key)
		return &findOutput{refund}, err
	})

	type resolveInput struct {
		Refund string `path:"refund"`
	}
	type resolveOutput struct {
		Body contract.RefundResolutionAnswer
	}
	handle(routes, route{
		id: "resolve-refund", method: http.MethodPost, path: "/v1/refunds/{refund}/resolution", tag: "refunds",
		summary: "Take a person's decision about a refund", scope: "resolve", body: RefundResolutionBody{},
		status: http.StatusOK, errors: []int{404, 409},
	}, func(ctx context.Context, key client.Key, input *resolveInput) (*resolveOutput, error) {
		decision, err := decoded[contract.RefundResolution](ctx)
		if err != nil {
			return nil, err
		}
		if err := decision.CheckApprover(key.Actor, "the actor of the API key"); err != nil {
			return nil, err
		}
		decision.Operator = operatorBy(key, decision.Operator)
		answer, err := d.client.ResolveRefund(ctx, key.Tenant, input.Refund, decision)
		return &resolveOutput{answer}, err
	})
}
