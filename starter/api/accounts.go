package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/reclaimhq/reclaim/starter/client"
)

// TopUpBody is the body of a top-up.
type TopUpBody struct {
	Amount int64  `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"How many, in the asset's smallest unit"`
	Asset  string `json:"asset,omitempty" pattern:"^[A-Za-z0-9._:-]+$" maxLength:"100" doc:"What the account holds, CREDIT if left out"`
	Reason string `json:"reason,omitempty" maxLength:"2000" doc:"One line for the reader of a statement"`
}

// Moved is the ledger entry that a top-up made.
type Moved struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"`
	client.Moved
}

func (d *Door) accountRoutes(routes huma.API) {
	type topUpInput struct {
		Account string `path:"account" doc:"The account, which is created if need be"`
		Key     string `header:"Idempotency-Key" doc:"Your key for this operation, 1 to 200 bytes"`
	}
	type movedOutput struct {
		Status int
		Body   Moved
	}
	handle(routes, route{
		id: "top-up-account", method: http.MethodPost, path: "/v1/accounts/{account}/topups", tag: "accounts",
		summary: "Add credits to an account", scope: "accounts:write", body: TopUpBody{}, status: http.StatusCreated,
		again: "The same top-up was made before under this key: nothing moved now", errors: []int{404, 409},
	}, func(ctx context.Context, key client.Key, input *topUpInput) (*movedOutput, error) {
		operation, err := idempotencyKey(input.Key)
		if err != nil {
			return nil, err
		}
		body, err := decoded[TopUpBody](ctx)
		if err != nil {
			return nil, err
		}
		moved, err := d.client.TopUp(ctx, client.Movement{
			Tenant: key.Tenant, Actor: key.Actor, Account: input.Account, Key: operation, Amount: body.Amount, Asset: body.Asset,
			Reason: body.Reason,
		})
		return &movedOutput{created(!moved.Already), Moved{input.Account, body.Amount, moved}}, err
	})

	type accountInput struct {
		Account string `path:"account"`
	}
	type accountOutput struct{ Body client.Account }
	handle(routes, route{
		id: "get-account", method: http.MethodGet, path: "/v1/accounts/{account}", tag: "accounts",
		summary: "Read an account's balance", scope: "accounts:read", status: http.StatusOK, errors: []int{404},
	}, func(ctx context.Context, key client.Key, input *accountInput) (*accountOutput, error) {
		account, err := d.client.Account(ctx, key.Tenant, input.Account)
		return &accountOutput{account}, err
	})
}

// created is the status of something that was made, now or before.
func created(now bool) int {
	if now {
		return http.StatusCreated
	}
	return http.StatusOK
}
