package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes the statement as one JSON object, entry by entry:
//
//	{"account":{…},"period":{"from":…,"to":…,"timeZone":…},"openingSeq":…,"opening":…,"entries":[…],
//	 "closingSeq":…,"closing":…,"next":…}
//
// account is the Account as the Statement has it, and entries are Entry values. next is null where the period's end was
// reached, else the seq to go on after.
//
// Errors: as for Entries, or what w returned. Either nothing was written then, or an object that is left open after a whole
// entry: it is no JSON, and lacks closing and next.
func (s *Statement) WriteJSON(ctx context.Context, w io.Writer) error {
	return stream(w, func(out *bufio.Writer) error { return s.writeJSON(ctx, out) })
}

// stream hands w what is written, in blocks. Where writing fails before the first of them is full, w gets nothing, so that
// its owner can still say so in another way.
func stream(w io.Writer, write func(*bufio.Writer) error) error {
	const block = 32 << 10
	began := false
	out := bufio.NewWriterSize(writerFunc(func(p []byte) (int, error) {
		began = true
		return w.Write(p)
	}), block)
	err := write(out)
	if err != nil && !began {
		return err
	}
	if flushErr := out.Flush(); err == nil {
		err = flushErr
	}
	return err
}

type writerFunc func(p []byte) (int, error)

// Write calls the function.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (s *Statement) writeJSON(ctx context.Context, out *bufio.Writer) error {
	account, err := json.Marshal(s.Account)
	if err != nil {
		return err
	}
	period, err := json.Marshal(s.Period)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "{\"account\":%s,\n\"period\":%s,\n\"openingSeq\":%d,\"opening\":%d,\n\"entries\":[",
		account, period, s.OpeningSeq, s.Opening); err != nil {
		return err
	}
	before := "\n"
	next, err := s.Entries(ctx, func(e Entry) error {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, _ = out.WriteString(before)
		before = ",\n"
		_, err = out.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	goOn := "null"
	if next > 0 {
		goOn = fmt.Sprint(next)
	}
	_, err = fmt.Fprintf(out, "],\n\"closingSeq\":%d,\"closing\":%d,\"next\":%s}\n", s.ClosingSeq, s.Closing, goOn)
	return err
}
