package schematest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// LossyProxy stands between a client and Postgres and does, on request, what a network does at the
// worst moment: it loses the reply of a statement that has taken effect, or delays a statement on
// its way to the server.
//
// It sees the SQL of simple and of prepared statements. What a client sends up to one Sync counts as
// one request: its reply is lost, or it is delayed, as a whole.
type LossyProxy struct {
	t        testing.TB
	upstream string
	listener net.Listener
	closing  chan struct{}
	pumps    sync.WaitGroup

	mu      sync.Mutex
	open    map[net.Conn]bool
	losses  []*loss
	holds   []*hold
	matched int
	lost    int
	held    int
}

// loss decides which matching executions lose their reply.
type loss struct {
	match func(sql string) bool
	loses func() bool
}

// hold delays matching executions until it is released.
type hold struct {
	match    func(sql string) bool
	released chan struct{}
}

// NewLossyProxy starts a proxy in front of the Postgres at the host and port upstreamAddr, and ends
// it with the test. It disturbs nothing until told to.
func NewLossyProxy(t testing.TB, upstreamAddr string) *LossyProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start the lossy proxy: %v", err)
	}
	p := &LossyProxy{
		t: t, upstream: upstreamAddr, listener: listener,
		closing: make(chan struct{}), open: map[net.Conn]bool{},
	}
	p.pumps.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL gives a connection URL that leads through the proxy to where dsn, itself a URL, leads.
func (p *LossyProxy) URL(dsn string) string {
	p.t.Helper()
	address, err := url.Parse(dsn)
	if err != nil || address.Host == "" {
		p.t.Fatalf("the lossy proxy needs a URL like postgres://user:password@host:port/database")
	}
	query := address.Query()
	query.Set("sslmode", "disable")
	address.Host, address.RawQuery = p.listener.Addr().String(), query.Encode()
	return address.String()
}

// Containing matches statements that contain every one of the fragments, in any case of letters.
func Containing(fragments ...string) func(sql string) bool {
	return func(sql string) bool {
		sql = strings.ToLower(sql)
		for _, fragment := range fragments {
			if !strings.Contains(sql, strings.ToLower(fragment)) {
				return false
			}
		}
		return true
	}
}

// LoseReply lets the next n matching executions run to their end on the server, drops what the
// server answers, success or error, and closes the connection.
func (p *LossyProxy) LoseReply(match func(sql string) bool, n int) {
	p.addLoss(match, func() bool {
		n--
		return n >= 0
	})
}

// LoseRandomly does what LoseReply does to each matching execution with the given probability
// between 0 and 1. The proxy uses random from then on: nobody else may.
func (p *LossyProxy) LoseRandomly(random *rand.Rand, probability float64, match func(sql string) bool) {
	p.addLoss(match, func() bool { return random.Float64() < probability })
}

func (p *LossyProxy) addLoss(match func(sql string) bool, loses func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses = append(p.losses, &loss{match: match, loses: loses})
}

// Hold keeps matching executions from reaching the server until release is called. They reach it
// then even when their client has given up meanwhile, as a delayed packet does.
func (p *LossyProxy) Hold(match func(sql string) bool) (release func()) {
	h := &hold{match: match, released: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := range p.holds {
			if p.holds[i] == h {
				p.holds = append(p.holds[:i:i], p.holds[i+1:]...)
				break
			}
		}
		close(h.released)
	})
}

// Matched counts the executions so far that a LoseReply, LoseRandomly or Hold was about, whether or
// not something happened to them.
func (p *LossyProxy) Matched() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.matched
}

// Lost counts the replies dropped so far. It grows before the client notices.
func (p *LossyProxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Held counts the requests that wait at this moment.
func (p *LossyProxy) Held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// judge tells what is to happen to a request that executes the given statements.
func (p *LossyProxy) judge(statements []string) (loses bool, waits []*hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sql := range statements {
		matched := false
		for _, l := range p.losses {
			if l.match(sql) {
				matched = true
				loses = l.loses() || loses
			}
		}
		for _, h := range p.holds {
			if h.match(sql) {
				matched = true
				waits = append(waits, h)
			}
		}
		if matched {
			p.matched++
		}
	}
	return loses, waits
}

// wait blocks until every hold is released; false means that the proxy closes.
func (p *LossyProxy) wait(holds []*hold) bool {
	if len(holds) == 0 {
		return true
	}
	p.addHeld(1)
	defer p.addHeld(-1)
	for _, h := range holds {
		select {
		case <-h.released:
		case <-p.closing:
			return false
		}
	}
	return true
}

func (p *LossyProxy) addHeld(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += n
}

func (p *LossyProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.pumps.Go(func() { p.serve(client) })
	}
}

// track remembers a connection so that close can end it; false means that the proxy closes.
func (p *LossyProxy) track(connection net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closing:
		_ = connection.Close()
		return false
	default:
		p.open[connection] = true
		return true
	}
}

func (p *LossyProxy) drop(connection net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, connection)
	_ = connection.Close()
}

func (p *LossyProxy) close() {
	p.mu.Lock()
	close(p.closing)
	_ = p.listener.Close()
	for connection := range p.open {
		_ = connection.Close()
	}
	p.mu.Unlock()
	p.pumps.Wait()
}

// serve runs one client's connection.
func (p *LossyProxy) serve(client net.Conn) {
	if !p.track(client) {
		return
	}
	defer p.drop(client)
	const connectLimit = 10 * time.Second
	server, err := net.DialTimeout("tcp", p.upstream, connectLimit)
	if err != nil {
		// The client sees a connection that ends, as it would without us.
		return
	}
	if !p.track(server) {
		return
	}
	defer p.drop(server)
	session := &session{
		proxy: p, client: client, server: server,
		statements: map[string]string{}, portals: map[string]string{},
	}
	if err := session.startUp(); err != nil {
		return
	}
	requests := make(chan struct{})
	go func() {
		defer close(requests)
		session.forwardRequests()
	}()
	session.forwardReplies()
	p.drop(client)
	p.drop(server)
	<-requests
}

// session is one client's connection. The two directions run in a goroutine each.
type session struct {
	proxy          *LossyProxy
	client, server net.Conn

	// What Parse and Bind have named; used by the requests' direction only.
	statements map[string]string
	portals    map[string]string

	mu sync.Mutex
	// Requests that the server has not answered with ReadyForQuery yet, oldest first: whether the
	// reply is lost.
	unanswered []bool
	// unfinished tells that the newest of them awaits its Sync.
	unfinished bool
}

// startUp forwards what comes before the first ordinary message.
func (s *session) startUp() error {
	const sslRequest, gssRequest = 80877103, 80877104
	for {
		packet, err := readFrame(s.client, 0)
		if err != nil {
			return err
		}
		if len(packet) >= 8 {
			code := binary.BigEndian.Uint32(packet[4:])
			if code == sslRequest || code == gssRequest {
				if _, err := s.client.Write([]byte{'N'}); err != nil {
					return err
				}
				continue
			}
		}
		_, err = s.server.Write(packet)
		return err
	}
}

// forwardRequests passes on what the client sends until the client has gone. What was sent before
// that still reaches the server, which sees the end of the connection after it.
func (s *session) forwardRequests() {
	defer func() {
		if connection, ok := s.server.(*net.TCPConn); ok {
			_ = connection.CloseWrite()
		}
	}()
	for {
		request, err := s.readRequest()
		if err != nil {
			return
		}
		loses, holds := s.proxy.judge(request.executes)
		if !s.proxy.wait(holds) {
			return
		}
		s.expect(loses, request.answered)
		if _, err := s.server.Write(request.bytes); err != nil {
			return
		}
		if loses && request.answered {
			// To the client the connection is already dead: what it sends from now on goes nowhere.
			return
		}
	}
}

// request is what a client sends before it may wait for an answer.
type request struct {
	bytes    []byte
	executes []string // the statements run by it
	answered bool     // the server answers it with ReadyForQuery
}

// readRequest reads up to a message that makes the server answer.
func (s *session) readRequest() (request, error) {
	var r request
	for {
		frame, err := readFrame(s.client, 1)
		if err != nil {
			return r, err
		}
		r.bytes = append(r.bytes, frame...)
		kind, body := frame[0], frame[5:]
		switch kind {
		case 'Q':
			var query pgproto3.Query
			if err := query.Decode(body); err != nil {
				return r, err
			}
			r.executes = append(r.executes, query.String)
		case 'P':
			var parse pgproto3.Parse
			if err := parse.Decode(body); err != nil {
				return r, err
			}
			s.statements[parse.Name] = parse.Query
		case 'B':
			var bind pgproto3.Bind
			if err := bind.Decode(body); err != nil {
				return r, err
			}
			s.portals[bind.DestinationPortal] = s.statements[bind.PreparedStatement]
		case 'E':
			var execute pgproto3.Execute
			if err := execute.Decode(body); err != nil {
				return r, err
			}
			r.executes = append(r.executes, s.portals[execute.Portal])
		}
		switch kind {
		case 'P', 'B', 'E', 'D', 'C':
			// More of the same request follows.
		case 'Q', 'S', 'F':
			r.answered = true
			return r, nil
		default:
			return r, nil
		}
	}
}

// expect notes, before the server can answer, what is to happen to the answer.
func (s *session) expect(loses, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unfinished {
		newest := len(s.unanswered) - 1
		s.unanswered[newest] = s.unanswered[newest] || loses
		s.unfinished = !answered
		return
	}
	if answered || loses {
		s.unanswered = append(s.unanswered, loses)
		s.unfinished = !answered
	}
}

// forwardReplies passes on what the server sends until a reply is lost or the server has gone. It
// goes on reading when the client has gone, so that the server can finish.
func (s *session) forwardReplies() {
	clientGone := false
	for started := false; ; {
		frame, err := readFrame(s.server, 1)
		if err != nil {
			return
		}
		ready := frame[0] == 'Z'
		// The first ReadyForQuery ends the start of the session and answers no request.
		loses := started && s.losesOldest(ready)
		started = started || ready
		if loses {
			if ready {
				s.proxy.addLost()
				return
			}
			continue
		}
		if !clientGone {
			_, err = s.client.Write(frame)
			clientGone = err != nil
		}
	}
}

// losesOldest tells whether the reply to the oldest request is lost, and forgets that request when
// the server has finished it.
func (s *session) losesOldest(finished bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unanswered) == 0 {
		return false
	}
	loses := s.unanswered[0]
	if finished {
		s.unanswered = s.unanswered[1:]
	}
	return loses
}

func (p *LossyProxy) addLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost++
}

// readFrame reads one message of the protocol: a header of the given size, the length, which counts
// itself, and the rest.
func readFrame(from io.Reader, header int) ([]byte, error) {
	const lengthSize, most = 4, 1 << 30
	frame := make([]byte, header+lengthSize)
	if _, err := io.ReadFull(from, frame); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(frame[header:])
	if length < lengthSize || length > most {
		return nil, fmt.Errorf("a message of %d bytes is not of Postgres' protocol", length)
	}
	frame = append(frame, make([]byte, length-lengthSize)...)
	if _, err := io.ReadFull(from, frame[header+lengthSize:]); err != nil {
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return frame, nil
}
