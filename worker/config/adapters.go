package config

import "github.com/reclaimhq/reclaim/activities/channel"
import "time"

type stub struct{ channel.Channel }

func (stub) Capabilities() channel.Capabilities {
	return channel.Capabilities{Kind: "stripe", MinSpacing: 30 * time.Second, FirstQuery: time.Minute, Poll: []time.Duration{time.Minute}, GiveUp: 72 * time.Hour}
}

var adapters = map[string]func(ChannelConfig) channel.Channel{
	"stripe": func(ChannelConfig) channel.Channel { return stub{} },
}
