package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/worker/devstack"
)

// farEnd is the simulated payment channel, which is told how to misbehave and keeps its own book.
type farEnd struct{ url string }

func (f farEnd) call(ctx context.Context, method, path string, send, receive any) error {
	body, err := json.Marshal(send)
	if err != nil {
		return fmt.Errorf("tell the channel's simulator: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, f.url+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("tell the channel's simulator: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("tell the channel's simulator: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the channel's simulator answered %s to %s %s", response.Status, method, path)
	}
	if receive == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(receive); err != nil {
		return fmt.Errorf("read what the channel's simulator says: %w", err)
	}
	return nil
}

// pay lets a customer pay through the channel.
func (f farEnd) pay(ctx context.Context, payment string, amount int64) error {
	return f.call(ctx, http.MethodPost, "/simulator/payments", map[string]any{
		"payment_intent": payment, "amount": amount, "currency": "eur",
	}, nil)
}

// script says how the channel will treat the refund of that number. Durations are texts such as "2s".
func (f farEnd) script(ctx context.Context, number string, script map[string]any) error {
	return f.call(ctx, http.MethodPut, "/simulator/scripts/"+number, script, nil)
}

// booked returns how much money the channel has sent back for a payment and how often it was asked for the number.
func (f farEnd) booked(ctx context.Context, payment, number string) (moved int64, asked int, err error) {
	var book simulator.Book
	if err := f.call(ctx, http.MethodGet, "/simulator/book", nil, &book); err != nil {
		return 0, 0, err
	}
	for _, p := range book.Payments {
		if p.Intent == payment {
			return p.Refunded, book.Sends[number], nil
		}
	}
	return 0, 0, fmt.Errorf("the channel knows no payment %s", payment)
}

func theChannel(stack *devstack.Stack) farEnd { return farEnd{stack.SimulatorURL()} }
