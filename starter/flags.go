package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// outputFormat is the value of --output.
type outputFormat string

const (
	outputTable outputFormat = "table"
	outputJSON  outputFormat = "json"
	outputCSV   outputFormat = "csv" // of statements alone
)

// String returns the format's name.
func (f *outputFormat) String() string { return string(*f) }

// Set takes one of the formats.
func (f *outputFormat) Set(text string) error {
	if text != string(outputTable) && text != string(outputJSON) {
		return fmt.Errorf("must be table or json")
	}
	*f = outputFormat(text)
	return nil
}

// Type names the value in help texts.
func (f *outputFormat) Type() string { return "FORMAT" }

// choice is a flag that takes one of a few words.
type choice struct {
	value string
	of    []string
}

// String returns the word that was chosen.
func (c *choice) String() string { return c.value }

// Set takes one of the words.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.of, text) {
		return fmt.Errorf("must be one of: %s", strings.Join(c.of, ", "))
	}
	c.value = text
	return nil
}

// Type names the value in help texts.
func (c *choice) Type() string { return strings.Join(c.of, "|") }

// amount is a flag that takes a whole number of an asset's smallest unit, with a sign only where that has a meaning.
type amount struct {
	value  int64
	signed bool
}

// String returns the number.
func (a *amount) String() string { return strconv.FormatInt(a.value, 10) }

// Set takes digits, and a sign where one is allowed, and nothing else: whatever else could be read as a number could be
// read as another one too.
func (a *amount) Set(text string) error {
	digits := text
	if a.signed && digits != "" && (digits[0] == '+' || digits[0] == '-') {
		digits = digits[1:]
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		rule := "must be a whole number of the smallest unit, written with digits only: no fraction, exponent, space or separator"
		if !a.signed {
			rule += ", no sign"
		}
		return fmt.Errorf("%s", rule)
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("is beyond what an account can hold")
	}
	a.value = value
	return nil
}

// Type names the value in help texts.
func (a *amount) Type() string {
	if a.signed {
		return "±N"
	}
	return "N"
}

// mustHave makes flags mandatory.
func mustHave(command *cobra.Command, names ...string) {
	for _, name := range names {
		if err := command.MarkFlagRequired(name); err != nil {
			// It fails only for a flag that the command does not have.
			panic(err)
		}
	}
}

// exactly takes the one argument that a verb is about.
func exactly(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("%s is missing", name)
		case 1:
			return nil
		default:
			return fmt.Errorf("%q is too much: one %s is expected", args[1], name)
		}
	}
}

// nothing refuses every argument.
func nothing(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is too much: no argument is expected", args[0])
	}
	return nil
}
