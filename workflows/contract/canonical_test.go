package contract_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		` { "b" : 1 , "a" : [ 1.0 , -0 , 1E+2 ] } `: `{"a":[1.0,-0,1E+2],"b":1}`,
		`{"z":{"y":1,"x":2},"":0}`:                  `{"":0,"z":{"x":2,"y":1}}`,
		`"\u0041\/\u00e9\ud83c\udfac\n\u0001<&>"`:   `"A/é🎬\n\u0001<&>"`,
		`{"\u0061":1,"B":2,"é":3}`:                  `{"B":2,"a":1,"é":3}`,
		`{}`:                                        `{}`,
		`[]`:                                        `[]`,
		`null`:                                      `null`,
		"\ttrue\r\n":                                `true`,
		`123456789012345678901234567890`:            `123456789012345678901234567890`,
	} {
		got, err := contract.Canonical([]byte(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, string(got))
	}
	for name, text := range map[string]string{
		"nothing": "", "white space": " ", "two values": "1 2", "trailing comma": "[1,]", "trailing text": "{}x",
		"repeated member": `{"a":1,"a":2}`, "the same member, escaped": `{"a":1,"\u0061":2}`,
		"repeated member inside": `[{"b":{"a":1,"a":1}}]`, "invalid UTF-8": "\"\xff\"", "half a pair": `"\ud800"`,
		"bare word": "nul", "number with a leading zero": "01", "open list": "[1", "open object": `{"a"`, "a stray close": "]",
	} {
		_, err := contract.Canonical([]byte(text))
		assert.Error(t, err, name)
	}
}

// anyJSON draws a JSON value, at most depth levels deep.
func anyJSON(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(v bool) any { return v }),
		rapid.Map(rapid.Int64(), func(v int64) any { return v }),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), func(v float64) any { return v }),
		rapid.Map(rapid.String(), func(v string) any { return v }),
	)
	if depth == 0 {
		return leaf
	}
	inner := anyJSON(depth - 1)
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(inner, 0, 4), func(v []any) any { return v }),
		rapid.Map(rapid.MapOfN(rapid.String(), inner, 0, 4), func(v map[string]any) any { return v }),
	)
}

// written writes the value with its members in any order and white space anywhere.
func written(t *rapid.T, value any) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space") }
	switch v := value.(type) {
	case []any:
		parts := []string{}
		for _, item := range v {
			parts = append(parts, space()+written(t, item)+space())
		}
		return "[" + strings.Join(parts, ",") + space() + "]"
	case map[string]any:
		parts := []string{}
		for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(v))).Draw(t, "order") {
			raw, err := json.Marshal(name)
			require.NoError(t, err)
			parts = append(parts, space()+string(raw)+space()+":"+space()+written(t, v[name]))
		}
		return "{" + strings.Join(parts, ",") + space() + "}"
	default:
		var raw bytes.Buffer
		encoder := json.NewEncoder(&raw)
		encoder.SetEscapeHTML(rapid.Bool().Draw(t, "escape"))
		require.NoError(t, encoder.Encode(v))
		return strings.TrimSuffix(raw.String(), "\n")
	}
}

func TestCanonicalIsOneFormForEqualValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := anyJSON(3).Draw(t, "value")
		first, err := contract.Canonical([]byte(written(t, value)))
		require.NoError(t, err)
		second, err := contract.Canonical([]byte(written(t, value)))
		require.NoError(t, err)
		require.Equal(t, string(first), string(second))
		again, err := contract.Canonical(first)
		require.NoError(t, err)
		require.Equal(t, string(first), string(again), "it is its own canonical form")
		plain, err := json.Marshal(value)
		require.NoError(t, err)
		require.JSONEq(t, string(plain), string(first), "the value is the same")
	})
}

func TestCanonicalTellsUnequalValuesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other := anyJSON(2).Draw(t, "one"), anyJSON(2).Draw(t, "other")
		oneRaw, err := json.Marshal(one)
		require.NoError(t, err)
		otherRaw, err := json.Marshal(other)
		require.NoError(t, err)
		oneForm, err := contract.Canonical(oneRaw)
		require.NoError(t, err)
		otherForm, err := contract.Canonical(otherRaw)
		require.NoError(t, err)
		require.Equal(t, bytes.Equal(oneRaw, otherRaw), bytes.Equal(oneForm, otherForm))
	})
}

func TestTheDeepestInputIsReadInAFractionOfAWorkflowTask(t *testing.T) {
	for name, nest := range map[string][2]string{"lists": {"[", "]"}, "objects": {`{"":`, "}"}} {
		depth := min(9990, (contract.MaxInputBytes-1000)/(len(nest[0])+1))
		input := strings.Repeat(nest[0], depth) + "1" + strings.Repeat(nest[1], depth)
		text := with(t, leastJob, `"timeout"`, fmt.Sprintf(`"input":%s,"timeout"`, input))
		began := time.Now()
		fingerprint(t, text)
		assert.Less(t, time.Since(began), time.Second, name)
	}
}
