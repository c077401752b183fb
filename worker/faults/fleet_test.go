package faults_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestT32_RollingTheFleetLosesAndDoublesNothing(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	const jobs, rolls = 200, 5
	s := sharedWorld(t).stage(t, "")
	s.queue = "reclaim-" + s.tenant
	s.client = s.asker(s.queue)
	s.patience = 3 * time.Minute
	s.topUp(account, jobs*cost)
	done := newShelf()
	fleet := []*child{s.startChild(""), s.startChild("")}

	// A third is promised so soon that it is delivered late, and every fifth job's first attempt fails.
	numbers := make(chan int)
	var started atomic.Int64
	var submitters sync.WaitGroup
	for range 8 {
		submitters.Go(func() {
			for n := range numbers {
				id := fmt.Sprintf("j%d", n)
				s.cast(id, func(p *part) {
					p.work = func(ctx context.Context, meta contract.WorkMeta) (any, error) {
						if n%5 == 0 && meta.Attempt == 1 {
							return nil, errBusy
						}
						return done.keep(ctx, meta.IdempotencyKey, func() any {
							<-time.After(2 * time.Second)
							return n
						})
					}
				})
				promise := 5 * time.Minute
				if n%3 == 0 {
					promise = time.Second
				}
				verdict, err := s.client.StartJob(s.ctx(), s.job(id, promised(promise)))
				assert.NoError(t, err)
				assert.NotEqual(t, contract.VerdictDeclined, verdict.Verdict)
				started.Add(1)
			}
		})
	}
	go func() {
		defer close(numbers)
		for n := range jobs {
			numbers <- n
		}
	}()
	var slowest time.Duration
	for roll := range rolls {
		// Each deploy happens while jobs are being started.
		within(t, s.patience, "more jobs are started", func() bool { return started.Load() >= int64(jobs*(roll+1)/(rolls+2)) })
		fresh := s.startChild("")
		took := fleet[0].stop()
		assert.Less(t, took, 30*time.Second)
		slowest = max(slowest, took)
		fleet = append(fleet[1:], fresh)
	}
	submitters.Wait()
	late := 0
	for n := range jobs {
		result := s.runEnds(fmt.Sprintf("j%d", n))
		if result.Late {
			late++
			s.assertReclaimed(result)
		} else {
			s.assertDelivered(result)
		}
		assert.Equal(t, fmt.Sprint(n), string(result.Output))
	}
	assert.Equal(t, jobs, done.runs())
	assert.EqualValues(t, credits, s.balance())
	t.Logf("%d jobs, %d late, over %d deploys; the slowest stop took %s", jobs, late, rolls, slowest.Round(time.Millisecond))
}
