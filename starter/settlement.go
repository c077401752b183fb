package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// settlementFlags name a settlement file and the channel that made it.
type settlementFlags struct{ file, channel string }

func (f *settlementFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.file, "settlement", "", "take in a channel's settlement FILE, - for standard input; needs --channel")
	command.Flags().StringVar(&f.channel, "channel", "", "the channel, as orders name it, that made the settlement file")
}

// storeSettlement stores the file that was given, and answers nil where none was.
func (a *app) storeSettlement(ctx context.Context, c *client.Client, given settlementFlags) (*client.StoredSettlement, error) {
	if given == (settlementFlags{}) {
		return nil, nil
	}
	if given.file == "" || given.channel == "" {
		return nil, usagef("give --settlement FILE and --channel NAME together: the file, and the channel that made it")
	}
	tenant, actor, err := a.needTenantAndActor()
	if err != nil {
		return nil, err
	}
	content, name, end, err := a.openSettlement(given.file)
	if err != nil {
		return nil, err
	}
	defer end()
	stored, err := c.StoreSettlement(ctx, client.SettlementFile{
		Tenant: tenant, Channel: given.channel, Name: name, Actor: actor, Content: content,
	})
	if err != nil {
		return nil, err
	}
	return &stored, nil
}

// openSettlement opens the file. It is read twice, so that what comes by standard input is kept in a file until end.
func (a *app) openSettlement(path string) (content io.ReadSeeker, name string, end func(), err error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, "", nil, contract.BadField("settlement", "cannot be read: "+err.Error())
		}
		if about, err := file.Stat(); err != nil || !about.Mode().IsRegular() {
			_ = file.Close() // nothing was written
			return nil, "", nil, contract.BadField("settlement", "cannot be read: "+path+" is no regular file; give - for standard input")
		}
		return file, filepath.Base(path), func() { _ = file.Close() }, nil
	}
	file, err := os.CreateTemp("", "reclaim-settlement-")
	if err != nil {
		return nil, "", nil, fmt.Errorf("keep standard input: %w", err)
	}
	end = func() { _, _ = file.Close(), os.Remove(file.Name()) }
	_, err = io.Copy(file, io.LimitReader(a.stdin, contract.MaxSettlementBytes+1))
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, "", nil, errors.Join(contract.BadField("settlement", "cannot be read: "+err.Error()), file.Close(), os.Remove(file.Name()))
	}
	return file, "standard input", end, nil
}

func storedSettlementTable(w io.Writer, s client.StoredSettlement) {
	fact := "stored now"
	if s.Verdict == "already" {
		fact = fmt.Sprintf("already stored at %s by %s", clock(s.StoredAt), s.Actor)
	}
	line(w, "Settlement", fmt.Sprintf("%s of %s, %d bytes, %s", s.Name, s.Key.Channel, s.Bytes, fact))
	line(w, "SHA-256", s.Key.Hash)
}

// settlementTable prints how the file stands: what became of its lines, its sums, and its refunds against ours.
func settlementTable(w io.Writer, r contract.SettlementReport) {
	text := fmt.Sprintf("%d, %d matched", r.Lines, r.Matched)
	for _, part := range []struct {
		lines int64
		what  string
	}{{r.Superseded, "superseded by later files"}, {r.OtherTenants, "of other tenants"}, {r.Unassigned, "of no tenant"}} {
		if part.lines > 0 {
			text += fmt.Sprintf(", %d %s", part.lines, part.what)
		}
	}
	line(w, "Lines", text)
	for _, t := range r.Totals {
		text := fmt.Sprintf("%s, gross %s, fees %s, net %s %s", counted(t.Lines, "line", "lines"), t.Gross, t.Fee, t.Net, t.Currency)
		if t.Difference != "0" {
			text += ", which do not add up by " + t.Difference
		}
		line(w, "Total", t.Kind+": "+text)
	}
	if r.MoreTotals > 0 {
		line(w, "Total", fmt.Sprintf("… %d more kinds", r.MoreTotals))
	}
	for _, f := range r.Refunds {
		line(w, "Refunds", fmt.Sprintf("%s there, %s here, difference %s %s, of which findings explain %s", f.Theirs, f.Ours, f.Difference,
			f.Currency, f.Explained))
	}
}
