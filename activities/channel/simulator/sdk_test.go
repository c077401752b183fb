package simulator

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85"
)

func sdk(s *Simulator) *stripe.Client {
	return stripe.NewClient(testKey, stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(s.URL()), HTTPClient: client, MaxNetworkRetries: stripe.Int64(0),
		EnableTelemetry: stripe.Bool(false), LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})))
}

func params(number string, amount int64) *stripe.RefundCreateParams {
	p := &stripe.RefundCreateParams{
		PaymentIntent: stripe.String("pi_1"), Amount: stripe.Int64(amount),
		Metadata: map[string]string{NumberField: number},
	}
	p.SetIdempotencyKey(number)
	return p
}

func TestSDK(t *testing.T) {
	assert.Equal(t, stripe.APIVersion, APIVersion)
	s := start(t, Options{})
	c := sdk(s)
	ctx := context.Background()

	made, err := c.V1Refunds.Create(ctx, params("rf1", 2500))
	require.NoError(t, err)
	assert.Equal(t, stripe.RefundStatusSucceeded, made.Status)
	assert.Equal(t, int64(2500), made.Amount)
	assert.Equal(t, stripe.CurrencyEUR, made.Currency)
	assert.Equal(t, "pi_1", made.PaymentIntent.ID)
	assert.Equal(t, "ch_1", made.Charge.ID)
	assert.Equal(t, "rf1", made.Metadata[NumberField])
	assert.NotEmpty(t, made.BalanceTransaction.ID)
	assert.NotEmpty(t, made.LastResponse.RequestID)

	again, err := c.V1Refunds.Create(ctx, params("rf1", 2500))
	require.NoError(t, err)
	assert.Equal(t, made.ID, again.ID)
	assert.Equal(t, "true", again.LastResponse.Header.Get("Idempotent-Replayed"))

	_, err = c.V1Refunds.Create(ctx, params("rf1", 2501))
	var refused *stripe.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stripe.ErrorTypeIdempotency, refused.Type)
	assert.Equal(t, 400, refused.HTTPStatusCode)

	_, err = c.V1Refunds.Create(ctx, params("rf2", testPaid))
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stripe.ErrorCodeAmountTooLarge, refused.Code)
	assert.Equal(t, stripe.ErrorTypeInvalidRequest, refused.Type)

	got, err := c.V1Refunds.Retrieve(ctx, made.ID, nil)
	require.NoError(t, err)
	assert.Equal(t, made.ID, got.ID)
	_, err = c.V1Refunds.Retrieve(ctx, "re_none", nil)
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stripe.ErrorCodeResourceMissing, refused.Code)
	assert.Equal(t, int64(2500), s.MovedFor("rf1"))
}

func TestSDKLists(t *testing.T) {
	s := start(t, Options{})
	c := sdk(s)
	var want, got []string
	for i := range 7 {
		made, err := c.V1Refunds.Create(t.Context(), params(fmt.Sprint("rf", i), 1))
		require.NoError(t, err)
		want = append([]string{made.ID}, want...)
	}
	query := &stripe.RefundListParams{PaymentIntent: stripe.String("pi_1")}
	query.Limit = stripe.Int64(3)
	for refund, err := range c.V1Refunds.List(t.Context(), query).All(t.Context()) {
		require.NoError(t, err)
		got = append(got, refund.ID)
	}
	assert.Equal(t, want, got)
}
