package faults_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func crashWanted() bool { return os.Getenv(crashEnv) == "1" }

// needsCrash skips what takes too long even for the tests that take minutes.
func needsCrash(t *testing.T, how string) {
	t.Helper()
	if !crashWanted() {
		t.Skipf("takes many minutes, and is no part of make test or make test-faults: run it with `%s` (%s=1)", how, crashEnv)
	}
}

// column is a kind of crash points of the matrix.
type column struct {
	head, meaning string
	points        func(story, *trace) []point
	// never is why the points of this column cannot meet a story that has none.
	never string
}

var columns = []column{
	{"events", "the worker is killed after each event of the story's histories", afterEachEvent, ""},
	{
		"statements", "the worker is killed before, in and after each statement that it writes by", aroundEachStatement,
		"the worker writes nothing",
	},
	{"replies", "the reply to each statement that the worker writes by is lost after its commit", losingEachReply, ""},
	{"work", "the process that does the work is killed in and after each attempt", whileItWorks, "no work is done"},
	{"door", "the HTTP door is killed before, in and after each statement that it writes by, and while it waits", atTheDoor,
		"nothing is asked by HTTP"},
	{"channel", "the channel's answers are lost, and the worker is killed while it waits for one", theChannelsAnswers,
		"nothing is sent through a channel"},
}

const (
	postgresKilledHead = "Postgres"
	temporalKilledHead = "Temporal"
)

// rounds are how long after the beginning of a story a server is killed under it. down is how long it is away.
var rounds = []time.Duration{100 * time.Millisecond, 1800 * time.Millisecond, 4 * time.Second}

const (
	down = 3 * time.Second
	// atOnce is how many stories are played at once where only their own processes are killed.
	atOnce = 16
)

// matrix is what became of every story at every crash point.
type matrix struct {
	mu     sync.Mutex
	cells  map[[2]string]*cell
	traces map[string]*trace
}

type cell struct {
	// met counts the playings in which something broke.
	met, played int
	red         []string
}

// record notes how a playing ended.
func (m *matrix) record(head, name, point string, failed, met bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]string{head, name}
	if m.cells[key] == nil {
		m.cells[key] = &cell{}
	}
	c := m.cells[key]
	c.played++
	if met {
		c.met++
	}
	if failed {
		c.red = append(c.red, point)
	}
}

// play tells the story once, and says what became of it. Set up, it calls ready and waits as that says.
func (m *matrix) play(t *testing.T, servers *pair, s story, head string, at point, ready func()) {
	t.Helper()
	struck := false
	t.Cleanup(func() { m.record(head, s.name, at.name, t.Failed(), struck) })
	p := newPlay(t, servers)
	t.Cleanup(func() {
		p.end()
		struck = p.struck.Load() > 0
	})
	if s.knocks {
		p.openGateway()
	}
	at.arm(p)
	ready()
	s.tell(p)
	p.isQuiet()
	p.end()
}

// traced plays the story where nothing breaks.
func (m *matrix) traced(t *testing.T, servers *pair, s story) {
	found := &trace{}
	var told *play
	m.play(t, servers, s, "none", point{"", func(p *play) {
		told = p
		found.worker.count(p.proxy)
		if s.knocks {
			found.gateway.count(p.door.proxy)
		}
	}}, func() {})
	told.traceRuns(found)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.traces[s.name] = found
}

// outage plays all stories at once, several times, and kills a server under them.
func (m *matrix) outage(t *testing.T, servers *pair, head string, kill func(), restart func(context.Context) error) {
	begin, over := make([]chan struct{}, len(rounds)), make(chan struct{})
	var ready sync.WaitGroup
	ready.Add(len(rounds) * len(stories))
	var mu sync.Mutex
	open := map[*play]bool{}
	for round := range rounds {
		begin[round] = make(chan struct{})
	}
	go func() {
		defer close(over)
		ready.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		for round, after := range rounds {
			close(begin[round])
			stays(after)
			kill()
			mu.Lock()
			for p := range open {
				p.struck.Add(1)
			}
			mu.Unlock()
			stays(down)
			assert.NoError(t, restart(ctx))
		}
	}()
	for round, after := range rounds {
		for _, s := range stories {
			t.Run(fmt.Sprintf("%s/%s after it began", s.name, after), func(t *testing.T) {
				t.Parallel()
				isReady := sync.OnceFunc(ready.Done)
				defer isReady()
				var this *play
				told := s
				told.tell = func(p *play) {
					defer func() {
						mu.Lock()
						delete(open, p)
						mu.Unlock()
						// What proves a playing's end needs the servers.
						<-over
					}()
					s.tell(p)
				}
				m.play(t, servers, told, head, point{after.String(), func(p *play) {
					this = p
					// Its heartbeats do not reach the server either.
					p.lenient = true
				}}, func() {
					isReady()
					<-begin[round]
					mu.Lock()
					open[this] = true
					mu.Unlock()
				})
			})
		}
	}
}

// table is the matrix in words.
func (m *matrix) table(took time.Duration) string {
	heads := []string{}
	for _, c := range columns {
		heads = append(heads, c.head)
	}
	heads = append(heads, postgresKilledHead, temporalKilledHead)
	var text, reds strings.Builder
	fmt.Fprintf(&text, "\n%-28s", "")
	for _, head := range heads {
		fmt.Fprintf(&text, " %-10s", head)
	}
	met := 0
	for _, s := range stories {
		fmt.Fprintf(&text, "\n%-28s", s.name)
		for _, head := range heads {
			c, word := m.cells[[2]string{head, s.name}], "-"
			switch {
			case c == nil:
			case len(c.red) > 0:
				word = fmt.Sprintf("RED %d/%d", len(c.red), c.played)
				fmt.Fprintf(&reds, "RED %s, %s: %s\n", head, s.name, strings.Join(c.red, "; "))
			case c.met > 0:
				word = fmt.Sprintf("ok %d", c.met)
			}
			if c != nil {
				met += c.met
			}
			fmt.Fprintf(&text, " %-10s", word)
		}
	}
	fmt.Fprintf(&text, "\n\n%d playings met their crash, in %s\n", met, took.Round(time.Second))
	for _, c := range columns {
		fmt.Fprintf(&text, "%-10s %s", c.head, c.meaning)
		if c.never != "" {
			fmt.Fprintf(&text, "; -: %s", c.never)
		}
		text.WriteByte('\n')
	}
	fmt.Fprintf(&text, "%-10s the server is killed %v after the beginning of all stories at once, and is away for %s\n",
		postgresKilledHead, rounds, down)
	fmt.Fprintf(&text, "%-10s the same, its data on disk\n", temporalKilledHead)
	return text.String() + reds.String()
}

// tellProgress prints now and then how far the matrix is.
func (m *matrix) tellProgress(ctx context.Context, began time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(30 * time.Second):
		}
		played, red := 0, 0
		m.mu.Lock()
		for _, c := range m.cells {
			played, red = played+c.played, red+len(c.red)
		}
		m.mu.Unlock()
		fmt.Printf("%s: %d playings of stories are over, %d red\n", time.Since(began).Round(time.Second), played, red)
	}
}

// Every story is crossed with every crash point. What each cell means: docs/proof.md.
func TestCrashMatrix(t *testing.T) {
	needsCrash(t, "make crash")
	began := time.Now()
	workerBinary(t)
	m := &matrix{cells: map[[2]string]*cell{}, traces: map[string]*trace{}}
	t.Cleanup(func() { fmt.Print(m.table(time.Since(began))) })
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go m.tellProgress(ctx, began)
	t.Run("processes", func(t *testing.T) {
		servers := startPair(t, atOnce, false)
		t.Run("none", func(t *testing.T) {
			for _, s := range stories {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					m.traced(t, servers, s)
				})
			}
		})
		for _, c := range columns {
			for _, s := range stories {
				found := m.traces[s.name]
				if found == nil {
					continue // not asked for, or red
				}
				for _, at := range c.points(s, found) {
					t.Run(c.head+"/"+s.name+"/"+at.name, func(t *testing.T) {
						t.Parallel()
						m.play(t, servers, s, c.head, at, func() {})
					})
				}
			}
		}
	})
	t.Run("servers", func(t *testing.T) {
		servers := startPair(t, len(rounds)*len(stories), true)
		t.Run(postgresKilledHead, func(t *testing.T) {
			m.outage(t, servers, postgresKilledHead, servers.postgres.Kill, servers.postgres.Restart)
		})
		t.Run(temporalKilledHead, func(t *testing.T) {
			m.outage(t, servers, temporalKilledHead, servers.temporal.Kill, servers.temporal.Restart)
		})
	})
}
