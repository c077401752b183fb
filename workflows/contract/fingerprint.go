package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Fingerprint identifies what a job is for: two submissions under one job id are the same if and only if their
// fingerprints are. It covers account, cost, the work's activity, queue and input, refundTo and orderId, and
// leaves out what a deploy may change between two retries (promise, timeouts, retry, probe, actor, summary).
// The job must come from ParseJob or Encode.
func (j Job) Fingerprint() (string, error) {
	input, err := Canonical(j.Work.Input)
	if err != nil {
		return "", NewError(CodeBadInput, RetryNewKey, "work.input is not valid JSON: "+err.Error(), err)
	}
	return Fingerprint(
		"account", j.Account, "cost", strconv.FormatInt(j.Cost, 10), "activity", j.Work.Activity,
		"taskQueue", j.Work.TaskQueue, "input", string(input), "refundTo", string(j.RefundTo), "orderId", j.OrderID,
	), nil
}

// Fingerprint hashes the parameters of an operation, given as names and values in a fixed order. Each part is
// preceded by its length, so that no two lists of parts read alike.
func Fingerprint(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return "v1:" + hex.EncodeToString(h.Sum(nil))
}

// Canonical returns the one form of a JSON value that every equal value has: object members sorted by name, no white
// space, strings escaped minimally, numbers kept as written (1 and 1.0 differ, and no digit is lost). Repeated
// members and invalid UTF-8 are errors.
func Canonical(raw []byte) ([]byte, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	out, err := appendCanonical(nil, dec)
	if err != nil {
		return nil, err
	}
	if dec.PeekKind() != 0 || dec.InputOffset() != int64(len(bytes.TrimRight(raw, " \t\r\n"))) {
		return nil, fmt.Errorf("there is more after the first JSON value")
	}
	return out, nil
}

func appendCanonical(dst []byte, dec *jsontext.Decoder) ([]byte, error) {
	token, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '{':
		members := map[string][]byte{}
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return nil, err
			}
			// The token's text is only valid until the next read.
			key := name.String()
			if members[key], err = appendCanonical(nil, dec); err != nil {
				return nil, err
			}
		}
		if _, err := dec.ReadToken(); err != nil {
			return nil, err
		}
		names := make([]string, 0, len(members))
		for name := range members {
			names = append(names, name)
		}
		slices.Sort(names)
		dst = append(dst, '{')
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = jsontext.AppendQuote(dst, name); err != nil {
				return nil, err
			}
			dst = append(append(dst, ':'), members[name]...)
		}
		return append(dst, '}'), nil
	case '[':
		dst = append(dst, '[')
		for first := true; dec.PeekKind() != ']'; first = false {
			if !first {
				dst = append(dst, ',')
			}
			if dst, err = appendCanonical(dst, dec); err != nil {
				return nil, err
			}
		}
		if _, err := dec.ReadToken(); err != nil {
			return nil, err
		}
		return append(dst, ']'), nil
	case '"':
		return jsontext.AppendQuote(dst, token.String())
	default:
		return append(dst, token.String()...), nil
	}
}
