package activities

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// MatchedSettlement is how a settlement file stands to ours. Ours counts its lines that are about our refunds and orders, and
// the movements of ours that no file has.
type MatchedSettlement struct {
	Ours   int64                     `json:"ours"`
	Report contract.SettlementReport `json:"report"`
}

// settlementProgress is how far the matching of a file has come.
type settlementProgress struct {
	// Step is which of the steps is under way, File and Line the last of the corrected file or of this one's lines, and After and
	// AfterKind our last movement.
	Step      int    `json:"step"`
	File      int64  `json:"file,omitempty"`
	Line      int32  `json:"line,omitempty"`
	After     string `json:"after,omitempty"`
	AfterKind string `json:"afterKind,omitempty"`
	// What was counted so far.
	Ours         int64 `json:"ours,omitempty"`
	Matched      int64 `json:"matched,omitempty"`
	Superseded   int64 `json:"superseded,omitempty"`
	OtherTenants int64 `json:"otherTenants,omitempty"`
	Unassigned   int64 `json:"unassigned,omitempty"`
}

// settlement is the matching of one file.
type settlement struct {
	*comparison
	file db.ReclaimSettlementFile
	// corrected are the earlier files that this one corrects or overlaps.
	corrected []db.ListCorrectedFilesRow
	at        settlementProgress
}

// MatchSettlement holds the lines of a file that was read against our refunds and orders, against what the channel's list last
// said of them, and against the files before it. What a line proves of a refund takes effect by the evidence function.
func (r *Reconciler) MatchSettlement(ctx context.Context, q SettlementRequest) (MatchedSettlement, error) {
	c, err := r.compare(ctx, ListingRequest{ReconciliationKey: q.ReconciliationKey, Channel: q.File.Channel})
	if err != nil {
		return MatchedSettlement{}, err
	}
	c.source = SourceSettlement
	s := &settlement{comparison: c}
	if s.file, err = r.settlementFile(ctx, q); err != nil {
		return MatchedSettlement{}, err
	}
	resume(ctx, &s.at)
	if err := r.patiently(ctx, "find the settlement files before this", s.at, func(queries *db.Queries) (err error) {
		s.corrected, err = queries.ListCorrectedFiles(ctx, db.ListCorrectedFilesParams{
			TenantID: q.Tenant, FileNo: s.file.FileNo, Channel: q.File.Channel,
		})
		return err
	}); err != nil {
		return MatchedSettlement{}, err
	}
	// What is gone is settled first, since a line counts only while no correction left it out; and evidence before anything is
	// said of sums, since a refund that it moves is expected in them.
	steps := []func(context.Context) error{s.findGone, s.pages(s.applyLine), s.pages(s.judgeLine), s.carryOver}
	for s.at.Step < len(steps) {
		if err := steps[s.at.Step](ctx); err != nil {
			return MatchedSettlement{}, err
		}
		s.at = settlementProgress{
			Step: s.at.Step + 1, Ours: s.at.Ours, Matched: s.at.Matched, Superseded: s.at.Superseded,
			OtherTenants: s.at.OtherTenants, Unassigned: s.at.Unassigned,
		}
		activity.RecordHeartbeat(ctx, s.at)
	}
	return s.report(ctx)
}

// findGone tells which transactions of earlier files this one lacks although it covers their days.
func (s *settlement) findGone(ctx context.Context) error {
	for _, earlier := range s.corrected {
		if earlier.FileNo < s.at.File {
			continue
		}
		if earlier.FileNo > s.at.File {
			s.at.File, s.at.Line = earlier.FileNo, 0
		}
		for {
			var rows []db.ListGoneLinesRow
			if err := s.patiently(ctx, "find what a corrected settlement file lacks", s.at, func(queries *db.Queries) (err error) {
				rows, err = queries.ListGoneLines(ctx, db.ListGoneLinesParams{
					TenantID: s.Tenant, Channel: s.Channel, FileNo: s.file.FileNo, EarlierNo: earlier.FileNo, AfterLine: s.at.Line,
					PageSize: lines,
				})
				return err
			}); err != nil {
				return err
			}
			for _, row := range rows {
				if err := s.gone(ctx, earlier, row); err != nil {
					return err
				}
				s.at.Line = row.Line
				activity.RecordHeartbeat(ctx, s.at)
			}
			if len(rows) < lines {
				break
			}
		}
	}
	return nil
}

func (s *settlement) gone(ctx context.Context, earlier db.ListCorrectedFilesRow, row db.ListGoneLinesRow) error {
	if row.Whose == "theirs" || row.Whose == "nobody" {
		return nil
	}
	found := finding{
		kind: contract.FindingSettlementGone, particular: s.correction(row.TransactionID),
		detail: fmt.Sprintf("%s no longer has transaction %s, which line %d of an earlier file (%.12s) has as %s %s over %d %s, net %d %s",
			s.named(), row.TransactionID, row.Line, earlier.FileHash, row.Kind, row.Reference, row.Amount, row.Currency, row.Net,
			row.Settled),
	}
	found.subjectKind, found.subject = s.subject(row.RefundID, row.OrderID)
	found.issue = issueOf(found.kind, found.subject, found.particular)
	_, err := s.record(ctx, s.ReconciliationKey, found)
	return err
}

// correction tells what this file corrects from what another does.
func (s *settlement) correction(transaction string) string {
	return contract.Clip(transaction, 160) + "@" + s.file.FileHash[:12]
}

func (s *settlement) named() string { return fmt.Sprintf("%s (%.12s)", s.file.Name, s.file.FileHash) }

func (s *settlement) subject(refundID, orderID string) (kind, id string) {
	switch {
	case refundID != "":
		return "refund", refundID
	case orderID != "":
		return "order", orderID
	default:
		return "channel", s.Channel
	}
}

// pages does something about every line of the file, in their order.
func (s *settlement) pages(do func(context.Context, *settledLine) error) func(context.Context) error {
	return func(ctx context.Context) error {
		page := db.JudgeSettlementLinesParams{TenantID: s.Tenant, Channel: s.Channel, FileNo: s.file.FileNo, PageSize: lines}
		for _, earlier := range s.corrected {
			page.Since, page.Until = append(page.Since, earlier.Since), append(page.Until, earlier.Until)
		}
		for {
			page.AfterLine = s.at.Line
			var rows []db.JudgeSettlementLinesRow
			if err := s.patiently(ctx, "hold the settlement's lines against ours", s.at, func(queries *db.Queries) (err error) {
				rows, err = queries.JudgeSettlementLines(ctx, page)
				return err
			}); err != nil {
				return err
			}
			for i := range rows {
				if err := do(ctx, &settledLine{settlement: s, JudgeSettlementLinesRow: rows[i]}); err != nil {
					return err
				}
				s.at.Line = rows[i].Line
				activity.RecordHeartbeat(ctx, s.at)
			}
			if len(rows) < lines {
				return nil
			}
		}
	}
}

// settledLine is one line of the file with what it is held against.
type settledLine struct {
	*settlement
	db.JudgeSettlementLinesRow
}

// moved is what the line says that left, less what came back.
func (l *settledLine) moved() int64 {
	if l.Kind == "refund_failure" {
		return -l.Amount
	}
	return l.Amount
}

func (l *settledLine) evidence() channel.Evidence {
	e := channel.Evidence{
		Outcome: channel.OutcomeSucceeded, Number: l.Number, Reference: l.Reference, PaymentAlias: l.Alias, Amount: l.Amount,
		Currency: l.Currency, Code: l.Code, Detail: fmt.Sprintf("line %d of the settlement file %s, transaction %s",
			l.Line, l.named(), l.TransactionID),
	}
	if l.Kind == "refund_failure" {
		e.Outcome = channel.OutcomeFailed
	}
	if l.MadeAt != nil {
		e.ObservedAt = *l.MadeAt
	}
	if l.Payment != "" {
		// By whichever of its names: that it is the order's was held against ours.
		e.Payment = l.OurPayment
	}
	return e
}

func (l *settledLine) said() string {
	return fmt.Sprintf("line %d of %s settles %s %s over %d %s at %s, transaction %s", l.Line, l.named(), l.Kind, l.Reference, l.Amount,
		l.Currency, moment(l.MadeAt), l.TransactionID)
}

// held is what we have, and what the channel's own list last said.
func (l *settledLine) held() string {
	if l.State == "" {
		return ""
	}
	text := fmt.Sprintf("; here the refund is %s over %d %s", l.State, l.OurAmount, l.OurCurrency)
	for _, fact := range []struct {
		name string
		at   *time.Time
	}{{"sent", l.FirstSentAt}, {"confirmed", l.SucceededAt}, {"returned", l.ReturnedAt}} {
		if fact.at != nil {
			text += ", " + fact.name + " at " + moment(fact.at)
		}
	}
	if l.ListedAt != nil {
		text += fmt.Sprintf("; the channel lists it as %s over %d, made at %s", l.ListedOutcome, l.ListedAmount, moment(l.ListedAt))
	}
	return text
}

func moment(at *time.Time) string {
	if at == nil {
		return "an unknown time"
	}
	return at.UTC().Format(time.RFC3339)
}

// finding is what a line is about, under its transaction. Its issue is opened unless that is taken away.
func (l *settledLine) finding(kind string) finding {
	f := finding{kind: kind, particular: l.TransactionID, detail: l.said() + l.held()}
	f.subjectKind, f.subject = l.subject(l.RefundID, l.OrderID)
	f.issue = issueOf(kind, f.subject, l.TransactionID)
	return f
}

// applyLine has what a line proves of a refund take effect. A refund that the file has as gone out and come back is told to have
// come back.
func (s *settlement) applyLine(ctx context.Context, l *settledLine) error {
	var kind string
	switch l.Verdict {
	case "status":
		kind = contract.FindingSettlementStatus
	case "late_reversal":
		kind = contract.FindingSettlementReversal
	default:
		return nil
	}
	found := l.finding(kind)
	found.issue, found.currency = nil, l.Currency
	found.settle = func(ctx context.Context, queries *db.Queries) (int64, error) {
		expected, err := queries.ExpectedMovement(ctx, db.ExpectedMovementParams{TenantID: s.Tenant, RefundID: l.RefundID, Kind: l.Kind})
		if err != nil {
			return 0, retry(ctx, schema.Classify("look what the refund is expected to have moved", err))
		}
		return l.moved() - expected, nil
	}
	return s.takeIn(ctx, found, l.evidence())
}

// judgeLine counts a line and records what is otherwise about it, and by how much that makes the file's sums differ from ours.
func (s *settlement) judgeLine(ctx context.Context, l *settledLine) error {
	if l.Whose == "ours" && l.Verdict != "repeated" && l.Verdict != "superseded" {
		s.at.Ours++
	}
	if l.Change != "" && l.Verdict != "theirs" && l.Verdict != "nobody" {
		if err := s.changed(ctx, l); err != nil {
			return err
		}
	}
	var found finding
	switch l.Verdict {
	case "theirs":
		s.at.OtherTenants++
		return nil
	case "superseded":
		s.at.Superseded++
		return nil
	case "agrees":
		s.at.Matched++
		return nil
	case "nobody":
		s.at.Unassigned++
		return s.nobodys(ctx, l)
	case "ordinary", "category", "status", "late_reversal":
		// Counted by their kinds, or told of when their evidence was applied.
		return nil
	case "unreadable":
		found = l.finding(contract.FindingSettlementUnreadable)
		found.detail = fmt.Sprintf("%s, %s; it cannot be relied on and counts for nothing else", l.named(), l.Problem)
		found.difference, found.currency = l.Gross-l.Fee-l.Net, l.Settled
	case "repeated":
		found = l.finding(contract.FindingSettlementDuplicate)
		found.particular = contract.Clip(l.TransactionID, 180) + ":again"
		found.issue = issueOf(found.kind, found.subject, found.particular)
		found.detail += "; the same transaction stands in the file before it, and counts once"
	case "payment_amount":
		found = l.finding(contract.FindingSettlementPaymentAmount)
		found.detail += fmt.Sprintf("; the order says that payment %s is over %d %s", l.Payment, l.Paid, l.PaidCurrency)
	case "payment_currency":
		found = l.finding(contract.FindingSettlementPaymentCurrency)
		found.detail += fmt.Sprintf("; the order says that payment %s is over %d %s", l.Payment, l.Paid, l.PaidCurrency)
	case "missing_here":
		found = s.missingHere(l)
	case "duplicate":
		found = l.finding(contract.FindingSettlementDuplicate)
		found.difference, found.currency = l.moved(), l.Currency
	case "payment":
		found = l.finding(contract.FindingSettlementPayment)
		found.difference, found.currency = l.moved()-l.Expected, l.Currency
		found.detail += fmt.Sprintf("; it is said to be of payment %s, and is of %s", l.Payment, l.OurPayment)
	case "amount":
		found = l.finding(contract.FindingSettlementAmount)
		found.difference, found.currency = l.moved()-l.Expected, l.Currency
	case "currency":
		found = l.finding(contract.FindingSettlementCurrency)
		// What is missing in our currency is a part of the same fact.
		if l.Expected != 0 {
			ours := found
			ours.particular = contract.Clip(found.particular, 180) + ":" + l.OurCurrency
			ours.difference, ours.currency = -l.Expected, l.OurCurrency
			if _, err := s.record(ctx, s.ReconciliationKey, ours); err != nil {
				return err
			}
		}
		found.difference, found.currency = l.moved(), l.Currency
	case "came_back":
		// It went out and came back after that was known, or its return was not taken in.
		found = l.finding(contract.FindingSettlementStatus)
		found.issue, found.effect = nil, contract.FindingNoted
		found.difference, found.currency = l.moved(), l.Currency
	default:
		return fmt.Errorf("the statement judges line %d of %s as %q, which this release does not know", l.Line, l.named(), l.Verdict)
	}
	_, err := s.record(ctx, s.ReconciliationKey, found)
	return err
}

// changed tells what a corrected file says otherwise than the newest before it.
func (s *settlement) changed(ctx context.Context, l *settledLine) error {
	found := l.finding(contract.FindingSettlementAdded)
	found.particular = s.correction(l.TransactionID)
	if l.Change == "added" {
		found.issue, found.effect = nil, contract.FindingNoted
		found.detail += "; an earlier file covers its day and lacks it"
	} else {
		found.kind = contract.FindingSettlementChanged
		found.issue = issueOf(found.kind, found.subject, found.particular)
		found.detail += fmt.Sprintf(", net %d %s; an earlier file had it as %s", l.Net, l.Settled, l.Was)
	}
	_, err := s.record(ctx, s.ReconciliationKey, found)
	return err
}

// nobodys is about a refund of no tenant's payment: it is told under the tenant that has what belongs to none. Payments without
// an order are told of by the part payments, which asks the channel for them.
func (s *settlement) nobodys(ctx context.Context, l *settledLine) error {
	if l.Kind != "refund" {
		return nil
	}
	return retry(ctx, schema.Classify("open an issue about an unknown refund",
		s.store.OpenIssue(ctx, unknownRefund(contract.UnassignedTenant, s.Channel, l.evidence()))))
}

// missingHere is about a refund that somebody made at the channel itself: the channel's own list opens the same issue.
func (s *settlement) missingHere(l *settledLine) finding {
	found := l.finding(contract.FindingSettlementMissingHere)
	found.difference, found.currency = l.moved(), l.Currency
	opened := unknownRefund(s.Tenant, s.Channel, l.evidence())
	found.issue = &issue{kind: opened.Kind, id: opened.IssueID}
	found.detail += "; nobody asked for it here, so the order still counts the money as paid"
	if l.Kind == "refund_failure" {
		found.issue, found.effect = nil, contract.FindingNoted
	}
	return found
}

// carryOver notes the movements of our refunds that no file has yet.
func (s *settlement) carryOver(ctx context.Context) error {
	for {
		var rows []db.CarryOverRefundsRow
		if err := s.patiently(ctx, "find refunds that no settlement has", s.at, func(queries *db.Queries) (err error) {
			rows, err = queries.CarryOverRefunds(ctx, db.CarryOverRefundsParams{
				TenantID: s.Tenant, ReconciliationID: s.ReconciliationID, Channel: s.Channel, FileNo: s.file.FileNo,
				AfterRefund: s.at.After, AfterKind: s.at.AfterKind, PageSize: lines,
			})
			return err
		}); err != nil {
			return err
		}
		for _, row := range rows {
			s.found(contract.FindingSettlementOutstanding, contract.FindingNoted)
			s.at.After, s.at.AfterKind = row.RefundID, row.Kind
		}
		s.at.Ours += int64(len(rows))
		activity.RecordHeartbeat(ctx, s.at)
		if len(rows) < lines {
			return nil
		}
	}
}

// shownTotals bounds how many sums a pass' result tells.
const shownTotals = 200

// report sums the file up, and tells of the kinds of lines that the adapter does not know.
func (s *settlement) report(ctx context.Context) (MatchedSettlement, error) {
	matched := MatchedSettlement{Ours: s.at.Ours, Report: contract.SettlementReport{
		File: contract.SettlementKey{Channel: s.Channel, Hash: s.file.FileHash}, Name: s.file.Name, Bytes: s.file.Bytes,
		StoredAt: s.file.StoredAt.UTC(), Matched: s.at.Matched, Superseded: s.at.Superseded, OtherTenants: s.at.OtherTenants,
		Unassigned: s.at.Unassigned, Totals: []contract.SettlementTotal{}, Refunds: []contract.SettlementRefunds{},
	}}
	var kinds []db.SumSettlementRow
	var refunds []db.SumSettledRefundsRow
	if err := s.patiently(ctx, "sum the settlement file up", s.at, func(queries *db.Queries) error {
		read, err := queries.FindSettlementReading(ctx, db.FindSettlementReadingParams{TenantID: s.Tenant, FileNo: s.file.FileNo})
		if err != nil {
			return err
		}
		matched.Report.Lines = read.Lines
		if kinds, err = queries.SumSettlement(ctx, db.SumSettlementParams{TenantID: s.Tenant, FileNo: s.file.FileNo}); err != nil {
			return err
		}
		refunds, err = queries.SumSettledRefunds(ctx, db.SumSettledRefundsParams{
			TenantID: s.Tenant, ReconciliationID: s.ReconciliationID, Channel: s.Channel, FileNo: s.file.FileNo,
		})
		return err
	}); err != nil {
		return matched, err
	}
	for _, row := range kinds {
		if len(matched.Report.Totals) < shownTotals {
			matched.Report.Totals = append(matched.Report.Totals, contract.SettlementTotal{
				Kind: row.Kind, Currency: row.Currency, Lines: row.Lines, Gross: row.Gross, Fee: row.Fee, Net: row.Net,
				Difference: row.Difference,
			})
		} else {
			matched.Report.MoreTotals++
		}
		if row.Ordinary || row.Kind == "payment" || row.Kind == "refund" || row.Kind == "refund_failure" {
			continue
		}
		found := finding{
			kind: contract.FindingSettlementCategory, subjectKind: "channel", subject: s.Channel, particular: row.Kind + ":" + row.Currency,
			detail: fmt.Sprintf("%d of the lines of %s, the first of them line %d, are of the kind %q, which this release does not know: "+
				"gross %s, fees %s, net %s %s", row.Lines, s.named(), row.FirstLine, row.Kind, row.Gross, row.Fee, row.Net, row.Currency),
			issue: issueOf(contract.FindingSettlementCategory, s.Channel, row.Kind),
		}
		if _, err := s.record(ctx, s.ReconciliationKey, found); err != nil {
			return matched, err
		}
	}
	for _, row := range refunds {
		matched.Report.Refunds = append(matched.Report.Refunds, contract.SettlementRefunds(row))
	}
	return matched, nil
}
