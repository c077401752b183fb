package client

import (
	"encoding/csv"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestL67ATextIsNoFormulaInASpreadsheet(t *testing.T) {
	t.Parallel()
	for text, plain := range map[string]string{
		"":                       "",
		"order 1":                "order 1",
		"4K render; 30 s":        "4K render; 30 s",
		"a=b":                    "a=b",
		"a-b+c@d":                "a-b+c@d",
		"it's":                   "it's",
		"=1+1":                   "'=1+1",
		"+1":                     "'+1",
		"-1":                     "'-1",
		"-":                      "'-",
		"@SUM(A1)":               "'@SUM(A1)",
		"＝1":                     "'＝1",
		"＋1":                     "'＋1",
		"－1":                     "'－1",
		"＠a":                     "'＠a",
		" =1":                    "' =1",
		"\u00a0\u3000=1":         "'\u00a0\u3000=1",
		"\ufeff=1":               "'\ufeff=1",
		"\u200b\u2060-1":         "'\u200b\u2060-1",
		"\v\f=1":                 "'\v\f=1",
		"\x01\x7f=1":             "'\x01\x7f=1",
		`"=1"`:                   `'"=1"`,
		"\tx":                    "'\tx",
		"\rx":                    "'\rx",
		"\nx":                    "'\nx",
		"'x":                     "''x",
		"'=x":                    "''=x",
		"x;=1":                   "x;'=1",
		"x; =1":                  "x;' =1",
		`x;"=1`:                  `x;'"=1`,
		"x\t=1":                  "x\t'=1",
		"x\n=1":                  "x\n'=1",
		"x\r\n=1":                "x\r'\n'=1",
		"x;'1":                   "x;''1",
		"\t\t=1":                 "'\t'\t'=1",
		"line one\nline two":     "line one\nline two",
		"é; ü":                   "é; ü",
		"=cmd|' /C calc'!A1;-2;": "'=cmd|' /C calc'!A1;'-2;",
	} {
		assert.Equal(t, plain, plainText(text), "%q", text)
		assert.Equal(t, text, hadBack(plain), "%q", text)
	}
	long := strings.Repeat("\n", 1<<20)
	assert.Equal(t, "'"+long+"x", plainText(long+"x"), "in time that grows with its length alone")
}

var added = regexp.MustCompile("(^|[;\t\r\n])'")

// hadBack is how a reader has a text back.
func hadBack(cell string) string { return added.ReplaceAllString(cell, "$1") }

// runs says whether a spreadsheet could take the cell for a formula.
func runs(cell string) bool {
	return strings.ContainsAny(firstOf(strings.TrimLeft(cell, " \t\r\n\v\f\u00a0\u3000\ufeff\u200b\"")), "=+-@＝＋－＠")
}

func firstOf(text string) string {
	_, size := utf8.DecodeRuneInString(text)
	return text[:size]
}

func FuzzCSVCell(f *testing.F) {
	for _, text := range []string{"=1", " \t=1;\r\n'-2", `a";=b`, `";"=1`, "\u200b＝1", "a,b", "x;\"\"=1", "''", "'\n'", `say "x"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			t.Skip("Postgres keeps no such text")
		}
		row := string(appendCell([]byte("7,"), text)) + ",9\r\n"
		records, err := csv.NewReader(strings.NewReader(row)).ReadAll()
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.Len(t, records[0], 3)
		require.False(t, runs(records[0][1]), "%q", records[0][1])
		// Go's reader turns a CRLF within a cell into LF: to see that nothing is lost, the quotes are taken off here.
		cell := strings.TrimSuffix(strings.TrimPrefix(row, "7,"), ",9\r\n")
		if strings.HasPrefix(cell, `"`) {
			cell = strings.ReplaceAll(cell[1:len(cell)-1], `""`, `"`)
		}
		require.Equal(t, text, hadBack(cell))
		// Where lists are separated by semicolons, a spreadsheet splits cells there, or at tabs, and quotes in the middle of a
		// cell mean nothing.
		for _, comma := range []rune{';', '\t'} {
			reader := csv.NewReader(strings.NewReader(row))
			reader.Comma, reader.LazyQuotes, reader.FieldsPerRecord = comma, true, -1
			records, err := reader.ReadAll()
			require.NoError(t, err)
			for _, record := range records {
				for _, cell := range record {
					require.False(t, runs(cell), "%q of %q, split at %q", cell, row, comma)
				}
			}
		}
	})
}
