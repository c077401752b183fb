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
		h.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return "v1:" + hex.EncodeToString(h.Sum(nil))
}

// Canonical returns the one form of a JSON value that every equal value has: object members sorted by name, no white
// space, strings escaped minimally, numbers kept as written (1 and 1.0 differ, and no digit is lost). Repeated
// members and invalid UTF-8 are errors.
func Canonical(raw []byte) ([]byte, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	value, err := readNode(dec)
	if err != nil {
		return nil, err
	}
	if dec.PeekKind() != 0 || dec.InputOffset() != int64(len(bytes.TrimRight(raw, " \t\r\n"))) {
		return nil, fmt.Errorf("there is more after the first JSON value")
	}
	return value.appendTo(make([]byte, 0, len(raw)))
}

// node is a JSON value. It is read whole before it is written, so that the time grows with the length alone, however
// deep the nesting is.
type node struct {
	kind jsontext.Kind
	// name is that of an object's member, text the content of a string, number or literal.
	name, text []byte
	parts      []node
}

func readNode(dec *jsontext.Decoder) (node, error) {
	token, err := dec.ReadToken()
	if err != nil {
		return node{}, err
	}
	n := node{kind: token.Kind()}
	switch n.kind {
	case '{':
		for dec.PeekKind() != '}' {
			if token, err = dec.ReadToken(); err != nil {
				return node{}, err
			}
			// The token is only valid until the next read.
			name := []byte(token.String())
			part, err := readNode(dec)
			if err != nil {
				return node{}, err
			}
			part.name = name
			n.parts = append(n.parts, part)
		}
		// The decoder refuses repeated names, so that sorting has one result.
		slices.SortFunc(n.parts, func(a, b node) int { return bytes.Compare(a.name, b.name) })
		_, err = dec.ReadToken()
	case '[':
		for dec.PeekKind() != ']' {
			part, err := readNode(dec)
			if err != nil {
				return node{}, err
			}
			n.parts = append(n.parts, part)
		}
		_, err = dec.ReadToken()
	default:
		n.text = []byte(token.String())
	}
	return n, err
}

func (n node) appendTo(dst []byte) (_ []byte, err error) {
	switch n.kind {
	case '{', '[':
		dst = append(dst, byte(n.kind))
		for i, part := range n.parts {
			if i > 0 {
				dst = append(dst, ',')
			}
			if n.kind == '{' {
				if dst, err = jsontext.AppendQuote(dst, part.name); err != nil {
					return nil, err
				}
				dst = append(dst, ':')
			}
			if dst, err = part.appendTo(dst); err != nil {
				return nil, err
			}
		}
		if n.kind == '{' {
			return append(dst, '}'), nil
		}
		return append(dst, ']'), nil
	case '"':
		return jsontext.AppendQuote(dst, n.text)
	default:
		return append(dst, n.text...), nil
	}
}
