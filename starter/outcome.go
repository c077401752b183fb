package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Exit statuses.
const (
	statusDone    = 0
	statusRefused = 1
	statusUsage   = 2
)

// Codes of exit status 1 that say no request was refused, but what was asked about is not as it should be.
const (
	codeInvariantBroken contract.Code = "InvariantBroken"
	codeNotSucceeded    contract.Code = "NotSucceeded"
)

// usageError is a mistake in the command line or the environment.
type usageError struct{ error }

// Unwrap returns what is behind the mistake.
func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errShown ends a verb with status 1 after it has printed why itself.
var errShown = errors.New("shown")

func unreachable(tried string, err error) error {
	return contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, tried+": "+err.Error(), err)
}

// report prints how the call ended, where it ended badly, and returns the exit status.
func (a *app) report(used *cobra.Command, err error) int {
	if err == nil {
		return statusDone
	}
	if _, usage := errors.AsType[usageError](err); usage || !a.began {
		_, _ = fmt.Fprintf(a.stderr, "%v; see: %s --help\n", err, strings.Replace(used.CommandPath(), "starter", program, 1))
		return statusUsage
	}
	if errors.Is(err, errShown) {
		return statusRefused
	}
	refusal := contract.AsError(err)
	if a.output == outputJSON {
		_ = a.printJSON(refusal)
	} else {
		_, _ = fmt.Fprintf(a.stderr, "%s: %s\n", refusal.Code, cell(refusal.Message))
	}
	return statusRefused
}

// show prints a result: the value as JSON, or the lines that the table writes, cells separated by tabs.
func (a *app) show(value any, table func(w io.Writer)) error {
	if a.output == outputJSON {
		return a.printJSON(value)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	table(w)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

func (a *app) printJSON(value any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

// line writes one row of a table.
func line(w io.Writer, cells ...any) {
	for i, value := range cells {
		if i > 0 {
			_, _ = io.WriteString(w, "\t")
		}
		_, _ = io.WriteString(w, cell(fmt.Sprint(value)))
	}
	_, _ = io.WriteString(w, "\n")
}

// youCan writes the commands that a person can paste now.
func youCan(w io.Writer, commands []string) {
	label := "You can"
	for _, command := range commands {
		line(w, label, command)
		label = ""
	}
}

// wrapped writes a row of a text that may be long, on as many lines as it needs.
func wrapped(w io.Writer, label, text string) {
	const width = 100
	var row string
	for _, word := range strings.Fields(text) {
		if row != "" && len(row)+1+len(word) > width {
			line(w, label, row)
			label, row = "", ""
		}
		if row != "" {
			row += " "
		}
		row += word
	}
	line(w, label, row)
}

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// shellWord writes a text as one word of a shell.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// counted writes a number of things.
func counted[N ~int | ~int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// cell keeps a text, which may come from anybody, to its place in a table: one line, nothing that moves the cursor.
func cell(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case unicode.IsControl(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// clock is how instants are shown.
func clock(at time.Time) string { return at.UTC().Format(time.RFC3339) }
