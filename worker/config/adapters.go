package config

import (
	"errors"
	"time"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/activities/channel/stripe"
)

// adapter is one kind of channel.
type adapter struct {
	// isPlay marks a channel that moves no real money: its key may go over a network in plain text.
	isPlay   bool
	declares func() channel.Capabilities
	// open sends nothing. The error shows no secret.
	open func(ChannelConfig) (channel.Channel, error)
}

// adapters are the kinds that this release knows.
var adapters = map[string]adapter{
	stripe.Kind: {
		declares: (&stripe.Channel{}).Capabilities,
		open: func(c ChannelConfig) (channel.Channel, error) {
			return stripe.New(stripe.Options{
				APIKey: c.APIKey.Reveal(), WebhookSecrets: []string{c.WebhookSecret.Reveal()}, BaseURL: c.BaseURL,
			})
		},
	},
	// The simulator speaks Stripe's API, so its adapter is Stripe's; only its pace is another, for people who watch.
	"simulator": {
		isPlay:   true,
		declares: simulated,
		open: func(c ChannelConfig) (channel.Channel, error) {
			if c.BaseURL == "" {
				return nil, errors.New("base_url is missing: a simulator has no address of its own")
			}
			opened, err := stripe.New(stripe.Options{
				APIKey: c.APIKey.Reveal(), WebhookSecrets: []string{c.WebhookSecret.Reveal()}, BaseURL: c.BaseURL,
			})
			return channel.Declare(opened, simulated()), err
		},
	},
}

func simulated() channel.Capabilities {
	declared := (&stripe.Channel{}).Capabilities()
	declared.Kind = "simulator"
	declared.MinSpacing, declared.SearchLag, declared.FirstQuery = 100*time.Millisecond, time.Second, time.Second
	declared.Poll, declared.GiveUp = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second}, 30*time.Second
	return declared
}
