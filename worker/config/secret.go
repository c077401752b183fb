package config

import (
	"fmt"
	"io"
)

// Secret is a text that is handed to what needs it and is shown to nobody: printed, formatted or marshalled in any way
// it is "(secret)".
type Secret struct {
	// A pointer, because package fmt prints what lies in unexported fields without asking its type, but follows no
	// pointers there.
	text *string
}

// NewSecret returns a secret of this text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text itself.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// String hides the text, as the methods below do.
func (s Secret) String() string { return "(secret)" }

// Format hides the text from every verb and flag of package fmt.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalJSON hides the text from JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// MarshalText hides the text from every other encoding.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
