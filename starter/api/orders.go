package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// OrderBody is the body of a payment that bought credits.
type OrderBody struct {
	OrderID  string `json:"orderId" pattern:"^[A-Za-z0-9._:-]+$" minLength:"1" maxLength:"100"`
	Account  string `json:"account" pattern:"^[A-Za-z0-9._:-]+$" minLength:"1" maxLength:"100" doc:"The account that gets the credits"`
	Channel  string `json:"channel" pattern:"^[A-Za-z0-9._:-]+$" minLength:"1" maxLength:"100" doc:"The name of a configured channel"`
	Payment  string `json:"payment" minLength:"1" maxLength:"200" doc:"The channel's own id of the payment"`
	Currency string `json:"currency" pattern:"^[A-Za-z]{3}$" doc:"ISO 4217"`
	Paid     int64  `json:"paid" minimum:"1" maximum:"9007199254740991" doc:"In the currency's smallest unit"`
	Credits  int64  `json:"credits" minimum:"1" maximum:"9007199254740991" doc:"What the account gets, in its asset's smallest unit"`
	Asset    string `json:"asset,omitempty" pattern:"^[A-Za-z0-9._:-]+$" maxLength:"100" doc:"What the account holds, CREDIT if left out"`
}

func (d *Door) orderRoutes(routes huma.API) {
	type addInput struct {
		Key string `header:"Idempotency-Key" doc:"Your key for this operation, 1 to 200 bytes"`
	}
	type addOutput struct {
		Status int
		Body   client.AddedOrder
	}
	handle(routes, route{
		id: "add-order", method: http.MethodPost, path: "/v1/orders", tag: "orders", summary: "Record a payment and give its credits",
		scope: "accounts:write", body: OrderBody{}, status: http.StatusCreated,
		again: "The same order was recorded before: nothing moved now", errors: []int{409},
	}, func(ctx context.Context, key client.Key, input *addInput) (*addOutput, error) {
		operation, err := idempotencyKey(input.Key)
		if err != nil {
			return nil, err
		}
		body, err := decoded[OrderBody](ctx)
		if err != nil {
			return nil, err
		}
		added, err := d.client.AddOrder(ctx, contract.Order{
			Tenant: key.Tenant, Actor: key.Actor, Key: operation, OrderID: body.OrderID, Account: body.Account,
			Channel: body.Channel, Payment: body.Payment, Currency: body.Currency, Paid: body.Paid, Credits: body.Credits,
			Asset: body.Asset,
		})
		return &addOutput{created(!added.Already), added}, err
	})

	type orderInput struct {
		Order string `path:"order"`
	}
	type orderOutput struct{ Body client.Order }
	handle(routes, route{
		id: "get-order", method: http.MethodGet, path: "/v1/orders/{order}", tag: "orders",
		summary: "Read an order, what is left of it and its refunds", scope: "accounts:read", status: http.StatusOK, errors: []int{404},
	}, func(ctx context.Context, key client.Key, input *orderInput) (*orderOutput, error) {
		order, err := d.client.Order(ctx, key.Tenant, input.Order)
		return &orderOutput{order}, err
	})
}
