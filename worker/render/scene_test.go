package render

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCostByMegapixel(t *testing.T) {
	for _, tc := range []struct {
		width, height int
		rate, want    int64
	}{
		{1000, 1000, 1, 1},
		{1000, 1000, 40, 40},
		{1920, 1080, 10, 21},
		{1000, 1001, 1, 2},
		{101, 9901, 1, 2},
		{1, 1, 1, 1},
		{1, 1, 0, 1},
		{8192, 7812, 3, 192},
		{8192, 7813, 3, 193},
		{1000, 1000, math.MaxInt64, math.MaxInt64},
	} {
		got, err := CostByMegapixel(tc.width, tc.height, tc.rate)
		require.NoError(t, err, tc)
		assert.Equal(t, tc.want, got, tc)
	}
}

func TestCostByMegapixelRefuses(t *testing.T) {
	for _, tc := range []struct {
		width, height int
		rate          int64
		want          string
	}{
		{0, 1, 1, "at least 1"},
		{1, 0, 1, "at least 1"},
		{-1, -1, 1, "at least 1"},
		{1, 1, -1, "must not be negative"},
		{1000, 1001, math.MaxInt64, "does not fit"},
		{math.MaxInt64, 3, 1, "does not fit"},
		{math.MaxInt64, math.MaxInt64, 1, "does not fit"},
		{math.MaxInt64, 2, math.MaxInt64, "does not fit"},
	} {
		_, err := CostByMegapixel(tc.width, tc.height, tc.rate)
		require.ErrorContains(t, err, tc.want, tc)
	}
}

// The price is the exact quotient rounded up, as computed with numbers that cannot overflow.
func TestCostByMegapixelProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := rapid.OneOf(rapid.IntRange(1, 10_000), rapid.IntRange(1, math.MaxInt))
		width, height := side.Draw(t, "width"), side.Draw(t, "height")
		rate := rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "rate")

		million := big.NewInt(1_000_000)
		exact := new(big.Int).Mul(big.NewInt(int64(width)), big.NewInt(int64(height)))
		exact.Mul(exact, big.NewInt(rate))
		exact.Add(exact, big.NewInt(999_999)).Div(exact, million)
		if exact.Sign() == 0 {
			exact.SetInt64(1)
		}

		got, err := CostByMegapixel(width, height, rate)
		pixelsFit := new(big.Int).Mul(big.NewInt(int64(width)), big.NewInt(int64(height))).IsUint64()
		if !exact.IsInt64() || !pixelsFit {
			if err == nil {
				t.Fatalf("got %d: want an error", got)
			}
			return
		}
		if err != nil || got != exact.Int64() {
			t.Fatalf("got %d, %v: want %v", got, err, exact)
		}
	})
}

func TestEscapeIDProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[AaZz09._:-]{1,100}`)
		a, b := id.Draw(t, "a"), id.Draw(t, "b")
		name := escapeID(a)
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-=") != "" || name == "" || len(name) > 200 {
			t.Fatalf("%q becomes %q: not a safe name", a, name)
		}
		if a != b && name == escapeID(b) {
			t.Fatalf("%q and %q both become %q", a, b, name)
		}
	})
}
