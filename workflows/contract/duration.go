package contract

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time span that is written in JSON as a string such as "30s", "10m" or "1h30m" (the syntax of
// time.ParseDuration).
type Duration time.Duration

// Std returns the span as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String returns the span as it is written in JSON.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the span as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a span from a string; a bare number is refused, since its unit would be a guess. Null is absence.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("must be a string such as \"30s\"")
	}
	span, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("must be a duration such as \"30s\", \"10m\" or \"1h30m\", not %q", clip(text, 40))
	}
	*d = Duration(span)
	return nil
}
