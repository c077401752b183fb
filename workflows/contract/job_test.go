package contract_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

const fullJob = `{"tenant":"acme","jobId":"render-8841","account":"team-7","cost":40,"actor":"api:checkout",
 "work":{"activity":"RenderVideo","taskQueue":"gpu","input":{"scene":"<é>","fps":24.0},"timeout":"10m","heartbeat":"20s","probe":"FindVideo"},
 "promise":"30s",
 "retry":{"maxAttempts":5,"initialBackoff":"2s","multiplier":1.5,"maxBackoff":"3m"},
 "refundOnFailure":false,"refundTo":"balance","orderId":"o-1","summary":"4K render, 30 s clip"}`

const leastJob = `{"tenant":"acme","jobId":"j1","account":"team-7","cost":0,
 "work":{"activity":"RenderVideo","taskQueue":"gpu","timeout":"10m"},"promise":"30s"}`

// with returns the JSON text with one part replaced.
func with(t *testing.T, text, from, to string) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(text, from), "%q in %s", from, text)
	return strings.Replace(text, from, to, 1)
}

func TestEveryFieldOfAJobIsRead(t *testing.T) {
	job, err := contract.ParseJob([]byte(fullJob))
	require.NoError(t, err)
	assert.Equal(t, contract.Job{
		Tenant: "acme", JobID: "render-8841", Account: "team-7", Cost: 40, Actor: "api:checkout",
		Work: contract.Work{
			Activity: "RenderVideo", TaskQueue: "gpu", Input: json.RawMessage(`{"scene":"<é>","fps":24.0}`),
			Timeout: contract.Duration(10 * time.Minute), Heartbeat: contract.Duration(20 * time.Second), Probe: "FindVideo",
		},
		Promise: contract.Duration(30 * time.Second),
		Retry: contract.Retrying{
			MaxAttempts: 5, InitialBackoff: contract.Duration(2 * time.Second), Multiplier: 1.5,
			MaxBackoff: contract.Duration(3 * time.Minute),
		},
		RefundOnFailure: new(false), RefundTo: contract.RefundToBalance, OrderID: "o-1", Summary: "4K render, 30 s clip",
	}, job)
	assert.Equal(t, "job/acme/render-8841", job.WorkflowID())
}

func TestAbsentFieldsHaveTheirDefaults(t *testing.T) {
	want := contract.Job{
		Tenant: "acme", JobID: "j1", Account: "team-7",
		Work: contract.Work{
			Activity: "RenderVideo", TaskQueue: "gpu", Input: json.RawMessage("null"), Timeout: contract.Duration(10 * time.Minute),
		},
		Promise: contract.Duration(30 * time.Second),
		Retry: contract.Retrying{
			MaxAttempts: 3, InitialBackoff: contract.Duration(time.Second), Multiplier: 2, MaxBackoff: contract.Duration(time.Minute),
		},
		RefundOnFailure: new(true), RefundTo: contract.RefundToBalance,
	}
	for name, text := range map[string]string{
		"absent":                 leastJob,
		"null where optional":    with(t, leastJob, `"promise"`, `"retry":null,"refundOnFailure":null,"actor":null,"promise"`),
		"null heartbeat":         with(t, leastJob, `"timeout"`, `"heartbeat":null,"probe":null,"timeout"`),
		"empty retry":            with(t, leastJob, `"promise"`, `"retry":{},"promise"`),
		"null in retry":          with(t, leastJob, `"promise"`, `"retry":{"maxAttempts":null,"multiplier":null},"promise"`),
		"heartbeat and probe":    with(t, leastJob, `"timeout"`, `"heartbeat":"0s","probe":"","timeout"`),
		"empty optional texts":   with(t, leastJob, `"promise"`, `"actor":"","summary":"","orderId":"","refundTo":"","promise"`),
		"input given as null":    with(t, leastJob, `"timeout"`, `"input":null,"timeout"`),
		"white space around":     "\n\t " + leastJob + "\r\n",
		"defaults written out":   with(t, leastJob, `"promise"`, `"retry":{"maxAttempts":3,"initialBackoff":"1s","multiplier":2.0,"maxBackoff":"60s"},"refundTo":"balance","refundOnFailure":true,"promise"`),
		"durations written else": with(t, leastJob, `"10m"`, `"600s"`),
	} {
		t.Run(name, func(t *testing.T) {
			job, err := contract.ParseJob([]byte(text))
			require.NoError(t, err)
			assert.Equal(t, want, job)
			assert.True(t, job.RefundsOnFailure())
		})
	}
	assert.True(t, contract.Job{}.RefundsOnFailure(), "in Go, an absent value means the default")
}

func TestEachRuleOfAJobIsCheckedAndNamed(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		name, from, to string
		field, rule    string
	}{
		{"no tenant", `"tenant":"acme",`, ``, "tenant", "is missing"},
		{"null tenant", `"tenant":"acme"`, `"tenant":null`, "tenant", "is missing"},
		{"no jobId", `"jobId":"render-8841",`, ``, "jobId", "is missing"},
		{"no account", `"account":"team-7",`, ``, "account", "is missing"},
		{"no cost", `"cost":40,`, ``, "cost", "is missing"},
		{"null cost", `"cost":40`, `"cost":null`, "cost", "is missing"},
		{"no promise", `"promise":"30s",`, ``, "promise", "is missing"},
		{"no activity", `"activity":"RenderVideo",`, ``, "work.activity", "is missing"},
		{"no queue", `"taskQueue":"gpu",`, ``, "work.taskQueue", "is missing"},
		{"no timeout", `"timeout":"10m",`, ``, "work.timeout", "is missing"},

		{"empty id", `"tenant":"acme"`, `"tenant":""`, "tenant", "1 to 100 characters"},
		{"id with a slash", `"jobId":"render-8841"`, `"jobId":"a/b"`, "jobId", "1 to 100 characters"},
		{"id with a space", `"account":"team-7"`, `"account":"team 7"`, "account", "1 to 100 characters"},
		{"id with a letter beyond ASCII", `"account":"team-7"`, `"account":"teäm"`, "account", "1 to 100 characters"},
		{"id of 101 characters", `"tenant":"acme"`, `"tenant":"` + long(101) + `"`, "tenant", "1 to 100 characters"},
		{"bad order id", `"orderId":"o-1"`, `"orderId":"o 1"`, "orderId", "1 to 100 characters"},

		{"L47 negative cost", `"cost":40`, `"cost":-1`, "cost", "between 0 and 9007199254740991"},
		{"T46 cost of 2^53", `"cost":40`, `"cost":9007199254740992`, "cost", "between 0 and 9007199254740991"},
		{"L50 cost beyond int64", `"cost":40`, `"cost":9223372036854775808`, "cost", "whole number"},
		{"L44 cost with a fraction", `"cost":40`, `"cost":17.9699`, "cost", "whole number"},
		{"cost 1.0", `"cost":40`, `"cost":1.0`, "cost", "whole number"},
		{"cost 1e2", `"cost":40`, `"cost":1e2`, "cost", "whole number"},
		{"cost as a string", `"cost":40`, `"cost":"40"`, "cost", "whole number, not a string"},
		{"cost as a list", `"cost":40`, `"cost":[40]`, "cost", "whole number, not a list"},

		{"empty activity", `"activity":"RenderVideo"`, `"activity":""`, "work.activity", "1 to 200 printable ASCII"},
		{"activity of 201 characters", `"activity":"RenderVideo"`, `"activity":"` + long(201) + `"`, "work.activity", "1 to 200"},
		{"activity beyond ASCII", `"activity":"RenderVideo"`, `"activity":"Rendér"`, "work.activity", "printable ASCII"},
		{"activity with a line break", `"activity":"RenderVideo"`, `"activity":"a\nb"`, "work.activity", "printable ASCII"},
		{"reserved activity", `"activity":"RenderVideo"`, `"activity":"/_sys/a"`, "work.activity", "reserves"},
		{"reserved queue", `"taskQueue":"gpu"`, `"taskQueue":"/_sys/q"`, "work.taskQueue", "reserves"},
		{"queue of 201 characters", `"taskQueue":"gpu"`, `"taskQueue":"` + long(201) + `"`, "work.taskQueue", "1 to 200"},
		{"Temporal's own queue", `"taskQueue":"gpu"`, `"taskQueue":"temporal-sys-per-ns-tq"`, "work.taskQueue", "Temporal's own"},
		{"reserved probe", `"probe":"FindVideo"`, `"probe":"/_sys/p"`, "work.probe", "reserves"},
		{"probe of 201 characters", `"probe":"FindVideo"`, `"probe":"` + long(201) + `"`, "work.probe", "1 to 200"},

		{"promise 0", `"promise":"30s"`, `"promise":"0s"`, "promise", "more than 0s and at most ten years"},
		{"negative promise", `"promise":"30s"`, `"promise":"-1s"`, "promise", "more than 0s"},
		{"promise over ten years", `"promise":"30s"`, `"promise":"87660h0m1s"`, "promise", "at most ten years"},
		{"promise beyond what a duration holds", `"promise":"30s"`, `"promise":"9999999h"`, "promise", "must be a duration"},
		{"promise without a unit", `"promise":"30s"`, `"promise":"30"`, "promise", "must be a duration such as"},
		{"promise as a number", `"promise":"30s"`, `"promise":30`, "promise", `must be a string such as "30s"`},
		{"timeout 0", `"timeout":"10m"`, `"timeout":"0s"`, "work.timeout", "more than 0s"},
		{"timeout over ten years", `"timeout":"10m"`, `"timeout":"90000h"`, "work.timeout", "at most ten years"},
		{"timeout as a list", `"timeout":"10m"`, `"timeout":[]`, "work.timeout", "must be a string such as"},
		{"negative heartbeat", `"heartbeat":"20s"`, `"heartbeat":"-20s"`, "work.heartbeat", "between 0s and ten years"},
		{"heartbeat over ten years", `"heartbeat":"20s"`, `"heartbeat":"90000h"`, "work.heartbeat", "between 0s and ten years"},

		{"no attempts", `"maxAttempts":5`, `"maxAttempts":0`, "retry.maxAttempts", "between 1 and 100, not 0"},
		{"101 attempts", `"maxAttempts":5`, `"maxAttempts":101`, "retry.maxAttempts", "between 1 and 100"},
		{"attempts 1.0", `"maxAttempts":5`, `"maxAttempts":1.0`, "retry.maxAttempts", "whole number"},
		{"multiplier below 1", `"multiplier":1.5`, `"multiplier":0.99`, "retry.multiplier", "at least 1"},
		{"multiplier beyond a float", `"multiplier":1.5`, `"multiplier":1e999`, "retry.multiplier", ""},
		{"multiplier as a string", `"multiplier":1.5`, `"multiplier":"2"`, "retry.multiplier", "string"},
		{"initial backoff 0", `"initialBackoff":"2s"`, `"initialBackoff":"0s"`, "retry.initialBackoff", "more than 0s"},
		{"negative max backoff", `"maxBackoff":"3m"`, `"maxBackoff":"-3m"`, "retry.maxBackoff", "more than 0s"},
		{"max backoff over ten years", `"maxBackoff":"3m"`, `"maxBackoff":"90000h"`, "retry.maxBackoff", "at most ten years"},
		{"retry as a list", `{"maxAttempts":5,"initialBackoff":"2s","multiplier":1.5,"maxBackoff":"3m"}`, `[]`, "retry", "list"},

		{"refundOnFailure as a text", `"refundOnFailure":false`, `"refundOnFailure":"no"`, "refundOnFailure", "string"},
		{"refundTo source", `"refundTo":"balance","orderId":"o-1"`, `"refundTo":"source"`, "orderId", `is missing: refundTo "source" sends the refund through this order`},
		{"unknown refundTo", `"refundTo":"balance"`, `"refundTo":"card"`, "refundTo", "\"balance\" or \"source\""},
		{"refundTo elsewhere", `"refundTo":"balance"`, `"refundTo":"card"`, "refundTo", `must be "balance"`},
		{"actor of 201 bytes", `"actor":"api:checkout"`, `"actor":"` + long(201) + `"`, "actor", "201 bytes, more than the 200"},
		{"actor with NUL", `"actor":"api:checkout"`, `"actor":"a\u0000"`, "actor", "without NUL"},
		{"summary over the limit", `"summary":"4K render, 30 s clip"`, `"summary":"` + long(2001) + `"`, "summary", "2001 bytes"},
		{"L77 summary with NUL", `"summary":"4K render, 30 s clip"`, `"summary":"a\u0000b"`, "summary", "without NUL"},

		{"unknown field", `"cost":40`, `"cost":40,"price":1`, "price", "is not a field of this input"},
		{"unknown field in work", `"taskQueue":"gpu"`, `"taskQueue":"gpu","queue":"q"`, "work.queue", "is not a field"},
		{"unknown field in retry", `"maxAttempts":5`, `"maxAttempts":5,"jitter":1`, "retry.jitter", "is not a field"},
		{"other letter case", `"jobId"`, `"jobID"`, "jobID", "is not a field"},
		{"repeated field", `"cost":40`, `"cost":40,"cost":41`, "cost", "is given twice"},
		{"repeated field in work", `"taskQueue":"gpu"`, `"taskQueue":"gpu","taskQueue":"cpu"`, "work.taskQueue", "is given twice"},
		{"repeated field in the work's input", `"fps":24.0`, `"fps":24.0,"fps":25`, "work.input.fps", "is given twice"},
		{"invalid UTF-8", `"summary":"4K`, "\"summary\":\"\xff4K", "summary", "not valid JSON"},
		{"invalid UTF-8 in the work's input", `"<é>"`, "\"\xff\"", "work.input.scene", "not valid JSON"},
		{"half a surrogate pair", `"<é>"`, `"\ud800"`, "work.input.scene", "not valid JSON"},
		{"tenant as a number", `"tenant":"acme"`, `"tenant":7`, "tenant", "number"},
		{"work as a text", `"work":{`, `"work":"x","nothing":{`, "work", "string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := contract.ParseJob([]byte(with(t, fullJob, c.from, c.to)))
			refused, ok := errors.AsType[*contract.Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, contract.CodeBadInput, refused.Code)
			assert.Equal(t, contract.RetryNewKey, refused.Retry)
			require.NotEmpty(t, refused.Fields)
			assert.Equal(t, c.field, refused.Fields[0].Field, refused.Message)
			assert.Contains(t, refused.Fields[0].Rule, c.rule)
			assert.Contains(t, refused.Message, c.field+" ", "the message says it too")
			assert.Less(t, len(refused.Message), 400, "a long value is not quoted in full")
		})
	}
}

func TestWhatIsNoJobAtAllIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, rule string }{
		"nothing":            {"", "is missing: a JSON object is needed"},
		"white space":        {"  \n", "must be a JSON object"},
		"null":               {"null", "must be a JSON object"},
		"a list":             {"[" + leastJob + "]", "must be a JSON object"},
		"a text":             {`"job"`, "must be a JSON object"},
		"a byte order mark":  {"\uFEFF" + leastJob, ""},
		"cut short":          {leastJob[:len(leastJob)-1], "not valid JSON at byte"},
		"trailing data":      {leastJob + "{}", "not valid JSON at byte"},
		"trailing NUL":       {leastJob + "\x00", "not valid JSON at byte"},
		"a comment":          {"{/**/" + leastJob[1:], "not valid JSON at byte"},
		"single quotes":      {strings.ReplaceAll(leastJob, `"`, `'`), "not valid JSON at byte"},
		"nested too deep":    {with(t, leastJob, `"timeout"`, `"input":`+strings.Repeat("[", 12000)+strings.Repeat("]", 12000)+`,"timeout"`), "not valid JSON at byte"},
		"one byte too large": {leastJob + strings.Repeat(" ", contract.MaxInputBytes-len(leastJob)+1), "65537 bytes, more than the 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := contract.ParseJob([]byte(c.text))
			assert.Equal(t, contract.CodeBadInput, contract.CodeOf(err))
			assert.ErrorContains(t, err, c.rule)
		})
	}
}

func TestEveryBrokenRuleIsNamedAtOnce(t *testing.T) {
	_, err := contract.ParseJob([]byte(`{"tenant":"a b","cost":-1,"work":{"activity":""},"promise":"0s","retry":{"maxAttempts":0}}`))
	refused, ok := errors.AsType[*contract.Error](err)
	require.True(t, ok)
	fields := []string{}
	for _, f := range refused.Fields {
		fields = append(fields, f.Field)
	}
	assert.ElementsMatch(t, []string{
		"jobId", "account", "cost", "work.taskQueue", "work.timeout", "work.activity", "tenant", "promise", "retry.maxAttempts",
	}, fields)
}

func TestTheLimitsThemselvesAreAllowed(t *testing.T) {
	for name, text := range map[string]string{
		"cost of 2^53-1":          with(t, fullJob, `"cost":40`, `"cost":9007199254740991`),
		"cost 0":                  with(t, fullJob, `"cost":40`, `"cost":0`),
		"cost -0":                 with(t, fullJob, `"cost":40`, `"cost":-0`),
		"id of 100 characters":    with(t, fullJob, `"acme"`, `"`+strings.Repeat("x", 100)+`"`),
		"every character of ids":  with(t, fullJob, `"acme"`, `"AZaz09._:-"`),
		"name of 200 characters":  with(t, fullJob, `"gpu"`, `"`+strings.Repeat("q", 200)+`"`),
		"name with any ASCII":     with(t, fullJob, `"gpu"`, `"a /_sys/ ~!"`),
		"ten years":               with(t, fullJob, `"promise":"30s"`, `"promise":"87660h"`),
		"one nanosecond":          with(t, fullJob, `"promise":"30s"`, `"promise":"1ns"`),
		"100 attempts":            with(t, fullJob, `"maxAttempts":5`, `"maxAttempts":100`),
		"one attempt":             with(t, fullJob, `"maxAttempts":5`, `"maxAttempts":1`),
		"multiplier 1":            with(t, fullJob, `"multiplier":1.5`, `"multiplier":1`),
		"summary of 2000 bytes":   with(t, fullJob, `"4K render, 30 s clip"`, `"`+strings.Repeat("x", 2000)+`"`),
		"L77 emoji, quotes":       with(t, fullJob, `"4K render, 30 s clip"`, `"🎬 \"x\" \\"`),
		"input of 64 KB in all":   fullJob + strings.Repeat(" ", contract.MaxInputBytes-len(fullJob)),
		"NUL in the work's input": with(t, fullJob, `"<é>"`, `"\u0000"`),
		"digits of any number":    with(t, fullJob, `24.0`, `123456789012345678901234567890.5e-7`),
	} {
		t.Run(name, func(t *testing.T) {
			job, err := contract.ParseJob([]byte(text))
			require.NoError(t, err)
			_, err = job.Fingerprint()
			require.NoError(t, err)
		})
	}
}

func TestAnEncodedJobReadsBackAsItself(t *testing.T) {
	for _, text := range []string{fullJob, leastJob} {
		parsed, err := contract.ParseJob([]byte(text))
		require.NoError(t, err)
		raw, again, err := parsed.Encode()
		require.NoError(t, err)
		assert.Equal(t, parsed, again)
		reread, err := contract.ParseJob(raw)
		require.NoError(t, err)
		assert.Equal(t, parsed, reread)
	}
	t.Run("a Go job's zero values mean the defaults", func(t *testing.T) {
		job := contract.Job{
			Tenant: "acme", JobID: "j1", Account: "team-7", Promise: contract.Duration(30 * time.Second),
			Work: contract.Work{Activity: "RenderVideo", TaskQueue: "gpu", Timeout: contract.Duration(10 * time.Minute)},
		}
		_, parsed, err := job.Encode()
		require.NoError(t, err)
		least, err := contract.ParseJob([]byte(leastJob))
		require.NoError(t, err)
		assert.Equal(t, least, parsed)
	})
	t.Run("what breaks a rule is refused before it is sent", func(t *testing.T) {
		for name, spoil := range map[string]func(*contract.Job){
			"tenant":           func(j *contract.Job) { j.Tenant = "a b" },
			"cost":             func(j *contract.Job) { j.Cost = -1 },
			"promise":          func(j *contract.Job) { j.Promise = 0 },
			"text":             func(j *contract.Job) { j.Summary = "\xff" },
			"NaN":              func(j *contract.Job) { j.Retry.Multiplier = math.NaN() },
			"infinite":         func(j *contract.Job) { j.Retry.Multiplier = math.Inf(1) },
			"input":            func(j *contract.Job) { j.Work.Input = json.RawMessage("{") },
			"input of a trick": func(j *contract.Job) { j.Work.Input = json.RawMessage(`1},"cost":{`) },
		} {
			job, err := contract.ParseJob([]byte(fullJob))
			require.NoError(t, err)
			spoil(&job)
			_, _, err = job.Encode()
			assert.Equal(t, contract.CodeBadInput, contract.CodeOf(err), "%s: %v", name, err)
		}
	})
}

// What encodes as nothing much is an input like any other: the activity gets it, and the fingerprint is that of the same JSON
// submitted from elsewhere.
func TestAnEncodedJobKeepsAnInputThatIsEmpty(t *testing.T) {
	for _, input := range []string{"{}", "[]", `""`, "null", "0", "false"} {
		submitted, err := contract.ParseJob([]byte(with(t, leastJob, `"timeout"`, `"input":`+input+`,"timeout"`)))
		require.NoError(t, err)
		raw, encoded, err := submitted.Encode()
		require.NoError(t, err)
		assert.Equal(t, input, string(encoded.Work.Input), "%s", raw)
		want, err := submitted.Fingerprint()
		require.NoError(t, err)
		got, err := encoded.Fingerprint()
		require.NoError(t, err)
		assert.Equal(t, want, got, input)
	}
	submitted, err := contract.ParseJob([]byte(leastJob))
	require.NoError(t, err)
	submitted.Work.Input = json.RawMessage{}
	_, encoded, err := submitted.Encode()
	require.NoError(t, err)
	assert.Equal(t, "null", string(encoded.Work.Input))
}

func TestBackoff(t *testing.T) {
	second := contract.Duration(time.Second)
	for _, c := range []struct {
		name  string
		retry contract.Retrying
		want  []time.Duration
	}{
		{"doubling to its limit", contract.Retrying{InitialBackoff: second, Multiplier: 2, MaxBackoff: 10 * second},
			[]time.Duration{1e9, 2e9, 4e9, 8e9, 10e9, 10e9}},
		{"constant", contract.Retrying{InitialBackoff: 3 * second, Multiplier: 1, MaxBackoff: 10 * second},
			[]time.Duration{3e9, 3e9, 3e9}},
		{"the limit is below the start", contract.Retrying{InitialBackoff: 30 * second, Multiplier: 2, MaxBackoff: 5 * second},
			[]time.Duration{5e9, 5e9}},
		{"under one second takes one second",
			contract.Retrying{InitialBackoff: second / 1000, Multiplier: 10, MaxBackoff: 2 * second},
			[]time.Duration{1e9, 1e9, 1e9, 1e9, 2e9}},
		{"a multiplier beyond all bounds",
			contract.Retrying{InitialBackoff: second, Multiplier: math.MaxFloat64, MaxBackoff: contract.Duration(contract.MaxDuration)},
			[]time.Duration{1e9, contract.MaxDuration, contract.MaxDuration}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, want := range c.want {
				assert.Equal(t, want, c.retry.Backoff(i+1), "after attempt %d", i+1)
			}
			assert.Equal(t, c.want[0], c.retry.Backoff(0))
			assert.Equal(t, c.want[len(c.want)-1], c.retry.Backoff(1_000_000))
		})
	}
}

func TestDurationsAreWrittenAsStrings(t *testing.T) {
	raw, err := json.Marshal(map[string]contract.Duration{"d": contract.Duration(90 * time.Minute)})
	require.NoError(t, err)
	assert.Equal(t, `{"d":"1h30m0s"}`, string(raw))
	var read struct{ D contract.Duration }
	require.NoError(t, json.Unmarshal([]byte(`{"d":"1h30m"}`), &read))
	assert.Equal(t, 90*time.Minute, read.D.Std())
	for _, wrong := range []string{`30`, `"30"`, `"soon"`, `[]`, `true`, `""`} {
		assert.Error(t, json.Unmarshal(fmt.Appendf(nil, `{"d":%s}`, wrong), &read), wrong)
	}
}

func TestFingerprintsNeverChange(t *testing.T) {
	// Stored with every job for ever: these values were computed by another program.
	for text, want := range map[string]string{
		with(t, fullJob, `"orderId":"o-1",`, ``):                    "v1:9efaf5e10323256f9d4e1df8eac0095042b12dde85933dd6aa9f434c3eccb2e2",
		with(t, leastJob, `"promise"`, `"orderId":"o-1","promise"`): "v1:8e071d1a26c75696fff68e1050a02c7a73431d8ed9f438fcb5f91cb49e543fb1",
	} {
		job, err := contract.ParseJob([]byte(text))
		require.NoError(t, err)
		got, err := job.Fingerprint()
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

func fingerprint(t *testing.T, text string) string {
	t.Helper()
	job, err := contract.ParseJob([]byte(text))
	require.NoError(t, err)
	got, err := job.Fingerprint()
	require.NoError(t, err)
	return got
}

func TestAFingerprintCoversTheBusinessParametersOnly(t *testing.T) {
	base := fingerprint(t, fullJob)
	for name, text := range map[string]string{
		"white space":        strings.NewReplacer("\n", "", `":`, `" :  `).Replace(fullJob),
		"order of the input": with(t, fullJob, `{"scene":"<é>","fps":24.0}`, `{ "fps":24.0, "scene":"<é>" }`),
		"escapes":            with(t, fullJob, `"<é>"`, `"\u003c\u00e9>"`),
		"L37 actor":          with(t, fullJob, `"api:checkout"`, `"cron"`),
		"summary":            with(t, fullJob, `"4K render, 30 s clip"`, `"other"`),
		"promise":            with(t, fullJob, `"30s"`, `"1h"`),
		"timeout":            with(t, fullJob, `"10m"`, `"20m"`),
		"heartbeat":          with(t, fullJob, `"20s"`, `"40s"`),
		"probe":              with(t, fullJob, `,"probe":"FindVideo"`, ``),
		"retry":              with(t, fullJob, `"maxAttempts":5`, `"maxAttempts":9`),
		"refundOnFailure":    with(t, fullJob, `"refundOnFailure":false`, `"refundOnFailure":true`),
		"default left out":   with(t, fullJob, `"refundTo":"balance",`, ``),
		"tenant, in the key": with(t, fullJob, `"acme"`, `"other"`),
		"job id, in the key": with(t, fullJob, `"render-8841"`, `"other"`),
	} {
		assert.Equal(t, base, fingerprint(t, text), name)
	}
	assert.Equal(t, fingerprint(t, leastJob), fingerprint(t, with(t, leastJob, `"timeout"`, `"input":null,"timeout"`)))
	seen := map[string]string{base: "base"}
	for name, text := range map[string]string{
		"L34 cost":       with(t, fullJob, `"cost":40`, `"cost":41`),
		"account":        with(t, fullJob, `"team-7"`, `"team-8"`),
		"activity":       with(t, fullJob, `"RenderVideo"`, `"RenderVideo2"`),
		"queue":          with(t, fullJob, `"gpu"`, `"gpu2"`),
		"order":          with(t, fullJob, `"o-1"`, `"o-2"`),
		"no order":       with(t, fullJob, `"orderId":"o-1",`, ``),
		"input":          with(t, fullJob, `"<é>"`, `"<e>"`),
		"a number 24":    with(t, fullJob, `24.0`, `24`),
		"a number 24.00": with(t, fullJob, `24.0`, `24.00`),
		"input null":     with(t, fullJob, `{"scene":"<é>","fps":24.0}`, `null`),
		"a text null":    with(t, fullJob, `{"scene":"<é>","fps":24.0}`, `"null"`),
	} {
		got := fingerprint(t, text)
		assert.Empty(t, seen[got], "%s has the fingerprint of %s", name, seen[got])
		seen[got] = name
	}
}

func TestFingerprintsOfDifferentPartsDiffer(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{
		{}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"b", "a"}, {"1:a"}, {"a1:b"}, {"a", "1:b"}, {"0:"}, {"0:", ""},
	} {
		got := contract.Fingerprint(parts...)
		assert.Regexp(t, `^v1:[0-9a-f]{64}$`, got)
		assert.Nil(t, seen[got], "%q and %q", parts, seen[got])
		seen[got] = parts
	}
}
