package channel_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

// declared is a channel that declares something and can do nothing.
type declared struct {
	channel.Channel
	capabilities channel.Capabilities
}

func (d *declared) Capabilities() channel.Capabilities { return d.capabilities }

func TestSetGivesAChannelToItsTenants(t *testing.T) {
	mine, everybodys := &declared{}, &declared{}
	members := map[string]channel.Member{
		"mine":       {Channel: mine, Tenants: []string{"acme", "umbrella"}},
		"everybodys": {Channel: everybodys},
	}
	set := channel.NewSet(members)
	delete(members, "mine")
	assert.Equal(t, []string{"everybodys", "mine"}, set.Names())

	for _, tc := range []struct {
		name, tenant string
		gives        channel.Channel
		fails        error
		says         string
	}{
		{"mine", "acme", mine, nil, ""},
		{"mine", "umbrella", mine, nil, ""},
		{"everybodys", "acme", everybodys, nil, ""},
		{"everybodys", "anybody", everybodys, nil, ""},
		{"mine", "other", nil, channel.ErrNotForTenant, `channel "mine", tenant "other"`},
		{"mine", "", nil, channel.ErrNotForTenant, `channel "mine"`},
		{"Mine", "acme", nil, channel.ErrUnknownChannel, `channel "Mine"`},
		{"", "acme", nil, channel.ErrUnknownChannel, `channel ""`},
	} {
		got, err := set.Get(tc.name, tc.tenant)
		if tc.fails != nil {
			require.ErrorIs(t, err, tc.fails, tc.says)
			require.ErrorContains(t, err, tc.says)
			assert.Nil(t, got)
			continue
		}
		require.NoError(t, err)
		assert.Same(t, tc.gives, got)
	}

	_, err := channel.Set{}.Get("mine", "acme")
	require.ErrorIs(t, err, channel.ErrUnknownChannel)
}

func TestOverrideChangesTheDeclarationOnly(t *testing.T) {
	never := int64(0)
	adapter := channel.Capabilities{
		Kind: "kind", NumberLength: 64, IdempotencyLife: 24 * time.Hour, QueryByNumber: true,
		FirstQuery: time.Minute, Poll: []time.Duration{time.Minute, time.Hour}, GiveUp: 72 * time.Hour,
		MinSpacing: time.Second, SecondPersonFrom: 50000, Currencies: map[string]int{"usd": 2},
	}
	c := &declared{capabilities: adapter}
	assert.Equal(t, adapter, channel.Override(c, channel.Overrides{}).Capabilities(), "nothing is overridden")

	o := channel.Overrides{
		FirstQuery: 2 * time.Minute, Poll: []time.Duration{time.Second}, GiveUp: time.Hour, SecondPersonFrom: &never,
	}
	want := adapter
	want.FirstQuery, want.Poll, want.GiveUp, want.SecondPersonFrom = 2*time.Minute, []time.Duration{time.Second}, time.Hour, 0
	changed := channel.Override(c, o)
	o.Poll[0] = time.Hour
	assert.Equal(t, want, changed.Capabilities())
	assert.Equal(t, adapter, c.Capabilities(), "the channel itself keeps its own")

	twice := channel.Override(changed, channel.Overrides{GiveUp: 2 * time.Hour})
	want.GiveUp = 2 * time.Hour
	assert.Equal(t, want, twice.Capabilities())
}
