package contract_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// assertRefused checks the first rule that a refusal names.
func assertRefused(t *testing.T, err error, code contract.Code, field, rule string) {
	t.Helper()
	refused, ok := errors.AsType[*contract.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, code, refused.Code)
	assert.Equal(t, contract.RetryNewKey, refused.Retry)
	require.NotEmpty(t, refused.Fields)
	assert.Equal(t, field, refused.Fields[0].Field, refused.Message)
	assert.Contains(t, refused.Fields[0].Rule, rule)
	assert.Less(t, len(refused.Message), 600, "a long value is not quoted in full")
}

func TestRefundNumbersAreTheseForEver(t *testing.T) {
	// Channels hold these numbers: another derivation would refund what is refunded already.
	assert.Equal(t, "rf_wftnnrdik4vkrdgnmxrwifsb73aw5uqs", contract.RefundNumber("acme", "api:checkout", "refund-8841"))
	assert.Equal(t, "rf_gfbd2ex4lev2zqx4yfqoyqftj5qtxbze", contract.JobRefundNumber("acme", "render-8841"))
	assert.Equal(t, contract.RefundNumber("acme", "", contract.JobRefundKey("render-8841")),
		contract.JobRefundNumber("acme", "render-8841"))
	assert.Equal(t, "refund/acme/rf_1", contract.RefundWorkflowID("acme", "rf_1"))
}

func TestC35_RefundNumbersDifferByTenantActorAndKey(t *testing.T) {
	type operation struct{ tenant, actor, key string }
	seen := map[string]operation{}
	for _, o := range []operation{
		{"acme", "ann", "k"}, {"globex", "ann", "k"}, {"acme", "bob", "k"}, {"acme", "ann", "K"}, {"acme", "", "k"},
		{"acm", "eann", "k"}, {"acme", "an", "nk"}, {"acmea", "nn", "k"}, {"", "", ""}, {"acme", "ann", "k "},
	} {
		number := contract.RefundNumber(o.tenant, o.actor, o.key)
		assert.Empty(t, seen[number], "%v", o)
		seen[number] = o
	}
	text := rapid.StringN(0, 30, 200)
	rapid.Check(t, func(t *rapid.T) {
		one := operation{text.Draw(t, "tenant"), text.Draw(t, "actor"), text.Draw(t, "key")}
		other := operation{text.Draw(t, "tenant"), text.Draw(t, "actor"), text.Draw(t, "key")}
		number := contract.RefundNumber(one.tenant, one.actor, one.key)
		assert.Equal(t, number, contract.RefundNumber(one.tenant, one.actor, one.key))
		assert.Equal(t, one == other, number == contract.RefundNumber(other.tenant, other.actor, other.key))
		assert.Regexp(t, `^rf_[a-z2-7]{32}$`, number)
		assert.True(t, contract.ValidRefundNumber(number))
	})
}

func TestValidRefundNumber(t *testing.T) {
	for _, number := range []string{"a", "0", "aZ09_-", strings.Repeat("x", 64)} {
		assert.True(t, contract.ValidRefundNumber(number), number)
	}
	for _, number := range []string{"", strings.Repeat("x", 65), "a b", "a.b", "a:b", "a/b", "é", "a\n", "a\x00", "\xff"} {
		assert.False(t, contract.ValidRefundNumber(number), "%q", number)
	}
}

func TestRefundStatesAndWhatAPersonCanDecideInThem(t *testing.T) {
	for state, want := range map[contract.RefundState]struct {
		open    bool
		actions []contract.RefundAction
	}{
		contract.RefundAccepted: {true, []contract.RefundAction{contract.ActionCancel}},
		contract.RefundUnknown: {true, []contract.RefundAction{
			contract.ActionSettle, contract.ActionRelease, contract.ActionResend, contract.ActionExtend}},
		contract.RefundPending:   {true, []contract.RefundAction{contract.ActionSettle, contract.ActionRelease, contract.ActionExtend}},
		contract.RefundSucceeded: {false, []contract.RefundAction{}},
		contract.RefundFailed:    {false, []contract.RefundAction{}},
		contract.RefundCanceled:  {false, []contract.RefundAction{}},
		contract.RefundReversed:  {false, []contract.RefundAction{}},
		"":                       {false, []contract.RefundAction{}},
	} {
		assert.Equal(t, want.open, state.Open(), state)
		assert.Equal(t, want.actions, state.Actions(), state)
	}
}

func TestAJobWithRefundToSourceNamesItsOrder(t *testing.T) {
	job, err := contract.ParseJob([]byte(with(t, fullJob, `"refundTo":"balance"`, `"refundTo":"source"`)))
	require.NoError(t, err)
	assert.Equal(t, contract.RefundToSource, job.RefundTo)
	assert.Equal(t, "o-1", job.OrderID)
}

func refundRequest() contract.RefundRequest {
	return contract.RefundRequest{
		Tenant: "acme", Actor: "api:checkout", Key: "refund-8841", OrderID: "o-1", Amount: 2500, Currency: "EUR",
		Credits: new(int64), Reason: "customer asked",
	}
}

func credits(n int64) *int64 { return &n }

func TestEachRuleOfARefundRequestIsCheckedAndNamed(t *testing.T) {
	for _, change := range []func(*contract.RefundRequest){
		func(*contract.RefundRequest) {},
		func(r *contract.RefundRequest) { r.Credits, r.Currency = nil, "" },
		func(r *contract.RefundRequest) { r.Amount, r.Credits = contract.MaxCost, credits(contract.MaxCost) },
		func(r *contract.RefundRequest) { r.Amount = 1 },
		func(r *contract.RefundRequest) {
			r.Actor, r.Key, r.Reason = strings.Repeat("é", 100), "any key 🎬", strings.Repeat("x", contract.MaxReasonBytes)
		},
	} {
		request := refundRequest()
		change(&request)
		assert.NoError(t, request.Check())
	}
	for _, c := range []struct {
		name        string
		change      func(*contract.RefundRequest)
		field, rule string
	}{
		{"no tenant", func(r *contract.RefundRequest) { r.Tenant = "" }, "tenant", "1 to 100 characters"},
		{"order with a space", func(r *contract.RefundRequest) { r.OrderID = "o 1" }, "orderId", "1 to 100 characters"},
		{"no actor", func(r *contract.RefundRequest) { r.Actor = "" }, "actor", "is missing"},
		{"long actor", func(r *contract.RefundRequest) { r.Actor = strings.Repeat("x", 201) }, "actor", "201 bytes, more than the 200"},
		{"no key", func(r *contract.RefundRequest) { r.Key = "" }, "key", "is missing"},
		{"key with NUL", func(r *contract.RefundRequest) { r.Key = "a\x00" }, "key", "without NUL"},
		{"key that is not UTF-8", func(r *contract.RefundRequest) { r.Key = "\xff" }, "key", "valid UTF-8"},
		{"C2 negative amount", func(r *contract.RefundRequest) { r.Amount = -1 }, "amount", "from 1 to 9007199254740991, not -1"},
		{"C2 amount 0", func(r *contract.RefundRequest) { r.Amount = 0 }, "amount", "from 1 to 9007199254740991, not 0"},
		{"C2 amount 2^63-1", func(r *contract.RefundRequest) { r.Amount = 1<<63 - 1 }, "amount", "not 9223372036854775807"},
		{"amount 2^53", func(r *contract.RefundRequest) { r.Amount = contract.MaxCost + 1 }, "amount", "from 1 to"},
		{"negative credits", func(r *contract.RefundRequest) { r.Credits = credits(-1) }, "credits", "from 0 to 9007199254740991, not -1"},
		{"credits 2^53", func(r *contract.RefundRequest) { r.Credits = credits(contract.MaxCost + 1) }, "credits", "from 0 to"},
		{"currency of two letters", func(r *contract.RefundRequest) { r.Currency = "eu" }, "currency", "ISO 4217"},
		{"currency with a digit", func(r *contract.RefundRequest) { r.Currency = "eu1" }, "currency", "ISO 4217"},
		{"no reason", func(r *contract.RefundRequest) { r.Reason = " \t" }, "reason", "is missing"},
		{"long reason", func(r *contract.RefundRequest) { r.Reason = strings.Repeat("x", 2001) }, "reason", "2001 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			request := refundRequest()
			c.change(&request)
			assertRefused(t, request.Check(), contract.CodeBadInput, c.field, c.rule)
		})
	}
	refused, ok := errors.AsType[*contract.Error](contract.RefundRequest{}.Check())
	require.True(t, ok)
	assert.Len(t, refused.Fields, 6, "everything is named at once: %s", refused.Message)
}

func TestC37_TheFingerprintOfARefundIsItsBusinessParametersOnly(t *testing.T) {
	request := refundRequest()
	request.Credits = nil
	first := request.Fingerprint()
	assert.Equal(t, "v1:aa4ec5b89c48fbe1c1d42eb6411d71b109ead8070df566ecfdaab171884b3e00", first)
	for name, same := range map[string]func(*contract.RefundRequest){
		"tenant": func(r *contract.RefundRequest) { r.Tenant = "globex" }, "actor": func(r *contract.RefundRequest) { r.Actor = "bob" },
		"key": func(r *contract.RefundRequest) { r.Key = "k" }, "case of letters": func(r *contract.RefundRequest) { r.Currency = "eur" },
	} {
		other := request
		same(&other)
		assert.Equal(t, first, other.Fingerprint(), name)
	}
	seen := map[string]string{first: "as it was"}
	for name, change := range map[string]func(*contract.RefundRequest){
		"order": func(r *contract.RefundRequest) { r.OrderID = "o-2" }, "amount": func(r *contract.RefundRequest) { r.Amount++ },
		"currency": func(r *contract.RefundRequest) { r.Currency = "usd" }, "no currency": func(r *contract.RefundRequest) { r.Currency = "" },
		"goodwill": func(r *contract.RefundRequest) { r.Credits = credits(0) },
		"credits":  func(r *contract.RefundRequest) { r.Credits = credits(7) },
		"reason":   func(r *contract.RefundRequest) { r.Reason = "asked again" },
	} {
		other := request
		change(&other)
		assert.Empty(t, seen[other.Fingerprint()], name)
		seen[other.Fingerprint()] = name
	}
}

func order() contract.Order {
	return contract.Order{
		Tenant: "acme", OrderID: "o-1", Account: "team-7", Channel: "stripe-main", Payment: "pi_1", Currency: "EUR",
		Paid: 10000, Credits: 500, Asset: "CREDIT", Actor: "api:checkout", Key: "order-1",
	}
}

func TestEachRuleOfAnOrderIsCheckedAndNamed(t *testing.T) {
	require.NoError(t, order().Check())
	largest := order()
	largest.Paid, largest.Credits, largest.Payment = contract.MaxCost, contract.MaxCost, strings.Repeat("p", 200)
	require.NoError(t, largest.Check())
	for _, c := range []struct {
		name        string
		change      func(*contract.Order)
		field, rule string
	}{
		{"no tenant", func(o *contract.Order) { o.Tenant = "" }, "tenant", "1 to 100 characters"},
		{"nobody's tenant", func(o *contract.Order) { o.Tenant = contract.UnassignedTenant }, "tenant", "is kept for messages"},
		{"order with a slash", func(o *contract.Order) { o.OrderID = "a/b" }, "orderId", "1 to 100 characters"},
		{"account of 101 characters", func(o *contract.Order) { o.Account = strings.Repeat("a", 101) }, "account", "1 to 100 characters"},
		{"no channel", func(o *contract.Order) { o.Channel = "" }, "channel", "1 to 100 characters"},
		{"asset with a space", func(o *contract.Order) { o.Asset = "A B" }, "asset", "1 to 100 characters"},
		{"no actor", func(o *contract.Order) { o.Actor = "" }, "actor", "is missing"},
		{"no key", func(o *contract.Order) { o.Key = "" }, "key", "is missing"},
		{"long key", func(o *contract.Order) { o.Key = strings.Repeat("k", 201) }, "key", "201 bytes"},
		{"no payment", func(o *contract.Order) { o.Payment = "" }, "payment", "is missing"},
		{"payment with NUL", func(o *contract.Order) { o.Payment = "p\x00" }, "payment", "without NUL"},
		{"long payment", func(o *contract.Order) { o.Payment = strings.Repeat("p", 201) }, "payment", "201 bytes"},
		{"no currency", func(o *contract.Order) { o.Currency = "" }, "currency", "ISO 4217"},
		{"currency of four letters", func(o *contract.Order) { o.Currency = "euro" }, "currency", "ISO 4217"},
		{"paid 0", func(o *contract.Order) { o.Paid = 0 }, "paid", "from 1 to 9007199254740991, not 0"},
		{"paid 2^53", func(o *contract.Order) { o.Paid = contract.MaxCost + 1 }, "paid", "from 1 to"},
		{"negative credits", func(o *contract.Order) { o.Credits = -1 }, "credits", "from 1 to 9007199254740991, not -1"},
		{"credits 2^53", func(o *contract.Order) { o.Credits = contract.MaxCost + 1 }, "credits", "from 1 to"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := order()
			c.change(&o)
			assertRefused(t, o.Check(), contract.CodeBadInput, c.field, c.rule)
		})
	}
}

func TestTheFingerprintOfAnOrderIsWhatWasPaid(t *testing.T) {
	first := order().Fingerprint()
	assert.Equal(t, "v1:1d4ba267d1b29013476afd095675116a626d3e5e65758290daa4a82a60faa9cd", first)
	same := order()
	same.Actor, same.Key, same.Currency = "bob", "k", "eur"
	assert.Equal(t, first, same.Fingerprint())
	seen := map[string]bool{first: true}
	for _, change := range []func(*contract.Order){
		func(o *contract.Order) { o.OrderID = "o-2" }, func(o *contract.Order) { o.Account = "a" },
		func(o *contract.Order) { o.Channel = "c" }, func(o *contract.Order) { o.Payment = "p" },
		func(o *contract.Order) { o.Currency = "usd" }, func(o *contract.Order) { o.Paid++ },
		func(o *contract.Order) { o.Credits++ }, func(o *contract.Order) { o.Asset = "GOLD" },
	} {
		other := order()
		change(&other)
		assert.False(t, seen[other.Fingerprint()], "%+v", other)
		seen[other.Fingerprint()] = true
	}
}

func TestParseRefundKey(t *testing.T) {
	key, err := contract.ParseRefundKey([]byte(`{"tenant":"acme","refundId":"rf_1-A"}`))
	require.NoError(t, err)
	assert.Equal(t, contract.RefundKey{Tenant: "acme", RefundID: "rf_1-A"}, key)
	for name, c := range map[string]struct{ text, field, rule string }{
		"nothing":           {``, "", "is missing: a JSON object is needed"},
		"null":              {`null`, "", "must be a JSON object"},
		"a text":            {`"rf_1"`, "", "must be a JSON object"},
		"no tenant":         {`{"refundId":"rf_1"}`, "tenant", "1 to 100 characters"},
		"tenant as number":  {`{"tenant":1,"refundId":"rf_1"}`, "tenant", "number"},
		"bad tenant":        {`{"tenant":"a/b","refundId":"rf_1"}`, "tenant", "1 to 100 characters"},
		"no refund":         {`{"tenant":"acme"}`, "refundId", "1 to 64 characters of 0-9 A-Z a-z _ -"},
		"refund with a dot": {`{"tenant":"acme","refundId":"r.1"}`, "refundId", "1 to 64 characters"},
		"refund too long":   {`{"tenant":"acme","refundId":"` + strings.Repeat("r", 65) + `"}`, "refundId", "1 to 64 characters"},
		"a huge refund":     {`{"tenant":"acme","refundId":"` + strings.Repeat("r", 60000) + `"}`, "refundId", "1 to 64 characters"},
		"unknown field":     {`{"tenant":"acme","refundId":"rf_1","amount":1}`, "amount", "is not a field"},
		"repeated field":    {`{"tenant":"acme","refundId":"rf_1","refundId":"rf_2"}`, "refundId", "is given twice"},
		"other letter case": {`{"tenant":"acme","refundID":"rf_1"}`, "refundID", "is not a field"},
		"over the limit":    {`{"tenant":"acme","refundId":"rf_1"}` + strings.Repeat(" ", contract.MaxInputBytes), "", "more than the 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := contract.ParseRefundKey([]byte(c.text))
			assertRefused(t, err, contract.CodeBadInput, c.field, c.rule)
		})
	}
}

// settlement is a decision with every field.
const settlement = `{"id":"d-1","action":"settle","operator":"ann","approver":"bob","reason":"bank called","evidence":"statement 7",` +
	`"number":"rf_1","channelRef":"re_1","amount":2500,"currency":"eur"}`

func TestEveryFieldOfARefundResolutionIsRead(t *testing.T) {
	full := contract.RefundResolution{
		ID: "d-1", Action: contract.ActionSettle, Operator: "ann", Approver: "bob", Reason: "bank called",
		Evidence: "statement 7", Number: "rf_1", ChannelRef: "re_1", Amount: 2500, Currency: "eur",
	}
	for text, want := range map[string]contract.RefundResolution{
		settlement: full,
		`{"id":"d-1","action":"release","operator":"ann","reason":"r","evidence":"e","amount":1}`: {
			ID: "d-1", Action: contract.ActionRelease, Operator: "ann", Reason: "r", Evidence: "e", Amount: 1},
		`{"id":"d-1","action":"resend","operator":"ann","reason":"r"}`: {ID: "d-1", Action: contract.ActionResend, Operator: "ann", Reason: "r"},
		`{"id":"d-1","action":"extend","operator":"ann","reason":"r"}`: {ID: "d-1", Action: contract.ActionExtend, Operator: "ann", Reason: "r"},
		`{"id":"d-1","action":"cancel","operator":"ann","reason":"r"}`: {ID: "d-1", Action: contract.ActionCancel, Operator: "ann", Reason: "r"},
	} {
		got, err := contract.ParseRefundResolution([]byte(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, got)
	}
}

func TestEachRuleOfARefundResolutionIsCheckedAndNamed(t *testing.T) {
	long := strings.Repeat("x", contract.MaxReasonBytes+1)
	for _, c := range []struct{ name, from, to, field, rule string }{
		{"no id", `"id":"d-1",`, ``, "id", "1 to 100 characters"},
		{"id with a space", `"d-1"`, `"d 1"`, "id", "1 to 100 characters"},
		{"no action", `"action":"settle",`, ``, "action", "must be settle, release, resend, extend or cancel"},
		{"a job's action", `"settle"`, `"write_off"`, "action", `not "write_off"`},
		{"no operator", `"operator":"ann",`, ``, "operator", "is missing"},
		{"blank operator", `"ann"`, `" "`, "operator", "is missing"},
		{"long operator", `"ann"`, `"` + long + `"`, "operator", "2001 bytes"},
		{"no reason", `"reason":"bank called",`, ``, "reason", "is missing"},
		{"reason with NUL", `"bank called"`, `"\u0000"`, "reason", "without NUL"},
		{"long approver", `"bob"`, `"` + long + `"`, "approver", "2001 bytes"},
		{"C64 settle without evidence", `"evidence":"statement 7",`, ``, "evidence", "is missing: settle needs it"},
		{"C64 blank evidence", `"statement 7"`, `" "`, "evidence", "is missing: settle needs it"},
		{"long evidence", `"statement 7"`, `"` + long + `"`, "evidence", "2001 bytes"},
		{"release without evidence", `"settle","operator":"ann","approver":"bob","reason":"bank called","evidence":"statement 7"`,
			`"release","operator":"ann","reason":"r"`, "evidence", "is missing: release needs it"},
		{"C65 settle without amount", `"amount":2500,`, ``, "amount", "is missing: settle needs the refund's amount"},
		{"C65 negative amount", `2500`, `-1`, "amount", "is missing: settle needs"},
		{"amount with fraction", `2500`, `2500.0`, "amount", "whole number"},
		{"amount as a text", `2500`, `"2500"`, "amount", "whole number, not a string"},
		{"settle without reference", `"channelRef":"re_1",`, ``, "channelRef", "is missing: settle needs the channel's own reference"},
		{"long reference", `"re_1"`, `"` + strings.Repeat("r", 201) + `"`, "channelRef", "201 bytes"},
		{"currency", `"eur"`, `"euro"`, "currency", "ISO 4217"},
		{"unknown field", `"id"`, `"attempts":2,"id"`, "attempts", "is not a field"},
		{"repeated field", `"id":"d-1"`, `"id":"d-1","id":"d-2"`, "id", "given twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := contract.ParseRefundResolution([]byte(with(t, settlement, c.from, c.to)))
			assertRefused(t, err, contract.CodeBadResolution, c.field, c.rule)
		})
	}
	for _, text := range []string{``, `null`, `"settle"`, `[]`, settlement + `{}`} {
		_, err := contract.ParseRefundResolution([]byte(text))
		assert.Equal(t, contract.CodeBadResolution, contract.CodeOf(err), text)
	}
	read, err := contract.ParseRefundResolution([]byte(with(t, settlement, `"reason":"bank called",`, ``)))
	require.Error(t, err)
	assert.Equal(t, "ann", read.Operator, "what could be read is handed on, for the record")
}

// notice is a channel's message with every field.
const notice = `{"id":"evt_1","outcome":"succeeded","number":"rf_1","channelRef":"re_1","payment":"pi_1","amount":2500,` +
	`"currency":"eur","code":"refund.updated","observedAt":"2026-07-01T10:00:00.5Z"}`

func TestEveryFieldOfAChannelNoticeIsRead(t *testing.T) {
	got, err := contract.ParseChannelNotice([]byte(notice))
	require.NoError(t, err)
	assert.Equal(t, contract.ChannelNotice{
		ID: "evt_1", Outcome: contract.NoticeSucceeded, Number: "rf_1", ChannelRef: "re_1", Payment: "pi_1", Amount: 2500,
		Currency: "eur", Code: "refund.updated", ObservedAt: time.Date(2026, 7, 1, 10, 0, 0, 5e8, time.UTC),
	}, got)
	for _, outcome := range []contract.RefundOutcome{contract.NoticePending, contract.NoticeSucceeded, contract.NoticeFailed} {
		got, err := contract.ParseChannelNotice([]byte(`{"outcome":"` + string(outcome) + `"}`))
		require.NoError(t, err, "the outcome alone tells a run that its row has changed")
		assert.Equal(t, contract.ChannelNotice{Outcome: outcome}, got)
	}
}

func TestEachRuleOfAChannelNoticeIsCheckedAndNamed(t *testing.T) {
	long := strings.Repeat("x", 201)
	for _, c := range []struct{ name, from, to, field, rule string }{
		{"no outcome", `"outcome":"succeeded",`, ``, "outcome", `must be pending, succeeded or failed, not ""`},
		{"the channel's own word", `"succeeded"`, `"SUCCESS"`, "outcome", `not "SUCCESS"`},
		{"unknown is no outcome of a notice", `"succeeded"`, `"unknown"`, "outcome", `not "unknown"`},
		{"not found is no outcome of a notice", `"succeeded"`, `"not_found"`, "outcome", `not "not_found"`},
		{"negative amount", `2500`, `-1`, "amount", "between 0 and 9007199254740991, not -1"},
		{"amount 2^53", `2500`, `9007199254740992`, "amount", "between 0 and"},
		{"amount beyond int64", `2500`, `9223372036854775808`, "amount", ""},
		{"amount with fraction", `2500`, `25.5`, "amount", "whole number"},
		{"currency", `"eur"`, `"€"`, "currency", "ISO 4217"},
		{"long id", `"evt_1"`, `"` + long + `"`, "id", "201 bytes"},
		{"long number", `"rf_1"`, `"` + long + `"`, "number", "201 bytes"},
		{"long reference", `"re_1"`, `"` + long + `"`, "channelRef", "201 bytes"},
		{"long payment", `"pi_1"`, `"` + long + `"`, "payment", "201 bytes"},
		{"code with NUL", `"refund.updated"`, `"a\u0000"`, "code", "without NUL"},
		{"time that is none", `"2026-07-01T10:00:00.5Z"`, `"yesterday"`, "observedAt", ""},
		{"time as a number", `"2026-07-01T10:00:00.5Z"`, `1751364000`, "observedAt", ""},
		{"unknown field", `"id"`, `"status":"x","id"`, "status", "is not a field"},
		{"repeated field", `"id":"evt_1"`, `"id":"evt_1","id":"evt_2"`, "id", "given twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := contract.ParseChannelNotice([]byte(with(t, notice, c.from, c.to)))
			assertRefused(t, err, contract.CodeBadInput, c.field, c.rule)
		})
	}
	for _, text := range []string{``, `null`, `"succeeded"`, `[]`, notice + `{}`} {
		_, err := contract.ParseChannelNotice([]byte(text))
		assert.Equal(t, contract.CodeBadInput, contract.CodeOf(err), text)
	}
}

// keepable says whether Postgres could keep the text.
func keepable(text string, limit int) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0) && len(text) <= limit
}

func FuzzParseRefundResolution(f *testing.F) {
	f.Add([]byte(settlement))
	f.Add([]byte(`{"id":"d-1","action":"resend","operator":"ann","reason":"r","amount":-9223372036854775808}`))
	f.Add([]byte(`"noise"`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := contract.ParseRefundResolution(raw)
		if err != nil {
			if contract.CodeOf(err) != contract.CodeBadResolution || !utf8.ValidString(err.Error()) || len(err.Error()) > 4000 {
				t.Fatalf("a refusal that cannot be shown: %q", err)
			}
			return
		}
		proves := d.Action == contract.ActionSettle || d.Action == contract.ActionRelease
		if !contract.ValidID(d.ID) || d.Operator == "" || d.Reason == "" || proves && (d.Evidence == "" || d.Amount < 1) ||
			d.Action == contract.ActionSettle && d.ChannelRef == "" || d.Currency != "" && len(d.Currency) != 3 {
			t.Fatalf("a broken rule went through: %+v", d)
		}
		for _, text := range []string{d.Operator, d.Approver, d.Reason, d.Evidence} {
			if !keepable(text, contract.MaxReasonBytes) {
				t.Fatalf("Postgres could not keep %q", text)
			}
		}
		if !keepable(d.ChannelRef, 200) {
			t.Fatalf("Postgres could not keep %q", d.ChannelRef)
		}
		encoded, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := contract.ParseRefundResolution(encoded); len(encoded) <= contract.MaxInputBytes && (err != nil || again != d) {
			t.Fatalf("it reads back as %+v: %v", again, err)
		}
	})
}

func FuzzParseChannelNotice(f *testing.F) {
	f.Add([]byte(notice))
	f.Add([]byte(`{"outcome":"failed","amount":0,"observedAt":"9999-12-31T23:59:59.999999999+14:00"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, err := contract.ParseChannelNotice(raw)
		if err != nil {
			canBeShown(t, err)
			return
		}
		if n.Outcome != contract.NoticePending && n.Outcome != contract.NoticeSucceeded && n.Outcome != contract.NoticeFailed ||
			n.Amount < 0 || n.Amount > contract.MaxCost || n.Currency != "" && len(n.Currency) != 3 {
			t.Fatalf("a broken rule went through: %+v", n)
		}
		for _, text := range []string{n.ID, n.Number, n.ChannelRef, n.Payment, n.Code} {
			if !keepable(text, 200) {
				t.Fatalf("Postgres could not keep %q", text)
			}
		}
		encoded, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		again, err := contract.ParseChannelNotice(encoded)
		if err != nil || !again.ObservedAt.Equal(n.ObservedAt) {
			t.Fatalf("%s reads back as %+v: %v", bytes.TrimSpace(encoded), again, err)
		}
		again.ObservedAt = n.ObservedAt
		if again != n {
			t.Fatalf("it reads back as %+v", again)
		}
	})
}
