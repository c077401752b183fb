package client

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// WriteCSV writes the statement as CSV (RFC 4180, UTF-8), row by row: the columns' names, a row of type opening, the
// entries, and a row of type closing, whose seq, time and balance are the period's. Where the limit ended the entries
// early, the last row is of type next instead, and its seq is the one to go on after.
//
// Errors: as for Entries, or what w returned. Either nothing was written then, or a file that has neither last row.
//
// seq, amount and balance are plain decimal integers. In the text cells, a ' stands before whatever a spreadsheet could
// take for a formula: see plainText.
func (s *Statement) WriteCSV(ctx context.Context, w io.Writer) error {
	return stream(w, func(out *bufio.Writer) error { return s.writeCSV(ctx, out) })
}

const csvHeader = "seq,time,type,amount,balance,job,order,refund,reason\r\n"

func (s *Statement) writeCSV(ctx context.Context, out *bufio.Writer) error {
	_, _ = out.WriteString(csvHeader)
	edge := func(kind string, seq int64, at string, balance int64, note string) error {
		row := strconv.AppendInt(out.AvailableBuffer(), seq, 10)
		row = append(row, ","+at+","+kind+",,"...)
		row = strconv.AppendInt(row, balance, 10)
		row = append(row, ",,,,"...)
		row = append(appendCell(row, note), "\r\n"...)
		_, err := out.Write(row)
		return err
	}
	var from, to string
	if !s.Period.From.IsZero() {
		from = s.Period.show(s.Period.From)
	}
	if !s.Period.To.IsZero() {
		to = s.Period.show(s.Period.To)
	}
	about := "account " + s.Account.Account + ", " + s.Account.Asset + ", " + s.Period.zone().String()
	if err := edge("opening", s.OpeningSeq, from, s.Opening, about); err != nil {
		return err
	}
	var last Entry
	next, err := s.Entries(ctx, func(e Entry) error {
		last = e
		row := strconv.AppendInt(out.AvailableBuffer(), e.Seq, 10)
		row = append(row, ","+s.Period.show(e.CreatedAt)+","+e.Type+","...)
		row = append(strconv.AppendInt(row, e.Amount, 10), ',')
		row = strconv.AppendInt(row, e.BalanceAfter, 10)
		for _, text := range []string{e.JobID, e.OrderID, e.RefundID, e.Reason} {
			row = appendCell(append(row, ','), text)
		}
		_, err := out.Write(append(row, "\r\n"...))
		return err
	})
	if err != nil {
		return err
	}
	if next > 0 {
		return edge("next", next, "", last.BalanceAfter, "")
	}
	return edge("closing", s.ClosingSeq, to, s.Closing, "")
}

// appendCell adds a text as one cell.
func appendCell(row []byte, text string) []byte {
	text = plainText(text)
	if !strings.ContainsAny(text, ",\";'\t\r\n") && strings.TrimSpace(text) == text {
		return append(row, text...)
	}
	row = append(row, '"')
	row = append(row, strings.ReplaceAll(text, `"`, `""`)...)
	return append(row, '"')
}

// plainText returns the text as a spreadsheet takes it for text and nothing else. Where a cell begins with = + - @ (also as
// full-width characters, which some take too), spaces, quotes and invisible characters before it left aside, or with a tab
// or a line break, a spreadsheet may run it as a formula; a ' before it prevents that. A spreadsheet that splits cells at
// semicolons or tabs begins cells in the middle of a text too, so the same is done after each ; tab, CR and LF. A ' that
// stands at such a place already gets another, so that the text can be had back: take one ' away from the beginning and
// after each ; tab, CR and LF, wherever there is one.
func plainText(text string) string {
	var b strings.Builder
	begins, kept := true, 0
	scanned, formula := 0, false
	for i, r := range text {
		if begins {
			if i >= scanned {
				scanned, formula = formulaAhead(text, i)
			}
			if formula || r == '\'' || i == 0 && strings.ContainsRune("\t\r\n", r) {
				b.WriteString(text[kept:i])
				b.WriteByte('\'')
				kept = i
			}
		}
		begins = strings.ContainsRune(";\t\r\n", r)
	}
	b.WriteString(text[kept:])
	return b.String()
}

// formulaAhead says whether a cell that began here could be a formula, and where the character stands that decides it.
func formulaAhead(text string, from int) (at int, formula bool) {
	for i, r := range text[from:] {
		switch {
		case strings.ContainsRune("=+-@\uff1d\uff0b\uff0d\uff20", r):
			return from + i, true
		case r == '"' || unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
		default:
			return from + i, false
		}
	}
	return len(text), false
}
