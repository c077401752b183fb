package simulator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	parallelWebhooks = 16
	webhookTimeout   = 10 * time.Second
	firstRetryAfter  = time.Second
)

// delivery is a webhook that is to be sent.
type delivery struct {
	sequence int64
	refund   *refund
	event    string
	kind     string
	body     []byte
	script   Webhooks
	due      time.Time
	tries    int
}

// Delivery is a webhook that was sent, once.
type Delivery struct {
	// Event is the event's id: copies and retries have the same one.
	Event string `json:"event"`
	// Type is the event's, Number and Refund those of the refund that it is about.
	Type   string `json:"type"`
	Number string `json:"number"`
	Refund string `json:"refund"`
	// Try counts from 1.
	Try int `json:"try"`
	// Status is the HTTP status of the receiver's answer, 0 if there was none for the reason in Error.
	Status int    `json:"status"`
	Error  string `json:"error,omitzero"`
}

// eventObject is an event as Stripe tells it.
type eventObject struct {
	ID              string       `json:"id"`
	Object          string       `json:"object"`
	APIVersion      string       `json:"api_version"`
	Created         int64        `json:"created"`
	Data            eventData    `json:"data"`
	Livemode        bool         `json:"livemode"`
	PendingWebhooks int          `json:"pending_webhooks"`
	Request         eventRequest `json:"request"`
	Type            string       `json:"type"`
}

type eventData struct {
	Object             refundObject      `json:"object"`
	PreviousAttributes map[string]string `json:"previous_attributes,omitzero"`
}

type eventRequest struct {
	ID             *string `json:"id"`
	IdempotencyKey *string `json:"idempotency_key"`
}

// SetWebhookURL sets where webhooks go from now on; if it is empty, events are not kept.
func (s *Simulator) SetWebhookURL(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.webhookURL = url
}

// tell queues the event of a refund as the refund is now; mu is held. A status before is that which the event changed.
func (s *Simulator) tell(r *refund, kind string, at time.Time, before string) {
	script := r.subject.script.Webhooks
	if s.webhookURL == "" || script.None || len(script.Only) > 0 && !slices.Contains(script.Only, kind) {
		return
	}
	event := eventObject{
		ID: newID("evt"), Object: "event", APIVersion: cmp.Or(script.APIVersion, APIVersion), Created: at.Unix(),
		Data: eventData{Object: r.object(Fault{})}, PendingWebhooks: 1, Type: kind,
	}
	if before != "" {
		event.Data.PreviousAttributes = map[string]string{"status": before}
	}
	body := encode(event)
	for range max(script.Copies, 1) {
		d := &delivery{refund: r, event: event.ID, kind: kind, body: body, script: script, due: at.Add(script.Delay)}
		if script.Reversed {
			r.reserve = append(r.reserve, d)
		} else {
			s.enqueue(d)
		}
	}
}

// tellReserve queues the events that were held back to be reversed; mu is held.
func (s *Simulator) tellReserve(r *refund) {
	if len(r.reserve) == 0 {
		return
	}
	due := r.reserve[len(r.reserve)-1].due
	for _, d := range slices.Backward(r.reserve) {
		d.due = due
		s.enqueue(d)
	}
	r.reserve = nil
}

func (s *Simulator) enqueue(d *delivery) {
	s.sequence++
	d.sequence = s.sequence
	s.queue = append(s.queue, d)
	s.rouse()
}

// dispatch sends what is due, until Close. Webhooks of one refund go one after the other, those of several in parallel.
func (s *Simulator) dispatch() {
	for {
		now := s.lock()
		for r, batch := range s.due(now) {
			s.busy[r] = batch
			s.goroutines.Go(func() { s.sendBatch(r, batch) })
		}
		next := s.nextDue(now)
		s.mu.Unlock()
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.ctx.Done():
		}
		timer.Stop()
		if s.ctx.Err() != nil {
			return
		}
	}
}

// due takes out of the queue what can be sent now, in order, by refund; mu is held.
func (s *Simulator) due(now time.Time) map[*refund][]*delivery {
	batches := map[*refund][]*delivery{}
	s.queue = slices.DeleteFunc(s.queue, func(d *delivery) bool {
		ready := !d.due.After(now) && !d.refund.answering && s.busy[d.refund] == nil
		if ready {
			batches[d.refund] = append(batches[d.refund], d)
		}
		return ready
	})
	for _, batch := range batches {
		slices.SortFunc(batch, func(a, b *delivery) int {
			return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.sequence, b.sequence))
		})
	}
	return batches
}

// nextDue is the time until something becomes due by itself; mu is held.
func (s *Simulator) nextDue(now time.Time) time.Duration {
	next := time.Hour
	for _, d := range s.queue {
		if wait := d.due.Sub(now); wait > 0 { // what is due already waits for something else
			next = min(next, wait)
		}
	}
	for _, r := range s.live {
		next = min(next, r.lifeFrom.Add(r.steps[0].After).Sub(now))
	}
	return next
}

func (s *Simulator) sendBatch(r *refund, batch []*delivery) {
	select {
	case s.sending <- struct{}{}:
		defer func() { <-s.sending }()
	case <-s.ctx.Done():
		return
	}
	for _, d := range batch {
		status, err := s.send(d)
		now := s.lock()
		d.tries++
		sent := Delivery{
			Event: d.event, Type: d.kind, Number: r.subject.number, Refund: r.id, Try: d.tries, Status: status,
		}
		if err != nil {
			sent.Error = err.Error()
		}
		s.deliveries = append(s.deliveries, sent)
		if (status < 200 || status > 299) && d.tries <= s.options.WebhookRetries {
			d.due = now.Add(firstRetryAfter << min(d.tries-1, 12))
			s.queue = append(s.queue, d)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	delete(s.busy, r)
	s.announce()
	s.mu.Unlock()
	s.rouse()
}

func (s *Simulator) send(d *delivery) (int, error) {
	s.mu.Lock()
	url := s.webhookURL
	s.mu.Unlock()
	request, err := http.NewRequestWithContext(s.ctx, http.MethodPost, url, bytes.NewReader(d.body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("User-Agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
	// Real time, since the receiver knows no other.
	request.Header.Set("Stripe-Signature",
		signature(d.body, cmp.Or(d.script.Secret, s.options.WebhookSecret), time.Now().Add(d.script.SignedAt)))
	response, err := s.sender.Do(request)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16)) // so that the connection can be used again
	return response.StatusCode, response.Body.Close()
}

func signature(body []byte, secret string, at time.Time) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(mac, "%s.%s", t, body) // a hash takes everything
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// Deliver returns when every webhook that is due now has been sent, or was on its way and is answered. One that must be
// sent again is due later.
func (s *Simulator) Deliver() { s.awaitSent(s.ctx, nil) }

// sendFirst sends the events of a new refund and waits for that and for hold of real time more. It returns false when the
// client went away or the simulator was closed before.
func (s *Simulator) sendFirst(ctx context.Context, r *refund, hold time.Duration) bool {
	s.mu.Lock()
	r.answering = false
	s.mu.Unlock()
	return s.awaitSent(ctx, r) && s.pause(ctx, hold)
}

// awaitSent waits for the webhooks that are due now, those of r only if it is not nil.
func (s *Simulator) awaitSent(ctx context.Context, r *refund) bool {
	now := s.lock()
	last := s.sequence
	s.mu.Unlock()
	s.rouse()
	return s.await(ctx, func() bool {
		waiting := func(d *delivery) bool {
			return d.sequence <= last && !d.due.After(now) && (r == nil || d.refund == r)
		}
		for _, batch := range s.busy {
			if slices.ContainsFunc(batch, waiting) {
				return false
			}
		}
		return !slices.ContainsFunc(s.queue, waiting)
	})
}

// Deliveries returns every webhook that was sent, each try on its own, in the order in which they were answered.
func (s *Simulator) Deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deliveries)
}
