package devstack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
)

// Simulator is the simulated payment channel, which is told how to misbehave and keeps its own book.
type Simulator struct{ url string }

// Simulator gives the stack's own.
func (s *Stack) Simulator() Simulator { return Simulator{s.SimulatorURL()} }

func (s Simulator) call(ctx context.Context, method, path string, send, receive any) error {
	body, err := json.Marshal(send)
	if err != nil {
		return fmt.Errorf("tell the channel's simulator: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
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

// Pay lets a customer pay through the channel.
func (s Simulator) Pay(ctx context.Context, payment string, amount int64) error {
	return s.call(ctx, http.MethodPost, "/simulator/payments", map[string]any{
		"payment_intent": payment, "amount": amount, "currency": "eur",
	}, nil)
}

// Script says how the channel will treat the refund of that number. Durations are texts such as "2s".
func (s Simulator) Script(ctx context.Context, number string, script map[string]any) error {
	return s.call(ctx, http.MethodPut, "/simulator/scripts/"+number, script, nil)
}

// Booked returns how much money the channel has sent back for a payment and how often it was asked for the number.
func (s Simulator) Booked(ctx context.Context, payment, number string) (moved int64, asked int, err error) {
	var book simulator.Book
	if err := s.call(ctx, http.MethodGet, "/simulator/book", nil, &book); err != nil {
		return 0, 0, err
	}
	for _, p := range book.Payments {
		if p.Intent == payment {
			return p.Refunded, book.Sends[number], nil
		}
	}
	return 0, 0, fmt.Errorf("the channel knows no payment %s", payment)
}
