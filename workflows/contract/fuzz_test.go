package contract_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

func FuzzParseJob(f *testing.F) {
	f.Add([]byte(fullJob))
	f.Add([]byte(leastJob))
	f.Add([]byte(`{"tenant":1,"work":{"input":{"a":1,"a":2}},"retry":{"multiplier":1e999}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		job, err := contract.ParseJob(raw)
		if err != nil {
			canBeShown(t, err)
			return
		}
		if !utf8.Valid(raw) || bytes.Contains(raw, []byte{0}) {
			t.Fatal("Postgres could not keep the spec")
		}
		if job.Cost < 0 || job.Cost > contract.MaxCost || job.Promise <= 0 || job.Work.Timeout <= 0 ||
			!contract.ValidID(job.Tenant) || !contract.ValidID(job.JobID) || job.Retry.MaxAttempts < 1 {
			t.Fatalf("a broken rule went through: %+v", job)
		}
		fingerprint, err := job.Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		encoded, again, err := job.Encode()
		if len(encoded) > contract.MaxInputBytes {
			// Escapes may grow when they are written anew.
			return
		}
		if err != nil {
			t.Fatalf("it cannot be sent again: %v", err)
		}
		if repeated, err := again.Fingerprint(); err != nil || repeated != fingerprint {
			t.Fatalf("it is another job once encoded: %v", err)
		}
		if pause := job.Retry.Backoff(50); pause < 1e9 || pause > contract.MaxDuration && pause > 1e9 {
			t.Fatalf("a pause of %s", pause)
		}
	})
}

// canBeShown checks a refusal of bad input: whoever sent it reads what it says.
func canBeShown(t *testing.T, err error) {
	t.Helper()
	if contract.CodeOf(err) != contract.CodeBadInput || !utf8.ValidString(err.Error()) || len(err.Error()) > 4000 {
		t.Fatalf("a refusal that cannot be shown: %q", err)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, text := range []string{`{"b":[1.0,{"\u0061":null}],"a":"é\n"}`, `"\ud83c\udfac"`, `1e5`, ` [ ] `, `{"a":1,"a":2}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		form, err := contract.Canonical(raw)
		if err != nil {
			return
		}
		if !json.Valid(raw) || !json.Valid(form) || !utf8.Valid(form) {
			t.Fatalf("not JSON: %q from %q", form, raw)
		}
		again, err := contract.Canonical(form)
		if err != nil || !bytes.Equal(again, form) {
			t.Fatalf("%q is not its own form but %q: %v", form, again, err)
		}
		var was, is any
		if json.Unmarshal(raw, &was) != nil {
			return
		}
		if err := json.Unmarshal(form, &is); err != nil {
			t.Fatal(err)
		}
		one, _ := json.Marshal(was)
		other, _ := json.Marshal(is)
		if !bytes.Equal(one, other) {
			t.Fatalf("another value: %s became %s", one, other)
		}
	})
}

func FuzzParseResolution(f *testing.F) {
	f.Add([]byte(`{"id":"r1","action":"retry","operator":"ada","reason":"x","evidence":"e","attempts":2}`))
	f.Add([]byte(`{"id":"r1","action":"deliver","operator":"ada","reason":"x"}`))
	f.Add([]byte(`"noise"`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := contract.ParseResolution(raw)
		if err != nil {
			if contract.CodeOf(err) != contract.CodeBadResolution || !utf8.ValidString(err.Error()) {
				t.Fatalf("a refusal that cannot be shown: %q", err)
			}
			return
		}
		if !contract.ValidID(d.ID) || d.Operator == "" || d.Reason == "" || d.Attempts < 0 || d.Attempts > 100 ||
			(d.Action == contract.ActionRetry) != (d.Attempts > 0) || d.Action == contract.ActionDeliver && d.Evidence == "" {
			t.Fatalf("a broken rule went through: %+v", d)
		}
		for _, text := range []string{d.Operator, d.Reason, d.Evidence} {
			if !utf8.ValidString(text) || bytes.ContainsRune([]byte(text), 0) || len(text) > contract.MaxReasonBytes {
				t.Fatalf("Postgres could not keep %q", text)
			}
		}
		encoded, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := contract.ParseResolution(encoded); len(encoded) <= contract.MaxInputBytes && (err != nil || again != d) {
			t.Fatalf("it reads back as %+v: %v", again, err)
		}
	})
}
