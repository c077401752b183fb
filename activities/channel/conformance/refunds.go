package conformance

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

func twiceIsOnce(t *testing.T, s Subject) {
	r := s.refund(s.Payment(t, 1000), 400)
	first := s.submit(t, r)
	s.acknowledged(t, first, r)
	r.Reference = first.Reference
	for range 3 {
		s.acknowledged(t, s.submit(t, r), r)
	}
	assert.Equal(t, int64(400), s.moved(t, r.Payment))

	other := s.refund(r.Payment, 400)
	e := s.submit(t, other)
	s.acknowledged(t, e, other)
	assert.NotEqual(t, first.Reference, e.Reference, "another number is another refund")
	assert.Equal(t, int64(800), s.moved(t, r.Payment))
}

// atOnce submits all the refunds at the same time.
func (s Subject) atOnce(t *testing.T, refunds []channel.Refund) []channel.Evidence {
	answers := make([]channel.Evidence, len(refunds))
	errs := make([]error, len(refunds))
	ctx := within(t)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i, r := range refunds {
		all.Go(func() {
			<-start
			answers[i], errs[i] = s.Channel.Submit(ctx, r)
		})
	}
	close(start)
	all.Wait()
	for i, e := range answers {
		require.NoError(t, errs[i])
		s.check(t, e)
	}
	return answers
}

func manyAreOne(t *testing.T, s Subject) {
	r := s.refund(s.Payment(t, 1000), 100)
	refunds := make([]channel.Refund, 8)
	for i := range refunds {
		refunds[i] = r
	}
	references := map[string]bool{}
	for _, e := range s.atOnce(t, refunds) {
		// One that came while another was being carried out may have been turned away; it has not failed.
		if e.Outcome != channel.OutcomeUnknown {
			s.acknowledged(t, e, r)
			references[e.Reference] = true
		}
	}
	assert.Len(t, references, 1)
	assert.Equal(t, int64(100), s.moved(t, r.Payment))
}

func oneAmount(t *testing.T, s Subject) {
	r := s.refund(s.Payment(t, 1000), 300)
	first := s.submit(t, r)
	s.acknowledged(t, first, r)
	for _, amount := range []int64{200, 301, 1000, 5000} {
		other := r
		other.Amount = amount
		s.notAnother(t, s.submit(t, other), r, first)
		assert.Equal(t, int64(300), s.moved(t, r.Payment))
	}
	r.Reference = first.Reference
	s.acknowledged(t, s.submit(t, r), r)
}

func onePayment(t *testing.T, s Subject) {
	r := s.refund(s.Payment(t, 1000), 300)
	first := s.submit(t, r)
	s.acknowledged(t, first, r)
	other := r
	other.Payment = s.Payment(t, 1000)
	s.notAnother(t, s.submit(t, other), r, first)
	assert.Zero(t, s.moved(t, other.Payment))
	assert.Equal(t, int64(300), s.moved(t, r.Payment))
}

// notAnother requires that the answer to a number used anew is that of its first use, or none: not that it failed, since
// the refund of that number did not.
func (s Subject) notAnother(t *testing.T, e channel.Evidence, r channel.Refund, first channel.Evidence) {
	t.Helper()
	if e.Outcome != channel.OutcomeUnknown {
		r.Reference = first.Reference
		s.acknowledged(t, e, r)
	}
}

func lostAnswer(t *testing.T, s Subject) {
	r := s.refund(s.Payment(t, 1000), 400)
	s.LoseAnswer()
	e := s.submit(t, r)
	assert.Positive(t, e.Sends)
	if e.Sends < 2 { // else the transport has repeated it by itself, and the second answer counts
		require.Equal(t, channel.OutcomeUnknown, e.Outcome)
	}
	if s.Channel.Capabilities().QueryByNumber {
		found := s.query(t, r)
		s.acknowledged(t, found, r)
		r.Reference = found.Reference
	}
	s.acknowledged(t, s.submit(t, r), r)
	assert.Equal(t, int64(400), s.moved(t, r.Payment))

	s.LoseAnswer()
	e = s.query(t, r)
	assert.NotEqual(t, channel.OutcomeNotFound, e.Outcome, "no answer is not an answer")
	assert.NotEqual(t, channel.OutcomeFailed, e.Outcome)
	s.LoseAnswer()
	if all, err := s.Channel.List(within(t), r.Payment); err == nil {
		assert.Len(t, all, 1, "half a list is none")
	}
}

func finds(t *testing.T, s Subject) {
	payment := s.Payment(t, 1000)
	refunds := []channel.Refund{s.refund(payment, 100), s.refund(payment, 200), s.refund(payment, 200)}
	for i, r := range refunds {
		e := s.submit(t, r)
		s.acknowledged(t, e, r)
		refunds[i].Reference = e.Reference
	}
	for _, r := range refunds {
		e := s.query(t, r)
		s.acknowledged(t, e, r)
		if s.Channel.Capabilities().QueryByNumber {
			byNumber := r
			byNumber.Reference = ""
			e = s.query(t, byNumber)
			s.acknowledged(t, e, r)
		}
		assert.Zero(t, e.Sends, "a look-up sends no refund")
	}
	assert.Equal(t, int64(500), s.moved(t, payment))

	// A reference that is another refund's is answered with that one, as it is, and the caller sees that it is another.
	wrong := refunds[0]
	wrong.Reference = refunds[1].Reference
	if e := s.query(t, wrong); isAcknowledged(e) {
		s.acknowledged(t, e, refunds[1])
	}
}

func findsNothing(t *testing.T, s Subject) {
	payment := s.Payment(t, 1000)
	other, never := s.refund(payment, 100), s.refund(payment, 100)
	s.acknowledged(t, s.submit(t, other), other)
	if s.Channel.Capabilities().QueryByNumber {
		assert.Equal(t, channel.OutcomeNotFound, s.query(t, never).Outcome)
	}
	never.Reference = "re_" + never.Number
	e := s.query(t, never)
	assert.Contains(t, []channel.Outcome{channel.OutcomeNotFound, channel.OutcomeUnknown}, e.Outcome)
	assert.Equal(t, int64(100), s.moved(t, payment))
}

func lists(t *testing.T, s Subject) {
	payment, other := s.Payment(t, 1000), s.Payment(t, 1000)
	assert.Empty(t, s.list(t, payment))
	s.submit(t, s.refund(other, 999))
	want := map[string]int64{}
	for amount := int64(1); amount <= 5; amount++ {
		r := s.refund(payment, amount)
		s.acknowledged(t, s.submit(t, r), r)
		want[r.Number] = amount
	}
	if s.Foreign != nil {
		s.Foreign(t, payment, 77)
		want[""] = 77
	}
	got := map[string]int64{}
	for _, e := range s.list(t, payment) {
		s.acknowledged(t, e, channel.Refund{Number: e.Number, Payment: payment, Amount: e.Amount, Currency: s.Currency})
		got[e.Number] += e.Amount
	}
	assert.Equal(t, want, got)
}

func listsPages(t *testing.T, s Subject) {
	count := 2*s.PageSize + 1
	payment := s.Payment(t, int64(10*count))
	want := map[string]bool{}
	var oldest channel.Refund
	for i := range count {
		r := s.refund(payment, 1)
		e := s.submit(t, r)
		require.True(t, isAcknowledged(e), "%+v", e)
		require.False(t, want[e.Reference])
		want[e.Reference] = true
		if i == 0 {
			oldest = r
		}
	}
	got := map[string]bool{}
	for _, e := range s.list(t, payment) {
		require.False(t, got[e.Reference], "%s is listed twice", e.Reference)
		got[e.Reference] = true
	}
	assert.Equal(t, want, got)
	if s.Channel.Capabilities().QueryByNumber {
		s.acknowledged(t, s.query(t, oldest), oldest)
	}
}

func beyond(t *testing.T, s Subject) {
	payment := s.Payment(t, 1000)
	r := s.refund(payment, 600)
	s.acknowledged(t, s.submit(t, r), r)
	for _, amount := range []int64{401, 600, 1001, 1 << 40} {
		over := s.refund(payment, amount)
		e := s.submit(t, over)
		s.refused(t, e)
		assert.Equal(t, int64(600), s.moved(t, payment))
		if s.Channel.Capabilities().QueryByNumber {
			assert.Equal(t, channel.OutcomeNotFound, s.query(t, over).Outcome)
		}
	}
	rest := s.refund(payment, 400)
	s.acknowledged(t, s.submit(t, rest), rest)
	// Nothing is left. Whether it was this number that took the last of it, the channel may not say.
	assert.False(t, isAcknowledged(s.submit(t, s.refund(payment, 1))))
	assert.Equal(t, int64(1000), s.moved(t, payment))

	s.refused(t, s.submit(t, s.refund(payment+"none", 1)))
}

// refused requires that the channel will not make the refund, and that it is known where the far end speaks plainly.
func (s Subject) refused(t *testing.T, e channel.Evidence) {
	t.Helper()
	if s.Refuses {
		assert.Equal(t, channel.OutcomeFailed, e.Outcome, "%+v", e)
	} else {
		assert.False(t, isAcknowledged(e), "%+v", e)
	}
}

func manyWithin(t *testing.T, s Subject) {
	payment := s.Payment(t, 1000)
	refunds := make([]channel.Refund, 6)
	for i := range refunds {
		refunds[i] = s.refund(payment, 300)
	}
	acknowledged := 0
	for i, e := range s.atOnce(t, refunds) {
		if isAcknowledged(e) {
			s.acknowledged(t, e, refunds[i])
			acknowledged++
		}
	}
	assert.Equal(t, 3, acknowledged)
	assert.Equal(t, int64(900), s.moved(t, payment))
}
