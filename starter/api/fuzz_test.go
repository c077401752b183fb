package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// oddities are spellings at which readers of JSON differ; %s stands for a whole body without its first brace.
var oddities = []string{
	"{%s", "{\"zzz\":1,%s", "{\"amount\":1,\"amount\":2,%s", "{\"AMOUNT\":1,%s", "{\"\":null,%s", "\ufeff{%s", "{%s{}", "{%s\x00", "[{%s]",
	"{\"reason\":\"\\u0000\",%s", "{\"reason\":\"\\ud800\",%s", "{\"reason\":\"\xff\",%s", "{\"reason\":null,%s", "{\"amount\":1e0,%s",
	"{\"amount\":1.0,%s", "{\"amount\":-0,%s", "{\"amount\":9007199254740993,%s", "{\"amount\":9223372036854775808,%s", "{\"amount\":1e400,%s",
	"{\"amount\":\"1\",%s", "{\"zzz\":" + strings.Repeat("[", 20_000) + ",%s", "{\"zzz\":" + strings.Repeat("{\"a\":", 5_000) + ",%s",
}

// seed adds a body, its oddities and what is none at all.
func seed(f *testing.F, body string) {
	f.Helper()
	for _, odd := range oddities {
		f.Add([]byte(strings.Replace(odd, "%s", body[1:], 1)))
	}
	for _, none := range []string{"", " ", "null", "1", `""`, "[]", "{}", "{", strings.Repeat(" ", 70_000) + body} {
		f.Add([]byte(none))
	}
}

// refuses checks that an error can be answered as it is: a contract error of that code, in words that can be shown.
func refuses(t *testing.T, err error, code contract.Code) {
	t.Helper()
	refused, ok := errors.AsType[*contract.Error](err)
	if !ok || refused.Code != code || refused.Retry == "" || !utf8.ValidString(refused.Message) || len(refused.Message) > 4000 {
		t.Fatalf("a refusal that cannot be shown: %q", err)
	}
	p := problemOf(err)
	if p.Status < 400 || p.Status > 499 {
		t.Fatalf("%v is answered with %d", err, p.Status)
	}
	if _, err := json.Marshal(p); err != nil {
		t.Fatal(err)
	}
}

func FuzzSubmission(f *testing.F) {
	seed(f, `{"jobId":"j1","account":"a","cost":5,"work":{"activity":"A","taskQueue":"q","input":{"a":[1e3,"\ud83c\udfac"]},"timeout":"1m"},"promise":"1m"}`)
	f.Add([]byte(`{"tenant":"acme","actor":"shop","jobId":"j","account":"a","cost":9007199254740991,"work":{"activity":"A","taskQueue":"q",` +
		`"timeout":"87600h","heartbeat":"1ns","probe":"P"},"promise":"1.5h","retry":{"maxAttempts":100,"initialBackoff":"1ms","multiplier":1e300,` +
		`"maxBackoff":"1h"},"refundOnFailure":false,"refundTo":"source","orderId":"o","summary":"é"}`))
	f.Add([]byte(`{"tenant":"other","jobId":"j1"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		job, err := contract.ParseSubmission(raw, "acme", "shop")
		if err != nil {
			refuses(t, err, contract.CodeBadInput)
			return
		}
		if job.Tenant != "acme" || job.Actor != "shop" {
			t.Fatalf("a body decided for whom it is: %+v", job)
		}
		encoded, _, err := job.Encode()
		if len(encoded) > contract.MaxInputBytes {
			return // escapes and defaults take more room
		}
		if err != nil {
			t.Fatalf("what was taken cannot be sent on: %v", err)
		}
		again, err := contract.ParseSubmission(encoded, "acme", "shop")
		if err != nil {
			t.Fatal(err)
		}
		again.Work.Input, job.Work.Input = canonical(t, again.Work.Input), canonical(t, job.Work.Input)
		if !reflect.DeepEqual(again, job) {
			t.Fatalf("%+v reads back as %+v", job, again)
		}
	})
}

func canonical(t *testing.T, raw []byte) []byte {
	t.Helper()
	form, err := contract.Canonical(raw)
	if err != nil {
		t.Fatal(err)
	}
	return form
}

func FuzzOutcome(f *testing.F) {
	seed(f, `{"attempt":1,"state":"succeeded","output":{"a":[1e3]},"error":"e","source":"s"}`)
	f.Add([]byte(`{"state":"failed","error":"` + strings.Repeat("é", 3000) + `","output":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		outcome, err := contract.ParseOutcome(raw)
		if err != nil {
			refuses(t, err, contract.CodeBadInput)
			return
		}
		for _, text := range []string{outcome.Error, outcome.Source} {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) || len(text) > contract.MaxReasonBytes {
				t.Fatalf("Postgres could not keep %q", text)
			}
		}
		encoded, err := json.Marshal(outcome)
		if err != nil {
			t.Fatal(err)
		}
		again, err := contract.ParseOutcome(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if len(outcome.Output) > 0 {
			outcome.Output, again.Output = canonical(t, outcome.Output), canonical(t, again.Output)
		}
		if !reflect.DeepEqual(again, outcome) {
			t.Fatalf("%+v reads back as %+v", outcome, again)
		}
	})
}

func FuzzTopUpBody(f *testing.F) {
	seed(f, `{"amount":5,"asset":"CREDIT","reason":"r"}`)
	f.Fuzz(fuzzBody[TopUpBody])
}

func FuzzOrderBody(f *testing.F) {
	seed(f, `{"orderId":"o1","account":"a","channel":"c","payment":"p","currency":"eur","paid":5,"credits":5}`)
	f.Fuzz(fuzzBody[OrderBody])
}

func FuzzRefundBody(f *testing.F) {
	seed(f, `{"orderId":"o1","amount":5,"credits":0,"reason":"r"}`)
	f.Fuzz(fuzzBody[RefundBody])
}

// fuzzBody checks the reading of one of the door's own bodies; the client holds its rules.
func fuzzBody[B any](t *testing.T, raw []byte) {
	var body, again B
	if err := contract.Decode(raw, contract.MaxInputBytes, &body); err != nil {
		refuses(t, err, contract.CodeBadInput)
		return
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if len(encoded) > contract.MaxInputBytes {
		return // escapes take more room
	}
	if err := contract.Decode(encoded, contract.MaxInputBytes, &again); err != nil || !reflect.DeepEqual(body, again) {
		t.Fatalf("%+v reads back as %+v: %v", body, again, err)
	}
	// Whoever reads a body otherwise must see the same members.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatalf("%q is no JSON to others: %v", raw, err)
	}
	for name := range members {
		if !bytes.Contains(encoded, []byte(`"`+name+`":`)) && string(members[name]) != "null" && string(members[name]) != `""` {
			t.Fatalf("the member %q was taken and is gone: %s", name, encoded)
		}
	}
}

func FuzzPrefer(f *testing.F) {
	for _, header := range []string{
		"", "wait=0", "wait=60", "wait=61", "Wait=\"5\"", "respond-async, wait = 5; x=y", "wait", "wait=", "wait=-1", "wait=1e3", "wait=\"", ",,;=",
		"wait=4294967295", "wait=4294967296", "wait=18446744073709551616", "wait=１", "wait=5, wait=x", "\x00", "\xff",
	} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		wait, asked, err := preferredWait(header)
		if err != nil {
			refuses(t, err, contract.CodeBadInput)
		}
		if wait < 0 || wait > longestWait || wait%time.Second != 0 || (err != nil || !asked) && wait != 0 || err != nil && asked {
			t.Fatalf("%q: %s %t %v", header, wait, asked, err)
		}
		if asked && !strings.Contains(strings.ToLower(header), "wait") {
			t.Fatalf("%q asks for nothing", header)
		}
	})
}

func FuzzIdempotencyKey(f *testing.F) {
	for _, key := range []string{"", " ", "k", "a\x00b", "\xff", "é", strings.Repeat("k", 200), strings.Repeat("k", 201), "\u2028", "\"k\""} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, header string) {
		key, err := idempotencyKey(header)
		if err != nil {
			refuses(t, err, contract.CodeBadInput)
			return
		}
		if key != header || strings.TrimSpace(key) == "" || len(key) > 200 || !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
			t.Fatalf("Postgres could not keep %q", key)
		}
	})
}

func FuzzBearer(f *testing.F) {
	key := contract.APIKey(strings.Repeat("a", 16), strings.Repeat("7", 52))
	for _, header := range []string{
		"", "Bearer", "Bearer ", "Bearer " + key, "bearer  " + key + " ", "Basic YTpi", key, "Bearer\t" + key, "Bearer " + key + " x",
		"Bearer " + strings.ToUpper(key), "Bearer rk__", "Bearer rk_" + strings.Repeat("_", 69), "Bearer " + strings.Replace(key, "a", "é", 1),
	} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		text := bearerOf(&http.Request{Header: http.Header{"Authorization": {header}}})
		if bearerOf(&http.Request{Header: http.Header{"Authorization": {header, header}}}) != "" {
			t.Fatal("one of two credentials was taken")
		}
		keyID, secret, ok := contract.ParseAPIKey(text)
		if !ok {
			if keyID != "" || secret != "" {
				t.Fatalf("%q is no key, and has parts", text)
			}
			return
		}
		if contract.APIKey(keyID, secret) != text || !contract.ValidKeyID(keyID) || !strings.Contains(header, text) {
			t.Fatalf("%q was read from %q", text, header)
		}
	})
}

// FuzzRequestTarget sends odd addresses to the whole door, without a key: whatever it is, it is answered in order.
func FuzzRequestTarget(f *testing.F) {
	var handedOn []string
	worker := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handedOn = append(handedOn, r.URL.EscapedPath()) }))
	f.Cleanup(worker.Close)
	address, err := url.Parse(worker.URL)
	if err != nil {
		f.Fatal(err)
	}
	door, err := New(Options{
		Logger: zap.NewNop(), Metrics: prometheus.NewRegistry(), Limits: DefaultLimits(), Notices: address,
		Ready: func(context.Context) error { return nil },
	})
	if err != nil {
		f.Fatal(err)
	}
	for _, target := range []string{
		"/v1/channels/bank/notices", "/v1/channels/%2e%2e/notices", "/v1/channels/a%2F..%2F..%2Fmetrics/notices", "/v1/channels/%00/notices",
		"/v1/channels/a/notices?x=%zz", "/v1/channels/a%3Fb/notices", "/v1/channels/%ff/notices", "/v1/channels/a;b/notices", "//v1/channels/a/notices",
		"/v1/jobs", "/v1/jobs/..", "/v1/accounts/a%2Fb/topups", "/", "*", "/docs", "/v1/issues?a=%zz",
	} {
		f.Add("POST", target)
		f.Add("GET", target)
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		parsed, err := url.ParseRequestURI(target)
		if err != nil || parsed.Host != "" || strings.ContainsAny(method, " \r\n\t\x00") || method == "" {
			return // net/http answers these itself
		}
		handedOn = nil
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
		r.Method, r.URL, r.RequestURI = method, parsed, target
		w := httptest.NewRecorder()
		door.ServeHTTP(w, r)
		answer := w.Result()
		_ = answer.Body.Close()
		switch {
		case len(handedOn) > 0:
			parts := strings.Split(handedOn[0], "/")
			if len(parts) != 5 || parts[1] != "v1" || parts[2] != "channels" || parts[4] != "notices" || method != http.MethodPost {
				t.Fatalf("%s %q was handed on as %q", method, target, handedOn)
			}
		case answer.StatusCode >= 500 && !strings.HasSuffix(parsed.Path, "/notices"):
			t.Fatalf("%s %q: %d", method, target, answer.StatusCode)
		case answer.StatusCode >= 400 && !strings.HasPrefix(parsed.Path, "/docs"):
			var p Problem
			if answer.Header.Get("Content-Type") != "application/problem+json" || method != http.MethodHead &&
				(json.Unmarshal(w.Body.Bytes(), &p) != nil || p.Code == "" || p.Retry == "" || p.Status != answer.StatusCode) {
				t.Fatalf("%s %q: %d without a problem: %s", method, target, answer.StatusCode, w.Body)
			}
		case answer.StatusCode >= 300 && !strings.HasPrefix(parsed.Path, "/docs"):
			t.Fatalf("%s %q is sent elsewhere: %s", method, target, answer.Header.Get("Location"))
		}
	})
}
