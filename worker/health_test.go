package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/api/taskqueue/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestAPollerIsOnThisHostAndHasPolledLately(t *testing.T) {
	now := time.Now()
	poller := func(identity string, ago time.Duration) *taskqueue.PollerInfo {
		return &taskqueue.PollerInfo{Identity: identity, LastAccessTime: timestamppb.New(now.Add(-ago))}
	}
	others := []*taskqueue.PollerInfo{
		poller("1@other@reclaim", 0), poller("1@here@reclaim", 3*time.Minute), poller("here", 0), poller("", 0), {},
	}
	_, ok := pollerOn("here", others, now)
	assert.False(t, ok)
	identity, ok := pollerOn("here", append(others, poller("7@here@reclaim", 70*time.Second)), now)
	assert.True(t, ok)
	assert.Equal(t, "7@here@reclaim", identity)
}
