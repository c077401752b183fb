package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/starter/api"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// postRoute is a route that takes a body, with one that is right but for what it names.
type postRoute struct {
	path string
	body string
	// text and number are members of the body that must be given; text is the body's first member.
	text, number string
	// keyed routes need an Idempotency-Key.
	keyed bool
	// beyond is a number that is too large or too small for its member.
	beyond []string
	limit  int
}

func postRoutes() []postRoute {
	return []postRoute{
		{
			path: "/v1/accounts/a/topups", body: `{"reason":"r","amount":5}`, text: "reason", number: "amount", keyed: true,
			beyond: []string{"-1", "0", "-0", "9007199254740992"}, limit: contract.MaxInputBytes,
		},
		{
			path: "/v1/orders", body: `{"orderId":"o2","account":"a","channel":"c","payment":"p","currency":"eur","credits":1,"paid":5}`,
			text: "orderId", number: "paid", keyed: true, beyond: []string{"-1", "0", "-0", "9007199254740992"}, limit: contract.MaxInputBytes,
		},
		{
			path: "/v1/jobs", body: `{"jobId":"j2","account":"a","promise":"1m","work":{"activity":"A","taskQueue":"q","timeout":"1m"},"cost":5}`,
			text: "jobId", number: "cost", beyond: []string{"-1", "9007199254740992"}, limit: contract.MaxInputBytes,
		},
		{
			path: "/v1/jobs/j1/outcome", body: `{"state":"succeeded","attempt":5}`, text: "state", number: "attempt",
			beyond: []string{"-1", "2147483648"}, limit: 2 << 20,
		},
		{
			path: "/v1/jobs/j1/resolution", body: `{"id":"r1","action":"retry","operator":"ann","reason":"r","attempts":5}`,
			text: "id", number: "attempts", beyond: []string{"-1", "101"}, limit: contract.MaxInputBytes,
		},
		{
			path: "/v1/refunds", body: `{"orderId":"o1","reason":"r","amount":5}`, text: "orderId", number: "amount", keyed: true,
			beyond: []string{"-1", "0", "-0", "9007199254740992"}, limit: contract.MaxInputBytes,
		},
		{
			path: "/v1/refunds/rf_1/resolution",
			body: `{"id":"r1","action":"settle","operator":"ann","reason":"r","evidence":"e","channelRef":"re_1","amount":5}`,
			text: "id", number: "amount", beyond: []string{"-1", "0", "-0"}, limit: contract.MaxInputBytes,
		},
	}
}

// badBody is a body that no route takes, and the field that is named; "" where it is about the whole.
type badBody struct{ name, body, field string }

func (r postRoute) badBodies() []badBody {
	rest := r.body[1:]
	number := func(text string) string {
		return r.body[:strings.LastIndex(r.body, ":")+1] + text + "}"
	}
	text := func(value string) string {
		return strings.Replace(r.body, r.body[:strings.Index(r.body, ",")], `{"`+r.text+`":`+value, 1)
	}
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	all := []badBody{
		{"empty", "", ""}, {"spaces", "  ", ""}, {"null", "null", ""}, {"a list", "[" + r.body + "]", ""}, {"a number", "1", ""},
		{"a text", `"{}"`, ""}, {"true", "true", ""}, {"cut off", r.body[:len(r.body)-1], ""}, {"two values", r.body + r.body, ""},
		{"trailing garbage", r.body + "x", ""}, {"trailing NUL", r.body + "\x00", ""}, {"a byte order mark", "\ufeff" + r.body, ""},
		{"a comment", "{/**/" + rest, ""}, {"single quotes", strings.ReplaceAll(r.body, `"`, "'"), ""},
		{"a trailing comma", r.body[:len(r.body)-1] + ",}", ""}, {"UTF-16", "\xff\xfe{\x00}\x00", ""},
		{"a name given twice", `{"` + r.number + `":5,` + rest, r.number},
		{"a name given twice by an escape", `{"` + fmt.Sprintf(`\u%04x`, r.number[0]) + r.number[1:] + `":5,` + rest, r.number},
		{"an unknown name", `{"zzz":1,` + rest, "zzz"}, {"an empty name", `{"":1,` + rest, ""},
		{"another case", strings.Replace(r.body, `"`+r.text, `"`+strings.ToUpper(r.text), 1), strings.ToUpper(r.text)},
		{"invalid UTF-8", text("\"a\xff\""), r.text}, {"half a surrogate pair", text(`"\ud800"`), r.text},
		{"the other half", text(`"\udc00x"`), r.text}, {"NUL", text(`"a\u0000b"`), r.text}, {"a raw NUL", text("\"a\x00b\""), r.text},
		{"a list for a text", text(`[]`), r.text}, {"an object for a text", text(`{}`), r.text}, {"a number for a text", text(`1`), r.text},
		{"a text for a number", number(`"5"`), r.number}, {"true for a number", number(`true`), r.number},
		{"a fraction", number("5.5"), r.number}, {"a fraction of nothing", number("5.0"), r.number}, {"an exponent", number("1e0"), r.number},
		{"a plus", number("+5"), ""}, {"a leading zero", number("05"), ""}, {"NaN", number("NaN"), ""}, {"hexadecimal", number("0x5"), ""},
		{"beyond 64 bits", number("9223372036854775808"), r.number}, {"far beyond", number("1e400"), r.number},
		{"deep", `{"zzz":` + deep + "," + rest, ""}, {"a body of a megabyte that ends too early", `{"zzz":"` + strings.Repeat("x", 1<<20), ""},
		{"a long name", `{"` + strings.Repeat("n", 60_000) + `":1,` + rest, ""},
	}
	for _, n := range r.beyond {
		all = append(all, badBody{"the number " + n, number(n), r.number})
	}
	return all
}

// written counts what bad input must leave as it was.
func (s *stand) written() map[string]int {
	s.t.Helper()
	counts := map[string]int{}
	for _, table := range []string{
		"accounts", "ledger_entries", "jobs", "job_events", "orders", "operations", "refunds", "refund_events", "issues", "resolutions", "outbox",
	} {
		var n int
		require.NoError(s.t, s.store.Pool.QueryRow(s.t.Context(), "SELECT count(*) FROM reclaim."+table).Scan(&n))
		counts[table] = n
	}
	return counts
}

// furnish gives what the bad requests are about: account a, order o1, job j1.
func (s *stand) furnish() {
	s.t.Helper()
	raw, job, err := contract.Job{
		Tenant: "acme", JobID: "j1", Account: "a", Cost: 1, Promise: contract.Duration(time.Minute),
		Work: contract.Work{Activity: "A", TaskQueue: "q", Timeout: contract.Duration(time.Minute)},
	}.Encode()
	require.NoError(s.t, err)
	fingerprint, err := job.Fingerprint()
	require.NoError(s.t, err)
	_, err = s.client.TopUp(s.t.Context(), client.Movement{Tenant: "acme", Actor: "test", Account: "a", Key: "furnish", Amount: 500})
	require.NoError(s.t, err)
	row, err := s.store.ChargeJob(s.t.Context(), db.ChargeJobParams{
		TenantID: "acme", JobID: "j1", AccountID: "a", Cost: 1, Fingerprint: fingerprint, Spec: string(raw), Reason: "test",
		NotAfter: s.store.NotAfter(),
	})
	require.NoError(s.t, err)
	require.Equal(s.t, "applied", row.Answer)
	_, err = s.client.AddOrder(s.t.Context(), contract.Order{
		Tenant: "acme", OrderID: "o1", Account: "a", Channel: "c", Payment: "p1", Currency: "eur", Paid: 100, Credits: 100, Actor: "test", Key: "o1",
	})
	require.NoError(s.t, err)
}

// refusal is what an answer that is no success must say.
type refusal struct {
	status int
	code   contract.Code
	field  string
}

// mustRefuse checks an answer to the letter.
func mustRefuse(t *testing.T, about string, want refusal, answer reply, problem map[string]any) {
	t.Helper()
	if !assert.Equal(t, want.status, answer.StatusCode, "%s: %v", about, problem) {
		return
	}
	assert.Equal(t, "application/problem+json", answer.Header.Get("Content-Type"), about)
	assert.Equal(t, string(want.code), problem["code"], "%s: %v", about, problem)
	assert.EqualValues(t, want.status, problem["status"], about)
	assert.NotEmpty(t, problem["retry"], about)
	assert.NotEmpty(t, problem["detail"], about)
	if want.field == "" {
		return
	}
	var fields []string
	listed, _ := problem["fields"].([]any)
	for _, one := range listed {
		member, _ := one.(map[string]any)
		name, _ := member["field"].(string)
		fields = append(fields, name)
	}
	assert.Contains(t, fields, want.field, "%s: %v", about, problem)
}

func TestNoRouteTakesABadBody(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.options.Limits.Rate, s.options.Limits.Burst = 1e6, 1e6
	s.furnish()
	address, key := s.open(), s.key()
	before := s.written()
	for _, route := range postRoutes() {
		for _, bad := range route.badBodies() {
			status, code := http.StatusBadRequest, contract.CodeBadInput
			answer, problem := s.ask(http.MethodPost, address+route.path, key, bad.body, "Idempotency-Key", "k")
			if answer.StatusCode == http.StatusConflict && strings.HasSuffix(route.path, "/resolution") {
				// It was read, and breaks a rule of decisions.
				status, code = http.StatusConflict, contract.CodeBadResolution
			}
			if len(bad.body) > route.limit {
				status, bad.field = http.StatusRequestEntityTooLarge, ""
			}
			about := route.path + " with " + bad.name
			mustRefuse(t, about, refusal{status, code, bad.field}, answer, problem)
			assert.Less(t, len(fmt.Sprint(problem)), 4000, about)
		}
	}
	answer, problem := s.ask(http.MethodPost, address+"/v1/jobs/j1/cancellation", key, `{"zzz":1}`)
	mustRefuse(t, "a cancellation with a member", refusal{http.StatusBadRequest, contract.CodeBadInput, "zzz"}, answer, problem)
	assert.Equal(t, before, s.written(), "something was written")
}

func TestABodyIsOfTheRightKindAndSize(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.furnish()
	address, key := s.open(), s.key()
	before := s.written()
	for _, route := range append(postRoutes(), postRoute{path: "/v1/jobs/j1/cancellation", body: "{}", limit: contract.MaxInputBytes}) {
		for _, sent := range []string{
			"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "application/json; charset=utf-16",
			"application/json; charset", "application/json, text/plain", "application/jsonx", "é",
		} {
			answer, problem := s.ask(http.MethodPost, address+route.path, key, route.body, "Idempotency-Key", "k", "Content-Type", sent)
			mustRefuse(t, route.path+" as "+sent, refusal{http.StatusUnsupportedMediaType, contract.CodeBadInput, ""}, answer, problem)
		}
		over := `{"zzz":"` + strings.Repeat("x", route.limit) + `"}`
		answer, problem := s.ask(http.MethodPost, address+route.path, key, over, "Idempotency-Key", "k")
		mustRefuse(t, route.path+" beyond its limit", refusal{http.StatusRequestEntityTooLarge, contract.CodeBadInput, ""}, answer, problem)
		for _, framing := range []string{"Content-Length: 10485760\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\na00000\r\n"} {
			status := s.pour(strings.TrimPrefix(address, "http://"), route.path, key, framing)
			assert.Equal(t, http.StatusRequestEntityTooLarge, status, "%s: %s", route.path, framing)
		}
	}
	assert.Equal(t, before, s.written(), "something was written")
}

// pour sends a body of ten megabytes, in one piece or as a chunk of unknown length, and reads the answer while it does: the
// door hangs up on what it does not take.
func (s *stand) pour(address, path, key, framing string) (status int) {
	s.t.Helper()
	connection, err := net.Dial("tcp", address)
	require.NoError(s.t, err)
	poured := make(chan struct{})
	defer func() {
		_ = connection.Close()
		<-poured
	}()
	require.NoError(s.t, connection.SetDeadline(time.Now().Add(time.Minute)))
	go func() {
		defer close(poured)
		head := "POST " + path + " HTTP/1.1\r\nHost: reclaim\r\nAuthorization: Bearer " + key + "\r\nIdempotency-Key: k\r\n" +
			"Content-Type: application/json\r\n" + framing
		_, _ = io.Copy(connection, io.MultiReader(strings.NewReader(head), strings.NewReader(strings.Repeat(" ", 10<<20))))
	}()
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	require.NoError(s.t, err)
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode
}

func TestOddHeadersAreRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.furnish()
	address, key := s.open(), s.key()
	before := s.written()
	ask := func(route postRoute, change func(http.Header)) (reply, map[string]any) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+route.path, strings.NewReader(route.body))
		require.NoError(t, err)
		request.Header = http.Header{
			"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}, "Idempotency-Key": {"k"},
		}
		change(request.Header)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		var problem map[string]any
		_ = json.NewDecoder(answer.Body).Decode(&problem)
		return reply{answer.StatusCode, answer.Header}, problem
	}
	for _, route := range postRoutes() {
		for name, credentials := range map[string][]string{
			"two credentials": {"Bearer " + key, "Bearer " + key}, "two in one": {"Bearer " + key + ", Bearer " + key},
			"another scheme": {"Basic " + key}, "no scheme": {key}, "nothing": {""}, "a key in capitals": {"Bearer " + strings.ToUpper(key)},
			"a longer key": {"Bearer " + key + "a"}, "not ASCII": {"Bearer rk_é"},
		} {
			answer, problem := ask(route, func(h http.Header) { h["Authorization"] = credentials })
			mustRefuse(t, route.path+" with "+name, refusal{http.StatusUnauthorized, contract.CodeUnauthorized, ""}, answer, problem)
		}
		if !route.keyed {
			continue
		}
		for name, keys := range map[string][]string{
			"none": nil, "an empty one": {""}, "a blank one": {"  "}, "two": {"k1", "k2"}, "the same twice": {"k", "k"},
			"one of 201 bytes": {strings.Repeat("k", 201)}, "one in Latin-1": {"k\xe9"}, "invalid UTF-8": {"\xff\xfe"},
		} {
			answer, problem := ask(route, func(h http.Header) {
				delete(h, "Idempotency-Key")
				if keys != nil {
					h["Idempotency-Key"] = keys
				}
			})
			mustRefuse(t, route.path+" with an Idempotency-Key: "+name,
				refusal{http.StatusBadRequest, contract.CodeBadInput, "Idempotency-Key"}, answer, problem)
		}
	}
	assert.Equal(t, before, s.written(), "something was written")
}

func TestOddAddressesAreRefused(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.furnish()
	address, key := s.open(), s.key()
	before := s.written()
	long := strings.Repeat("x", 101)
	ask := func(method, path, body string) (reply, map[string]any) {
		// A client would tidy the path up.
		request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
		require.NoError(t, err)
		request.URL.Opaque = strings.TrimPrefix(address, "http:") + path
		request.Header = http.Header{
			"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}, "Idempotency-Key": {"k"},
		}
		answer, err := http.DefaultTransport.RoundTrip(request)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		var problem map[string]any
		_ = json.NewDecoder(answer.Body).Decode(&problem)
		return reply{answer.StatusCode, answer.Header}, problem
	}
	ids := map[string]string{
		"/v1/accounts/ID/topups": "account", "/v1/accounts/ID": "account", "/v1/accounts/ID/statement": "account",
		"/v1/orders/ID": "orderId", "/v1/jobs/ID": "jobId", "/v1/jobs/ID/timeline": "jobId", "/v1/jobs/ID/outcome": "jobId",
		"/v1/jobs/ID/resolution": "jobId", "/v1/jobs/ID/cancellation": "jobId", "/v1/refunds/ID": "", "/v1/refunds/ID/resolution": "",
	}
	bodies := map[string]string{}
	for _, route := range postRoutes() {
		parts := strings.Split(route.path, "/")
		if len(parts) == 5 {
			bodies["/v1/"+parts[2]+"/ID/"+parts[4]] = route.body
		}
	}
	bodies["/v1/jobs/ID/cancellation"] = "{}"
	for path, field := range ids {
		method := http.MethodGet
		if bodies[path] != "" {
			method = http.MethodPost
		}
		for _, id := range []string{"a%2Fb", "%00", "a%00", long, "%C3%A9", "%FF", "a%20b", "a+b", "a;b", "%25", "a%0D%0Ab"} {
			answer, problem := ask(method, strings.Replace(path, "ID", id, 1), bodies[path])
			if strings.HasPrefix(path, "/v1/refunds/") && answer.StatusCode == http.StatusNotFound {
				mustRefuse(t, path+" of "+id, refusal{http.StatusNotFound, contract.CodeNotFound, ""}, answer, problem)
				continue
			}
			mustRefuse(t, path+" of "+id, refusal{http.StatusBadRequest, contract.CodeBadInput, field}, answer, problem)
		}
		for _, id := range []string{"", ".", "..", "%2e", "%2E%2E", "a%2F..%2Fb", "a%2F%2Fb", "a/", "./a"} {
			answer, problem := ask(method, strings.Replace(path, "ID", id, 1), bodies[path])
			if answer.StatusCode != http.StatusMethodNotAllowed {
				mustRefuse(t, path+" of "+id, refusal{http.StatusNotFound, contract.CodeNotFound, ""}, answer, problem)
			}
		}
		for query, field := range map[string]string{
			"zzz=1": "zzz", "zzz": "zzz", "zzz=1&zzz=2": "zzz", "a=%zz": "the query", "a=1;b=2": "the query", "%ff=1": "",
		} {
			answer, problem := ask(method, strings.Replace(path, "ID", "a", 1)+"?"+query, bodies[path])
			mustRefuse(t, path+"?"+query, refusal{http.StatusBadRequest, contract.CodeBadInput, field}, answer, problem)
		}
	}
	for query, field := range map[string]string{
		"from=yesterday": "from", "from=2026-01-01&from=2026-01-01": "from", "to=%00": "to", "timeZone=../x": "timeZone", "after=-1": "after",
		"after=1.0": "after", "limit=1e3": "limit", "limit=99999999999999999999": "limit", "limit=%2B1": "limit", "format=xml": "format",
		"Format=csv": "Format",
	} {
		answer, problem := ask(http.MethodGet, "/v1/accounts/a/statement?"+query, "")
		mustRefuse(t, query, refusal{http.StatusBadRequest, contract.CodeBadInput, field}, answer, problem)
	}
	for query, field := range map[string]string{"": "key", "key=": "key", "key=a&key=b": "key", "key=%00": "key", "key=" + strings.Repeat("k", 201): "key"} {
		answer, problem := ask(http.MethodGet, "/v1/refunds?"+query, "")
		mustRefuse(t, "refunds by "+query, refusal{http.StatusBadRequest, contract.CodeBadInput, field}, answer, problem)
	}
	answer, problem := ask(http.MethodGet, "/v1/issues?state=closed", "")
	mustRefuse(t, "issues", refusal{http.StatusBadRequest, contract.CodeBadInput, "state"}, answer, problem)
	for _, path := range []string{"/", "/v1", "/v1/", "/v2/jobs", "/v1/jobs/", "/v1//jobs", "//v1/jobs", "/v1/jobs/j1/", "/v1/jobs/j1/nothing", "/V1/jobs"} {
		answer, problem := ask(http.MethodPost, path, "{}")
		mustRefuse(t, path, refusal{http.StatusNotFound, contract.CodeNotFound, ""}, answer, problem)
		assert.Empty(t, answer.Header.Get("Location"), path)
	}
	for path, allowed := range map[string][]string{
		"/v1/jobs": {"POST"}, "/v1/jobs/j1": {"GET"}, "/v1/refunds": {"GET", "POST"}, "/healthz": {"GET"}, "/v1/channels/c/notices": {"POST"},
	} {
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "NONSENSE"} {
			answer, problem := ask(method, path, "")
			mustRefuse(t, method+" "+path, refusal{http.StatusMethodNotAllowed, contract.CodeNotFound, ""}, answer, problem)
			assert.Equal(t, allowed, answer.Header.Values("Allow"), "%s %s", method, path)
		}
	}
	assert.Equal(t, before, s.written(), "something was written")
}

// serve runs the door as a process does, with all its times, and returns where it listens.
func (s *stand) serve() (address string) {
	s.t.Helper()
	door, err := api.New(s.options)
	require.NoError(s.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	server := &http.Server{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- door.Serve(ctx, server, func() error { return server.Serve(listener) }) }()
	s.t.Cleanup(func() {
		stop()
		assert.NoError(s.t, <-ended)
	})
	return listener.Addr().String()
}

// wire sends bytes to the address as they are, and then no more: what is answered is read until the connection ends.
func wire(t *testing.T, address, sent string, hangUp bool) (answer string, took time.Duration) {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	began := time.Now()
	require.NoError(t, connection.SetDeadline(began.Add(time.Minute)))
	_, err = io.WriteString(connection, sent)
	require.NoError(t, err)
	if hangUp {
		require.NoError(t, connection.(*net.TCPConn).CloseWrite())
	}
	// A connection that is closed with bytes of ours unread may end in a reset.
	read, _ := io.ReadAll(bufio.NewReader(connection))
	return string(read), time.Since(began)
}

func TestWhatIsNoRequestOfHTTPsIsAnsweredAndTheConnectionClosed(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.furnish()
	address, key := s.serve(), s.key()
	before := s.written()
	body := `{"amount":5}`
	head := func(more ...string) string {
		lines := append([]string{
			"POST /v1/accounts/a/topups HTTP/1.1", "Host: reclaim", "Authorization: Bearer " + key, "Content-Type: application/json",
		}, more...)
		return strings.Join(lines, "\r\n") + "\r\n\r\n"
	}
	const keyLine = "Idempotency-Key: k"
	length := fmt.Sprintf("Content-Length: %d", len(body))
	for name, c := range map[string]struct {
		sent   string
		status string
		hangUp bool
	}{
		"NUL in the operation's key": {head("Idempotency-Key: k\x00", length) + body, "400", false},
		"headers of 32 KB":           {head(keyLine, length, "X-Much: "+strings.Repeat("x", 32<<10)) + body, "431", false},
		"two lengths":                {head(keyLine, length, "Content-Length: 5") + body, "400", false},
		"a negative length":          {head(keyLine, "Content-Length: -1"), "400", false},
		"a length and chunks":        {head(keyLine, length, "Transfer-Encoding: chunked", "Connection: close") + "zz\r\n", "400", false},
		"a chunk cut off":            {head(keyLine, "Transfer-Encoding: chunked") + "c\r\n" + body[:5], "400", true},
		"chunks without an end":      {head(keyLine, "Transfer-Encoding: chunked") + "c\r\n" + body + "\r\n", "400", true},
		"a chunk of nonsense":        {head(keyLine, "Transfer-Encoding: chunked") + "-1\r\n" + body + "\r\n", "400", true},
		"a body cut off":             {head(keyLine, "Content-Length: 100") + body, "400", true},
		"no host":                    {"GET /healthz HTTP/1.1\r\n\r\n", "400", false},
		"two operation keys":         {head(keyLine, keyLine, length, "Connection: close") + body, "400", false},
		"two kinds of body":          {head(keyLine, length, "Content-Type: text/plain", "Connection: close") + body, "415", false},
		"noise":                      {"\x16\x03\x01\x00\xa5\r\n\r\n", "400", false},
	} {
		answer, _ := wire(t, address, c.sent, c.hangUp)
		assert.True(t, strings.HasPrefix(answer, "HTTP/1.1 "+c.status), "%s: %s", name, answer)
	}
	assert.Equal(t, before, s.written(), "something was written")

	t.Run("a slow head", func(t *testing.T) {
		t.Parallel()
		answer, took := wire(t, address, "POST /v1/jobs HTTP/1.1\r\nHost: reclaim\r\n", false)
		assert.NotContains(t, answer, "HTTP/1.1 2")
		assert.Less(t, took, 30*time.Second)
	})
	t.Run("a slow body", func(t *testing.T) {
		t.Parallel()
		answer, took := wire(t, address, head(keyLine, length)+body[:5], false)
		assert.Contains(t, answer, "HTTP/1.1 400")
		assert.Contains(t, answer, "could not be read to its end")
		assert.Less(t, took, 40*time.Second)
		assert.Equal(t, before, s.written(), "something was written")
	})
}

func TestANoticeGoesToItsChannelAndNowhereElse(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	address, entered, release := s.held()
	release()
	for _, path := range []string{
		"/v1/channels/../notices", "/v1/channels/%2e%2e/notices", "/v1/channels/a%2F..%2F..%2Fmetrics%2F/notices", "/v1/channels//notices",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader("{}"))
		require.NoError(t, err)
		request.URL.Opaque = strings.TrimPrefix(address, "http:") + path
		answer, err := http.DefaultTransport.RoundTrip(request)
		require.NoError(t, err)
		_ = answer.Body.Close()
		assert.Equal(t, http.StatusNotFound, answer.StatusCode, path)
	}
	assert.Zero(t, entered())
}

// What the table above refuses is a little wrong each time: what is right about it is taken.
func TestTheSameRequestsWithoutTheirFaultsAreTaken(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.furnish()
	address, key := s.open(), s.key()
	answered := map[string]int{}
	for _, route := range postRoutes() {
		answer, _ := s.ask(http.MethodPost, address+route.path, key, " \r\n\t"+route.body+"\n", "Idempotency-Key", "k"+url.PathEscape(route.path),
			"Content-Type", `application/json; charset="UTF-8"`)
		answered[route.path] = answer.StatusCode
	}
	// Temporal is away; the refund rf_1 does not exist.
	assert.Equal(t, map[string]int{
		"/v1/accounts/a/topups": 201, "/v1/orders": 201, "/v1/refunds": 201, "/v1/jobs": 503, "/v1/jobs/j1/outcome": 503,
		"/v1/jobs/j1/resolution": 503, "/v1/refunds/rf_1/resolution": 404,
	}, answered)
}

func TestReportsAndDecisionsAreDescribedByTheFieldsThatTheContractReads(t *testing.T) {
	t.Parallel()
	for _, pair := range []struct{ described, read reflect.Type }{
		{reflect.TypeFor[api.OutcomeBody](), reflect.TypeFor[contract.Outcome]()},
		{reflect.TypeFor[api.ResolutionBody](), reflect.TypeFor[contract.Resolution]()},
		{reflect.TypeFor[api.RefundResolutionBody](), reflect.TypeFor[contract.RefundResolution]()},
	} {
		assert.ElementsMatch(t, members(pair.read), members(pair.described), "%s", pair.described)
	}
}
