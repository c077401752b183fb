// Package conformance is the suite that every payment channel's adapter must pass, against whatever stands for its
// channel. What a far end cannot answer is not asked of it; an adapter passes when each case has run against some end.
package conformance

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

// Subject is an adapter, and the far end that it talks to.
type Subject struct {
	Channel channel.Channel
	// Payment makes a payment of that amount that can be refunded, and returns the channel's id of it.
	Payment func(t *testing.T, amount int64) string
	// Currency is that of the payments.
	Currency string
	// Secrets are the texts that no evidence may show.
	Secrets []string

	// Remembers says that the far end keeps the refunds that it is asked for and finds them again.
	Remembers bool
	// Idempotent says that it answers a number that it knows with the refund that it made first.
	Idempotent bool
	// Caps says that it lets no more go back than was paid, and Refuses that it says so in words that leave no doubt.
	Caps, Refuses bool
	// PageSize is how many refunds it lists at once, 0 where it does not turn pages.
	PageSize int

	// What follows is nil where the far end cannot do it.

	// Foreign refunds a part of the payment by other means than the channel.
	Foreign func(t *testing.T, payment string, amount int64)
	// Requests is how many requests have reached the far end.
	Requests func() int
	// LoseAnswer makes it carry out the next request and lose the answer.
	LoseAnswer func()
	// Notices returns the webhooks that it has sent so far and waits for those that are due.
	Notices func(t *testing.T) []Notice
	// Sign returns the header of a webhook with that body as the channel signs it at that time.
	Sign func(body []byte, at time.Time) http.Header
	// Elsewhere returns an adapter of the same kind, with the same secrets, for a far end at that URL.
	Elsewhere func(t *testing.T, url string) channel.Channel
}

// Notice is a webhook as it was received.
type Notice struct {
	Header http.Header
	Body   []byte
}

// Run runs every case that the far end can answer.
func Run(t *testing.T, s Subject) {
	always := func(Subject) bool { return true }
	remembers := func(s Subject) bool { return s.Remembers }
	once := func(s Subject) bool { return s.Remembers && s.Idempotent }
	for _, c := range []struct {
		name  string
		asked func(Subject) bool
		run   func(*testing.T, Subject)
	}{
		{"declares what can be obeyed", always, declares},
		{"acknowledges a refund", always, acknowledges},
		{"cannot be asked what makes no sense", always, refusesToSend},
		{"sends nothing when the time is up", always, sendsNothingLate},
		{"twice is once", once, twiceIsOnce},
		{"many at once are one", once, manyAreOne},
		{"a number is for one amount", once, oneAmount},
		{"a number is for one payment", once, onePayment},
		{"a lost answer is unknown, and is found", func(s Subject) bool { return once(s) && s.LoseAnswer != nil }, lostAnswer},
		{"finds a refund", remembers, finds},
		{"does not find what was never sent", remembers, findsNothing},
		{"lists every refund", remembers, lists},
		{"lists what it made in a period", remembers, listsMade},
		{"lists every page", func(s Subject) bool { return s.Remembers && s.PageSize > 0 }, listsPages},
		{"nothing moves beyond what was paid", func(s Subject) bool { return s.Remembers && s.Caps }, beyond},
		{"many at once stay within what was paid", func(s Subject) bool { return s.Remembers && s.Caps }, manyWithin},
		{"takes no notice from anybody", always, foreignNotices},
		{"takes the channel's notices", func(s Subject) bool { return s.Remembers && s.Notices != nil }, notices},
		{"takes signed rubbish for rubbish", func(s Subject) bool { return s.Sign != nil }, signedRubbish},
		{"reads any settlement file to its end", always, settlement},
		{"an end in disorder says nothing", func(s Subject) bool { return s.Elsewhere != nil }, disorder},
	} {
		if c.asked(s) {
			t.Run(c.name, func(t *testing.T) { c.run(t, s) })
		}
	}
}

// callTime bounds every call.
const callTime = 30 * time.Second

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	t.Cleanup(cancel)
	return ctx
}

// refund is a new one, under a number that nobody has used.
func (s Subject) refund(payment string, amount int64) channel.Refund {
	return channel.Refund{Number: "conf_" + rand.Text(), Payment: payment, Amount: amount, Currency: s.Currency}
}

func (s Subject) submit(t *testing.T, r channel.Refund) channel.Evidence {
	t.Helper()
	e, err := s.Channel.Submit(within(t), r)
	require.NoError(t, err)
	s.check(t, e)
	require.NotEqual(t, channel.OutcomeNotFound, e.Outcome, "nothing was looked for")
	return e
}

func (s Subject) query(t *testing.T, r channel.Refund) channel.Evidence {
	t.Helper()
	e, err := s.Channel.Query(within(t), r)
	require.NoError(t, err)
	s.check(t, e)
	return e
}

func (s Subject) list(t *testing.T, payment string) []channel.Evidence {
	t.Helper()
	all, err := s.Channel.List(within(t), payment)
	require.NoError(t, err)
	for _, e := range all {
		s.check(t, e)
	}
	return all
}

// moved is what has gone back, or is on its way back, from the payment.
func (s Subject) moved(t *testing.T, payment string) (amount int64) {
	t.Helper()
	for _, e := range s.list(t, payment) {
		if e.Outcome == channel.OutcomePending || e.Outcome == channel.OutcomeSucceeded {
			amount += e.Amount
		}
	}
	return amount
}

// requests is how many requests have come, 0 where nobody counts.
func (s Subject) requests() int {
	if s.Requests == nil {
		return 0
	}
	return s.Requests()
}

// check holds any evidence to what the port promises of it.
func (s Subject) check(t *testing.T, e channel.Evidence) {
	t.Helper()
	assert.LessOrEqual(t, len(e.Detail), channel.MaxDetail)
	assert.True(t, utf8.ValidString(e.Detail), "Detail is UTF-8")
	assert.GreaterOrEqual(t, e.Sends, 0)
	for _, secret := range s.Secrets {
		assert.NotContains(t, e.Detail+e.Code, secret)
	}
	switch e.Outcome {
	case channel.OutcomePending, channel.OutcomeSucceeded:
		assert.NotEmpty(t, e.Reference, "an acknowledged refund has a reference")
	case channel.OutcomeUnknown, channel.OutcomeFailed, channel.OutcomeNotFound:
		assert.NotEmpty(t, e.Code, "it has a word for %s", e.Outcome)
	default:
		assert.Fail(t, "no such outcome", string(e.Outcome))
	}
}

// acknowledged requires that the evidence is of the refund, and that the channel has it.
func (s Subject) acknowledged(t *testing.T, e channel.Evidence, r channel.Refund) {
	t.Helper()
	require.True(t, isAcknowledged(e), "%+v", e)
	want := channel.Evidence{
		Number: r.Number, Reference: e.Reference, Payment: r.Payment, Amount: r.Amount, Currency: r.Currency,
	}
	got := channel.Evidence{
		Number: e.Number, Reference: e.Reference, Payment: e.Payment, Amount: e.Amount, Currency: e.Currency,
	}
	if !s.Remembers && got.Number == "" {
		got.Number = want.Number // an end that remembers nothing may not repeat it either
	}
	require.Equal(t, want, got)
	if r.Reference != "" {
		require.Equal(t, r.Reference, e.Reference)
	}
}

func isAcknowledged(e channel.Evidence) bool {
	return e.Outcome == channel.OutcomePending || e.Outcome == channel.OutcomeSucceeded
}

func declares(t *testing.T, s Subject) {
	c := s.Channel.Capabilities()
	assert.Regexp(t, `^[a-z][a-z0-9_-]*$`, c.Kind)
	assert.Positive(t, c.NumberLength)
	assert.GreaterOrEqual(t, c.IdempotencyLife, time.Duration(0))
	assert.GreaterOrEqual(t, c.SearchLag, time.Duration(0))
	assert.True(t, c.IdempotencyLife > 0 || !s.Idempotent, "the far end honours numbers, and the adapter does not say so")
	assert.Positive(t, c.MinSpacing, "look-ups are apart")
	assert.GreaterOrEqual(t, c.FirstQuery, c.MinSpacing)
	assert.NotEmpty(t, c.Poll)
	for _, pause := range c.Poll {
		assert.GreaterOrEqual(t, pause, c.MinSpacing)
	}
	assert.GreaterOrEqual(t, c.GiveUp, c.FirstQuery)
	assert.GreaterOrEqual(t, c.GiveUp, c.SearchLag, "it is not given up before a look-up can prove anything")
	assert.GreaterOrEqual(t, c.SecondPersonFrom, int64(0))
	assert.Contains(t, c.Currencies, s.Currency)
	for code, exponent := range c.Currencies {
		assert.Regexp(t, `^[a-z]{3}$`, code)
		assert.True(t, 0 <= exponent && exponent <= 4, "%s has %d decimals", code, exponent)
	}
	assert.Positive(t, c.MaxNotice)
	assert.Positive(t, c.NoticeTolerance)

	for code := range c.Currencies {
		c.Currencies[code] = -1
	}
	c.Poll[0] = 0
	again := s.Channel.Capabilities()
	assert.Positive(t, again.Poll[0], "a caller cannot change the declaration")
	assert.NotEqual(t, -1, again.Currencies[s.Currency], "a caller cannot change the declaration")
}

func acknowledges(t *testing.T, s Subject) {
	r := s.refund(s.Payment(t, 1000), 400)
	e := s.submit(t, r)
	s.acknowledged(t, e, r)
	assert.Equal(t, 1, e.Sends)

	r.Number = (r.Number + strings.Repeat("-", 200))[:s.Channel.Capabilities().NumberLength]
	e = s.submit(t, r)
	s.acknowledged(t, e, r)
	if s.Remembers {
		assert.Equal(t, int64(800), s.moved(t, r.Payment))
	}
}

func refusesToSend(t *testing.T, s Subject) {
	payment := s.Payment(t, 1000)
	for name, change := range map[string]func(*channel.Refund){
		"no number":         func(r *channel.Refund) { r.Number = "" },
		"long number":       func(r *channel.Refund) { r.Number = strings.Repeat("n", s.Channel.Capabilities().NumberLength+1) },
		"blank in number":   func(r *channel.Refund) { r.Number = "a b" },
		"line in number":    func(r *channel.Refund) { r.Number = "a\r\nX: b" },
		"letter in number":  func(r *channel.Refund) { r.Number = "ä" },
		"no payment":        func(r *channel.Refund) { r.Payment = "" },
		"path in payment":   func(r *channel.Refund) { r.Payment += "/../refunds" },
		"query in payment":  func(r *channel.Refund) { r.Payment += "?amount=1000" },
		"no amount":         func(r *channel.Refund) { r.Amount = 0 },
		"negative amount":   func(r *channel.Refund) { r.Amount = -400 },
		"no currency":       func(r *channel.Refund) { r.Currency = "" },
		"unknown currency":  func(r *channel.Refund) { r.Currency = "xxx" },
		"capital currency":  func(r *channel.Refund) { r.Currency = strings.ToUpper(r.Currency) },
		"currency's blanks": func(r *channel.Refund) { r.Currency += " " },
	} {
		t.Run(name, func(t *testing.T) {
			r := s.refund(payment, 400)
			change(&r)
			before := s.requests()
			e, err := s.Channel.Submit(within(t), r)
			var unusable *channel.Unusable
			require.ErrorAs(t, err, &unusable)
			assert.NotEmpty(t, unusable.Field)
			assert.NotEmpty(t, unusable.Rule)
			assert.Zero(t, e)
			assert.Equal(t, before, s.requests(), "nothing is sent")
		})
	}
	if s.Remembers {
		assert.Zero(t, s.moved(t, payment))
	}
}

func sendsNothingLate(t *testing.T, s Subject) {
	r := s.refund(s.Payment(t, 1000), 400)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := s.requests()
	for name, call := range map[string]func(context.Context, channel.Refund) (channel.Evidence, error){
		"submit": s.Channel.Submit, "query": s.Channel.Query,
	} {
		e, err := call(ctx, r)
		require.NoError(t, err, name)
		s.check(t, e)
		assert.Equal(t, channel.OutcomeUnknown, e.Outcome, name)
		assert.Zero(t, e.Sends, name)
	}
	_, err := s.Channel.List(ctx, r.Payment)
	require.Error(t, err)
	assert.Equal(t, before, s.requests(), "nothing is sent")
	s.acknowledged(t, s.submit(t, r), r)
}
