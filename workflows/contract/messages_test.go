package contract_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestParseOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want contract.Outcome
	}{
		"success": {`{"attempt":2,"state":"succeeded","output":{"url":"v"},"source":"gpu-3"}`, contract.Outcome{
			Attempt: 2, State: contract.OutcomeSucceeded, Output: json.RawMessage(`{"url":"v"}`), Source: "gpu-3"}},
		"failure":   {`{"state":"failed","error":"disk full"}`, contract.Outcome{State: contract.OutcomeFailed, Error: "disk full"}},
		"the least": {`{"state":"failed"}`, contract.Outcome{State: contract.OutcomeFailed}},
		"largest attempt": {`{"state":"failed","attempt":2147483647}`,
			contract.Outcome{State: contract.OutcomeFailed, Attempt: 2147483647}},
		"texts are made fit to keep": {`{"state":"failed","error":"a\u0000b","source":"` + strings.Repeat("s", 300) + `"}`,
			contract.Outcome{State: contract.OutcomeFailed, Error: "a\uFFFDb", Source: strings.Repeat("s", 197) + "…"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := contract.ParseOutcome([]byte(c.text))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
	large := `{"state":"succeeded","output":"` + strings.Repeat("x", 1<<20) + `"}`
	_, err := contract.ParseOutcome([]byte(large))
	assert.NoError(t, err, "a large output is left out later, it does not refuse the report")
	for name, c := range map[string]struct{ text, field, rule string }{
		"no state":              {`{}`, "state", `must be "succeeded" or "failed", not ""`},
		"another state":         {`{"state":"running"}`, "state", `not "running"`},
		"state in capitals":     {`{"state":"Succeeded"}`, "state", "must be"},
		"negative attempt":      {`{"state":"failed","attempt":-1}`, "attempt", "must be between 1 and 2147483647"},
		"attempt beyond int32":  {`{"state":"failed","attempt":2147483648}`, "attempt", "must be between 1 and 2147483647"},
		"attempt with fraction": {`{"state":"failed","attempt":1.0}`, "attempt", "whole number"},
		"unknown field":         {`{"state":"failed","reason":"x"}`, "reason", "is not a field"},
		"repeated field":        {`{"state":"failed","state":"succeeded"}`, "state", "given twice"},
		"repeated in output":    {`{"state":"succeeded","output":{"a":1,"a":2}}`, "output.a", "given twice"},
		"invalid UTF-8":         {"{\"state\":\"succeeded\",\"output\":\"\xff\"}", "output", "not valid JSON"},
		"a text":                {`"succeeded"`, "", "must be a JSON object"},
		"nothing":               {``, "", "is missing"},
		"over 2 MB":             {`{"state":"succeeded","output":"` + strings.Repeat("x", 2<<20) + `"}`, "", "more than the 2097152"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := contract.ParseOutcome([]byte(c.text))
			refused, ok := errors.AsType[*contract.Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, contract.CodeBadInput, refused.Code)
			assert.Equal(t, c.field, refused.Fields[0].Field)
			assert.Contains(t, refused.Fields[0].Rule, c.rule)
		})
	}
}

func TestParseResolution(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want contract.Resolution
	}{
		"retry grants one attempt unless it says more": {
			`{"id":"r1","action":"retry","operator":"ada","reason":"gpu was down"}`,
			contract.Resolution{ID: "r1", Action: contract.ActionRetry, Operator: "ada", Reason: "gpu was down", Attempts: 1}},
		"retry of a hundred": {`{"id":"r1","action":"retry","operator":"ada","reason":"x","attempts":100,"evidence":"log"}`,
			contract.Resolution{ID: "r1", Action: contract.ActionRetry, Operator: "ada", Reason: "x", Attempts: 100, Evidence: "log"}},
		"deliver": {`{"id":"r:1._-","action":"deliver","operator":"ada","reason":"x","evidence":"mail"}`,
			contract.Resolution{ID: "r:1._-", Action: contract.ActionDeliver, Operator: "ada", Reason: "x", Evidence: "mail"}},
		"write_off": {`{"id":"r1","action":"write_off","operator":"ada","reason":"x","attempts":0}`,
			contract.Resolution{ID: "r1", Action: contract.ActionWriteOff, Operator: "ada", Reason: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := contract.ParseResolution([]byte(c.text))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			require.NoError(t, got.Check())
			assert.Equal(t, c.want, got, "checking again changes nothing")
		})
	}
	const valid = `{"id":"r1","action":"retry","operator":"ada","reason":"x","evidence":"e","attempts":2}`
	long := strings.Repeat("x", contract.MaxReasonBytes+1)
	for _, c := range []struct{ name, from, to, field, rule string }{
		{"no id", `"id":"r1",`, ``, "id", "1 to 100 characters"},
		{"id with a space", `"r1"`, `"r 1"`, "id", "1 to 100 characters"},
		{"id too long", `"r1"`, `"` + strings.Repeat("r", 101) + `"`, "id", "1 to 100 characters"},
		{"no action", `"action":"retry",`, ``, "action", "must be retry, deliver or write_off"},
		{"another action", `"retry"`, `"refund"`, "action", `not "refund"`},
		{"no operator", `"operator":"ada",`, ``, "operator", "is missing"},
		{"blank operator", `"ada"`, `" \t"`, "operator", "is missing"},
		{"long operator", `"ada"`, `"` + long + `"`, "operator", "2001 bytes"},
		{"no reason", `"reason":"x",`, ``, "reason", "is missing"},
		{"reason with NUL", `"reason":"x"`, `"reason":"\u0000"`, "reason", "without NUL"},
		{"long evidence", `"e"`, `"` + long + `"`, "evidence", "2001 bytes"},
		{"deliver without evidence", `"retry","operator":"ada","reason":"x","evidence":"e","attempts":2`,
			`"deliver","operator":"ada","reason":"x","evidence":" "`, "evidence", "deliver needs it"},
		{"negative attempts", `"attempts":2`, `"attempts":-1`, "attempts", "between 1 and 100, not -1"},
		{"101 attempts", `"attempts":2`, `"attempts":101`, "attempts", "between 1 and 100, not 101"},
		{"attempts without retry", `"retry"`, `"write_off"`, "attempts", "goes with retry only"},
		{"attempts as a text", `"attempts":2`, `"attempts":"2"`, "attempts", "whole number, not a string"},
		{"unknown field", `"id"`, `"approver":"x","id"`, "approver", "is not a field"},
		{"repeated field", `"id":"r1"`, `"id":"r1","id":"r2"`, "id", "given twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := contract.ParseResolution([]byte(with(t, valid, c.from, c.to)))
			refused, ok := errors.AsType[*contract.Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, contract.CodeBadResolution, refused.Code)
			assert.Equal(t, contract.RetryNewKey, refused.Retry)
			assert.Equal(t, c.field, refused.Fields[0].Field)
			assert.Contains(t, refused.Fields[0].Rule, c.rule)
		})
	}
	t.Run("what could be read is kept for the record", func(t *testing.T) {
		got, err := contract.ParseResolution([]byte(`{"id":"r1","action":"deliver","operator":"ada","reason":"x"}`))
		require.Error(t, err)
		assert.Equal(t, contract.Resolution{ID: "r1", Action: contract.ActionDeliver, Operator: "ada", Reason: "x"}, got)
	})
}

func TestStatesAndTheirActions(t *testing.T) {
	for state, c := range map[contract.JobState]struct {
		open    bool
		actions []contract.Action
	}{
		contract.StateCharging:   {true, []contract.Action{}},
		contract.StateRunning:    {true, []contract.Action{contract.ActionDeliver, contract.ActionWriteOff}},
		contract.StateDeadLetter: {true, []contract.Action{contract.ActionRetry, contract.ActionDeliver, contract.ActionWriteOff}},
		contract.StateSucceeded:  {false, []contract.Action{}},
		contract.StateDeclined:   {false, []contract.Action{}},
		contract.StateFailed:     {false, []contract.Action{contract.ActionDeliver}},
		contract.StateCanceled:   {false, []contract.Action{contract.ActionDeliver}},
		contract.StateWrittenOff: {false, []contract.Action{contract.ActionDeliver}},
	} {
		assert.Equal(t, c.open, state.Open(), state)
		assert.Equal(t, c.actions, state.Actions(), state)
	}
}

func TestNetIsWhatTheCustomerPaidInTheEnd(t *testing.T) {
	assert.EqualValues(t, 40, contract.Money{Charged: 40}.Net())
	assert.EqualValues(t, 0, contract.Money{Charged: 40, Refunded: 40}.Net())
	assert.EqualValues(t, 40, contract.Money{Charged: 40, Refunded: 40, Reclaimed: 40}.Net())
}

func TestAResultIsWrittenWithTheContractsNames(t *testing.T) {
	raw, err := json.Marshal(contract.JobResult{
		JobID: "j1", State: contract.StateSucceeded, Money: contract.Money{Charged: 40}, Net: 40, Attempts: 1,
		Output: json.RawMessage("null"),
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{"jobId":"j1","state":"succeeded","charged":40,"refunded":0,"reclaimed":0,"net":40,"attempts":1,
		"late":false,"output":null,"reason":""}`, string(raw))
	raw, err = json.Marshal(contract.JobStatus{State: contract.StateRunning, Actions: []contract.Action{}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"state":"running","charged":0,"refunded":0,"reclaimed":0,"attempt":0,"waitsFor":"","actions":[]}`, string(raw))
}

func TestClipMakesAnyTextSafeToKeep(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 10, "short"},
		{"exactly10!", 10, "exactly10!"},
		{"eleven char", 10, "eleven …"},
		{"ääääää", 10, "äää…"},
		{"a\x00b", 10, "a\uFFFDb"},
		{"a\xff\xfeb", 10, "a\uFFFDb"},
		{"", 10, ""},
		{"\x00\x00\x00\x00", 10, "\uFFFD\uFFFD…"},
		{"abcdef", 3, "…"},
	} {
		assert.Equal(t, c.want, contract.Clip(c.text, c.limit), "%q", c.text)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "text"))
		limit := rapid.IntRange(len("…"), 50).Draw(t, "limit")
		got := contract.Clip(text, limit)
		assert.LessOrEqual(t, len(got), limit)
		assert.True(t, utf8.ValidString(got))
		assert.NotContains(t, got, "\x00")
		assert.Equal(t, got, contract.Clip(got, limit), "clipping again changes nothing")
		if utf8.ValidString(text) && !strings.Contains(text, "\x00") && len(text) <= limit {
			assert.Equal(t, text, got)
		}
	})
}

func TestCheckTextAndCheckID(t *testing.T) {
	assert.NoError(t, contract.CheckID("account", "team-7"))
	assert.ErrorContains(t, contract.CheckID("account", "team 7"), "account must be 1 to 100 characters")
	assert.NoError(t, contract.CheckText("reason", "x", 10))
	for _, text := range []string{"", "  ", "eleven char", "\x00", "\xff"} {
		assert.Equal(t, contract.CodeBadInput, contract.CodeOf(contract.CheckText("reason", text, 10)), "%q", text)
	}
}

func TestAnErrorCarriesItsCodeAndCauseThroughWrapping(t *testing.T) {
	cause := errors.New("connection refused")
	err := contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, "Postgres could not be reached", cause)
	wrapped := errors.Join(errors.New("while starting"), err)
	assert.Equal(t, contract.CodeUnavailable, contract.CodeOf(wrapped))
	assert.ErrorIs(t, wrapped, cause)
	assert.Equal(t, contract.Code(""), contract.CodeOf(cause))
	assert.Equal(t, contract.Code(""), contract.CodeOf(nil))
	raw, _ := json.Marshal(err)
	assert.JSONEq(t, `{"code":"Unavailable","message":"Postgres could not be reached","retry":"same_key"}`, string(raw),
		"the cause stays inside")
}
