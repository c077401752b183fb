package channel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Member is one channel of a Set.
type Member struct {
	Channel Channel
	// Tenants are those who may use it. None named: every tenant.
	Tenants []string
}

// Set is the channels that a worker can reach, by the names that orders refer to. It does not change.
type Set struct{ members map[string]Member }

// NewSet returns a set of these channels by name.
func NewSet(members map[string]Member) Set { return Set{maps.Clone(members)} }

// Why Get gives no channel.
var (
	ErrUnknownChannel = errors.New("this worker has no such channel")
	ErrNotForTenant   = errors.New("the channel is not for this tenant")
)

// Get returns the channel of that name for the tenant. The error wraps ErrUnknownChannel or ErrNotForTenant.
func (s Set) Get(name, tenant string) (Channel, error) {
	member, ok := s.members[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("channel %q: %w", name, ErrUnknownChannel)
	case len(member.Tenants) > 0 && !slices.Contains(member.Tenants, tenant):
		return nil, fmt.Errorf("channel %q, tenant %q: %w", name, tenant, ErrNotForTenant)
	}
	return member.Channel, nil
}

// Named returns the channel of that name, whoever may use it: for what the channel itself sends.
func (s Set) Named(name string) (Channel, error) {
	member, ok := s.members[name]
	if !ok {
		return nil, fmt.Errorf("channel %q: %w", name, ErrUnknownChannel)
	}
	return member.Channel, nil
}

// Names returns the names of the channels in order.
func (s Set) Names() []string { return slices.Sorted(maps.Keys(s.members)) }

// NamesFor returns the names of the channels that the tenant may use, in order.
func (s Set) NamesFor(tenant string) []string {
	names := []string{}
	for _, name := range s.Names() {
		if _, err := s.Get(name, tenant); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// Overrides is what an operator may declare otherwise than the adapter does. Zero values leave the adapter's word.
type Overrides struct {
	FirstQuery time.Duration
	Poll       []time.Duration
	GiveUp     time.Duration
	// SecondPersonFrom is a pointer, since 0 has a meaning: never.
	SecondPersonFrom *int64
}

// Apply returns the capabilities with the overrides in place.
func (o Overrides) Apply(declared Capabilities) Capabilities {
	if o.FirstQuery != 0 {
		declared.FirstQuery = o.FirstQuery
	}
	if len(o.Poll) > 0 {
		declared.Poll = slices.Clone(o.Poll)
	}
	if o.GiveUp != 0 {
		declared.GiveUp = o.GiveUp
	}
	if o.SecondPersonFrom != nil {
		declared.SecondPersonFrom = *o.SecondPersonFrom
	}
	return declared
}

// Override returns the channel with its declaration changed by the overrides, and nothing else.
func Override(c Channel, o Overrides) Channel { return overridden{c, o.Apply(c.Capabilities())} }

// Declare returns the channel with another declaration.
func Declare(c Channel, capabilities Capabilities) Channel { return overridden{c, capabilities} }

type overridden struct {
	Channel
	capabilities Capabilities
}

// Capabilities declares what the channel can do, as its operator has it.
func (o overridden) Capabilities() Capabilities { return o.capabilities }
