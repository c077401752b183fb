package simulator

import "time"

// Now is the simulator's time: real time, plus all that it was advanced by.
func (s *Simulator) Now() time.Time {
	defer s.mu.Unlock()
	return s.lock()
}

// Advance moves the simulator's time ahead at once; it never goes back. Refunds change and webhooks become due as they
// would have, had the time passed; Deliver waits until they are sent.
func (s *Simulator) Advance(d time.Duration) {
	s.mu.Lock()
	s.offset += max(d, 0)
	s.mu.Unlock()
	s.lock()
	s.mu.Unlock()
	s.rouse()
}

// lock locks mu, brings every refund up to date and returns the simulator's time. Whoever reads refunds uses it, so that
// a refund needs no goroutine of its own to change in time.
func (s *Simulator) lock() time.Time {
	s.mu.Lock()
	now := time.Now().Add(s.offset).UTC()
	s.live = s.settle(s.live, now)
	return now
}

// rouse makes the dispatcher look again.
func (s *Simulator) rouse() {
	select {
	case s.wake <- struct{}{}:
	default: // it has yet to look anyway
	}
}
