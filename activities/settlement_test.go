package activities_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/activities/channel/stripe"
	"github.com/reclaimhq/reclaim/schema/db"
	starter "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// listener hears which refunds' runs are told something.
type listener struct {
	activities.Runs
	refunds []string
}

func (t *listener) TellRefund(_ context.Context, key contract.RefundKey, _ contract.ChannelNotice) error {
	t.refunds = append(t.refunds, key.RefundID)
	return nil
}

// books is a world whose bank settles in Stripe's files.
type books struct {
	*world
	bank       *bank
	refunds    *activities.Refunds
	reconciler *activities.Reconciler
	runs       listener
	orderID    string
	passes     int
}

func newBooks(t testing.TB) *books {
	t.Helper()
	w, b, refunds, orderID := newRefundWorld(t, 4)
	adapter, err := stripe.New(stripe.Options{APIKey: "sk_test_books"})
	require.NoError(t, err)
	b.Channel = adapter
	s := &books{world: w, bank: b, refunds: refunds, orderID: orderID}
	s.use(b)
	return s
}

func (s *books) use(far channel.Channel) {
	s.reconciler = activities.NewReconciler(s.store, channels(far), s.refunds, &s.runs, nil, func(string, contract.FindingEffect) {})
}

// settled is what a pass made of a file.
type settled struct {
	stored starter.StoredSettlement
	ours   int64
	report contract.SettlementReport
	// found are the findings, such as "opened settlement_duplicate rf_1 +10 eur", in order.
	found []string
}

// file writes a settlement file; lines are without their transaction ids, which count up from txn_1.
func file(lines ...string) string {
	text := "id,type,source,amount,fee,net,currency,created,refund_metadata[reclaim_refund],payment_intent_id\n"
	for i, line := range lines {
		if !strings.HasPrefix(line, "txn_") {
			line = fmt.Sprintf("txn_%d,%s", i+1, line)
		}
		text += line + "\n"
	}
	return text
}

// noon is within the day of the test's files, which is today: our refunds are sent today.
func noon(hour int) string {
	return time.Now().UTC().Truncate(24 * time.Hour).Add(time.Duration(hour) * time.Hour).Format(time.DateTime)
}

// out and back are the lines of a refund of 0.10 eur.
func (s *books) out(key contract.RefundKey) string {
	return fmt.Sprintf("refund,%s,-0.10,0.00,-0.10,eur,%s,%s,%s", reference(key.RefundID), noon(0), key.RefundID, payment(s.orderID))
}

func (s *books) back(key contract.RefundKey) string {
	return fmt.Sprintf("refund_failure,%s,0.10,0.00,0.10,eur,%s,%s,%s", reference(key.RefundID), noon(0), key.RefundID, payment(s.orderID))
}

func (s *books) refundIn(state contract.RefundState) contract.RefundKey {
	s.t.Helper()
	return s.inState(s.refunds, s.orderID, state)
}

// settle stores a file and makes a pass over it.
func (s *books) settle(content string) settled {
	s.t.Helper()
	made, err := s.trySettle(tenant, content)
	require.NoError(s.t, err)
	return made
}

func (s *books) trySettle(tenant, content string) (made settled, err error) {
	s.t.Helper()
	made.stored, err = starter.New(nil, s.store, "").StoreSettlement(s.t.Context(), starter.SettlementFile{
		Tenant: tenant, Channel: bankName, Name: "july.csv", Actor: "ann", Content: strings.NewReader(content),
	})
	require.NoError(s.t, err)
	s.passes++
	key := activities.ReconciliationKey{Tenant: tenant, ReconciliationID: fmt.Sprint("pass-", s.passes)}
	_, err = s.store.OpenReconciliation(s.t.Context(), db.OpenReconciliationParams{
		TenantID: tenant, ReconciliationID: key.ReconciliationID, WindowUs: time.Hour.Microseconds(),
	})
	require.NoError(s.t, err)
	request := activities.SettlementRequest{ReconciliationKey: key, File: made.stored.Key}
	var matched activities.MatchedSettlement
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(patience)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: patience}) // the machine may be busy
	env.SetStartWorkflowOptions(temporalclient.StartWorkflowOptions{ID: contract.ReconcileWorkflowID(tenant)})
	env.RegisterActivityWithOptions(s.reconciler, activity.RegisterOptions{})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Hour})
		if err := workflow.ExecuteActivity(ctx, s.reconciler.ReadSettlement, request).Get(ctx, nil); err != nil {
			return err
		}
		return workflow.ExecuteActivity(ctx, s.reconciler.MatchSettlement, request).Get(ctx, &matched)
	}, workflow.RegisterOptions{Name: contract.ReconcileWorkflow})
	env.ExecuteWorkflow(contract.ReconcileWorkflow)
	made.ours, made.report = matched.Ours, matched.Report
	made.found = s.lines(`SELECT effect || ' ' || kind || ' ' || subject_id || CASE WHEN difference <> 0
			THEN ' ' || to_char(difference, 'SGFM999999999999') || ' ' || currency ELSE '' END
		FROM reclaim.reconciliation_findings WHERE tenant_id = $1 AND reconciliation_id = $2
		ORDER BY kind, subject_id, particular`, tenant, key.ReconciliationID)
	for _, sums := range made.report.Refunds {
		assert.Equal(s.t, sums.Difference, sums.Explained, "the findings make up the difference in %s: %q\n%s", sums.Currency, made.found, content)
	}
	return made, env.GetWorkflowError()
}

// opened are what a pass found that was not known before.
func (m settled) opened() (opened []string) {
	for _, line := range m.found {
		if !strings.HasPrefix(line, "known ") && !strings.HasPrefix(line, "noted ") {
			opened = append(opened, line)
		}
	}
	return opened
}

// kept counts what is kept of settlement files.
func (s *books) kept() string {
	return s.lines(`SELECT format('%s files, %s chunks, %s lines, %s readings', (SELECT count(*) FROM reclaim.settlement_files),
		(SELECT count(*) FROM reclaim.settlement_chunks), (SELECT count(*) FROM reclaim.settlement_lines),
		(SELECT count(*) FROM reclaim.settlement_readings))`)[0]
}

func TestASettlementThatAgreesIsMatched(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	one, two := s.refundIn(contract.RefundSucceeded), s.refundIn(contract.RefundReversed)
	content := file("charge,ch_1,10000.00,290.30,9709.70,eur,"+noon(0)+",,"+payment(s.orderID), s.out(one), s.out(two), s.back(two),
		"payout,po_1,-9000.00,0.00,-9000.00,eur,"+noon(9)+",,", "stripe_fee,,-2.00,0.00,-2.00,eur,"+noon(9)+",,",
		"stripe_fee,,-3.00,0.00,-3.00,eur,"+noon(10)+",,")
	made := s.settle(content)
	assert.Empty(t, made.found)
	assert.Equal(t, "applied", made.stored.Verdict)
	assert.Equal(t, []int64{7, 4, 4, 0, 0}, []int64{made.report.Lines, made.report.Matched, made.ours, made.report.Unassigned,
		made.report.OtherTenants})
	assert.Equal(t, []contract.SettlementTotal{
		{Kind: "refund", Currency: "eur", Lines: 2, Gross: "-20", Fee: "0", Net: "-20", Difference: "0"},
		{Kind: "stripe_fee", Currency: "eur", Lines: 2, Gross: "-500", Fee: "0", Net: "-500", Difference: "0"},
		{Kind: "payment", Currency: "eur", Lines: 1, Gross: "1000000", Fee: "29030", Net: "970970", Difference: "0"},
		{Kind: "payout", Currency: "eur", Lines: 1, Gross: "-900000", Fee: "0", Net: "-900000", Difference: "0"},
		{Kind: "refund_failure", Currency: "eur", Lines: 1, Gross: "10", Fee: "0", Net: "10", Difference: "0"},
	}, made.report.Totals)
	assert.Equal(t, []contract.SettlementRefunds{{Currency: "eur", Theirs: "10", Ours: "10", Difference: "0", Explained: "0"}},
		made.report.Refunds)
	assert.Equal(t, strings.Split(strings.TrimSpace(content), "\n")[1:],
		s.lines("SELECT convert_from(raw, 'UTF8') FROM reclaim.settlement_lines ORDER BY line"), "every line stands as in the file")

	before := s.kept()
	again := s.settle(content)
	assert.Equal(t, "already", again.stored.Verdict)
	assert.Empty(t, again.found)
	assert.Equal(t, made.report.Totals, again.report.Totals)
	assert.Equal(t, before, s.kept())
	assert.Empty(t, s.runs.refunds)
	s.assertRefundsSound()
}

func TestASettlementMovesWhatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	unknown, pending, reversed, both := s.refundIn(contract.RefundUnknown), s.refundIn(contract.RefundPending),
		s.refundIn(contract.RefundSucceeded), s.refundIn(contract.RefundPending)
	canceled := s.refundIn(contract.RefundCanceled)
	content := file(s.out(unknown), s.out(pending), s.out(reversed), s.back(reversed), s.out(both), s.back(both), s.out(canceled))
	made := s.settle(content)
	assert.ElementsMatch(t, []string{
		"repaired settlement_status_differs " + unknown.RefundID, "repaired settlement_status_differs " + pending.RefundID,
		"opened settlement_late_reversal " + reversed.RefundID, "repaired settlement_status_differs " + both.RefundID,
		"opened settlement_status_differs " + canceled.RefundID + " +10 eur",
	}, made.found)
	for key, state := range map[contract.RefundKey]contract.RefundState{
		unknown: contract.RefundSucceeded, pending: contract.RefundSucceeded, reversed: contract.RefundReversed,
		both: contract.RefundFailed, canceled: contract.RefundCanceled,
	} {
		assert.Equal(t, string(state), s.refund(key).State)
	}
	assert.Equal(t, []string{"accept >accepted accepted", "send accepted>unknown sending", "settlement unknown>succeeded succeeded"},
		s.events(unknown))
	assert.Equal(t, []string{"refund_never_sent"}, s.issues(tenant, canceled.RefundID))
	assert.Equal(t, []string{"refund_reversed"}, s.issues(tenant, reversed.RefundID))
	assert.ElementsMatch(t, []string{unknown.RefundID, pending.RefundID, reversed.RefundID, both.RefundID}, s.runs.refunds)
	assert.Equal(t, []contract.SettlementRefunds{{Currency: "eur", Theirs: "30", Ours: "20", Difference: "10", Explained: "10"}},
		made.report.Refunds)
	again := s.settle(content)
	assert.Equal(t, []string{"known settlement_status_differs " + canceled.RefundID + " +10 eur"}, again.found)
	s.assertRefundsSound()
}

// A refund that the channel acknowledged and that came back may have its way out settled before its way back.
func TestASettlementHasTheWayOutOfAFailedRefundFirst(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	key := s.refundIn(contract.RefundPending)
	s.apply(s.refunds, key, activities.SourceNotice, s.says(key, channel.OutcomeFailed))
	assert.Equal(t, []string{"noted settlement_outstanding " + key.RefundID + " +10 eur"}, s.settle(file(s.out(key))).found)
	assert.Empty(t, s.issues(tenant, key.RefundID))
	made := s.settle(file("txn_9," + s.back(key)))
	assert.Empty(t, made.found)
	assert.Equal(t, "failed", s.refund(key).State)
	// Money that left after the failure was known contradicts it.
	late := s.refundIn(contract.RefundPending)
	s.apply(s.refunds, late, activities.SourceNotice, s.says(late, channel.OutcomeFailed))
	tomorrow := strings.ReplaceAll(s.out(late), noon(0), noon(48))
	assert.Equal(t, []string{"opened settlement_status_differs " + late.RefundID + " +10 eur"}, s.settle(file("txn_8,"+tomorrow)).found)
	assert.Equal(t, []string{"success_after_failure"}, s.issues(tenant, late.RefundID))
}

func TestASettlementTellsEveryDifference(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	succeeded := func() contract.RefundKey { return s.refundIn(contract.RefundSucceeded) }
	well, amount, money, twice, other, sums, carried := succeeded(), succeeded(), succeeded(), succeeded(), succeeded(), succeeded(),
		succeeded()
	short, foreign := s.order(account, 1000, 10), s.order(account, 1000, 10)
	replace := func(line, old, by string) string { return strings.ReplaceAll(line, old, by) }
	content := file(
		s.out(well),
		replace(s.out(amount), "0.10", "0.13"),
		replace(s.out(money), "eur", "usd"),
		s.out(twice), s.out(twice),
		replace(s.out(other), reference(other.RefundID), "re_second"),
		replace(s.out(sums), "0.00", "0.02"),
		"refund,re_dashboard,-0.70,0.00,-0.70,eur,"+noon(1)+",,"+payment(s.orderID),
		"refund,re_nobodys,-0.50,0.00,-0.50,eur,"+noon(1)+",,pi_nobodys",
		"charge,ch_short,9.00,0.00,9.00,eur,"+noon(1)+",,"+payment(short),
		"charge,ch_foreign,10.00,0.00,10.00,usd,"+noon(1)+",,"+payment(foreign),
		"charge,ch_nobodys,10.00,0.00,10.00,eur,"+noon(1)+",,pi_nobodys",
		"moon_tax,,-1.00,0.00,-1.00,eur,"+noon(1)+",,",
		"refund,re_9,ten,0,-0.10,eur,,,",
		"txn_1,"+s.out(well),
	)
	made := s.settle(content)
	want := []string{
		"opened settlement_amount_differs " + amount.RefundID + " +3 eur",
		"opened settlement_currency_differs " + money.RefundID + " +10 usd",
		"known settlement_currency_differs " + money.RefundID + " -10 eur",
		"opened settlement_duplicate " + twice.RefundID + " +10 eur",
		"opened settlement_duplicate " + other.RefundID + " +10 eur",
		"noted settlement_outstanding " + other.RefundID + " -10 eur",
		"opened settlement_unreadable " + sums.RefundID + " -2 eur",
		"noted settlement_outstanding " + sums.RefundID + " -10 eur",
		"opened settlement_missing_here " + s.orderID + " +70 eur",
		"opened settlement_payment_amount_differs " + short,
		"opened settlement_payment_currency_differs " + foreign,
		"opened settlement_unknown_category " + bankName,
		"opened settlement_unreadable " + bankName,
		"opened settlement_duplicate " + well.RefundID,
		"noted settlement_outstanding " + carried.RefundID + " -10 eur",
	}
	// The issue of the currency may be opened by either of its findings.
	swap := func(found []string) []string {
		for i, line := range found {
			if strings.Contains(line, "currency_differs "+money.RefundID) {
				found[i] = strings.TrimPrefix(strings.TrimPrefix(line, "opened "), "known ")
			}
		}
		slices.Sort(found)
		return found
	}
	assert.Equal(t, swap(want), swap(made.found))
	assert.EqualValues(t, 2, made.report.Unassigned)
	assert.Contains(t, made.report.Totals,
		contract.SettlementTotal{Kind: "moon_tax", Currency: "eur", Lines: 1, Gross: "-100", Fee: "0", Net: "-100", Difference: "0"})
	assert.Equal(t, []string{"unknown_refund"}, s.lines("SELECT kind FROM reclaim.issues WHERE tenant_id = 'unassigned'"))
	assert.Equal(t, []string{"unknown_refund"}, s.lines(`SELECT issue.kind FROM reclaim.issues AS issue
		JOIN reclaim.reconciliation_findings AS finding USING (tenant_id, issue_id) WHERE finding.kind = 'settlement_missing_here'`))
	opened := s.lines("SELECT issue_id FROM reclaim.issues ORDER BY 1")
	again := s.settle(content)
	assert.Empty(t, again.opened(), "a second pass finds nothing new")
	assert.Len(t, again.found, len(made.found))
	assert.Equal(t, opened, s.lines("SELECT issue_id FROM reclaim.issues ORDER BY 1"))
	for _, line := range s.lines("SELECT detail FROM reclaim.reconciliation_findings WHERE kind <> 'settlement_unknown_category'") {
		assert.Regexp(t, `^line \d+ of july.csv|^july.csv \([0-9a-f]{12}\), line \d+: |^the refund of`, line)
	}
	s.assertRefundsSound()
}

func TestARefundIsCarriedOverUntilAFileHasIt(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	early, late := s.refundIn(contract.RefundSucceeded), s.refundIn(contract.RefundSucceeded)
	assert.Equal(t, []string{"noted settlement_outstanding " + late.RefundID + " -10 eur"}, s.settle(file(s.out(early))).found)
	// The next file is of another month, so that it is not missing in its sum.
	other := "txn_5,payout,po_2,-1.00,0.00,-1.00,eur,2031-02-01 10:00:00,,"
	assert.Equal(t, []string{"noted settlement_outstanding " + late.RefundID}, s.settle(file(other)).found)
	assert.Empty(t, s.settle(file("txn_6,"+strings.ReplaceAll(s.out(late), noon(0), "2031-03-01 10:00:00"))).found)
	assert.Empty(t, s.settle(file(other)).found)
}

func TestACorrectedSettlementTellsWhatItCorrects(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	stays, gone, changed, added := s.refundIn(contract.RefundSucceeded), s.refundIn(contract.RefundSucceeded),
		s.refundIn(contract.RefundSucceeded), s.refundIn(contract.RefundSucceeded)
	wrong := strings.ReplaceAll(s.out(changed), "0.10", "0.12")
	first := file(s.out(stays), s.out(gone), wrong, "payout,po_1,-1.00,0.00,-1.00,eur,"+noon(1)+",,")
	made := s.settle(first)
	assert.Equal(t, []string{"opened settlement_amount_differs " + changed.RefundID + " +2 eur",
		"noted settlement_outstanding " + added.RefundID + " -10 eur"}, made.found)

	corrected := file("txn_1,"+s.out(stays), "txn_3,"+s.out(changed), "txn_4,payout,po_1,-1.10,0.00,-1.10,eur,"+noon(1)+",,",
		"txn_7,"+s.out(added))
	made = s.settle(corrected)
	assert.ElementsMatch(t, []string{
		"opened settlement_line_changed " + changed.RefundID, "opened settlement_line_changed " + bankName,
		"opened settlement_line_gone " + gone.RefundID, "noted settlement_line_added " + added.RefundID,
		"noted settlement_outstanding " + gone.RefundID + " -10 eur",
	}, made.found)
	assert.Equal(t, []contract.SettlementRefunds{{Currency: "eur", Theirs: "30", Ours: "40", Difference: "-10", Explained: "-10"}},
		made.report.Refunds)
	assert.Equal(t, []string{"refund re-" + changed.RefundID + " of 12 eur, net -12 eur"}, s.lines(`SELECT
		substring(detail from 'had it as (.*)$') FROM reclaim.reconciliation_findings
		WHERE kind = 'settlement_line_changed' AND subject_id = $1`, changed.RefundID))
	again := s.settle(corrected)
	assert.Empty(t, again.opened())

	// The first file's word no longer counts, and says nothing twice.
	old := s.settle(first)
	assert.Empty(t, old.opened())
	assert.EqualValues(t, []int64{4, 0}, []int64{old.report.Superseded, old.report.Matched})

	// Without ids of their own, movements are known by their times.
	bare := func(content string) string {
		var text strings.Builder
		for line := range strings.Lines(content) {
			_, rest, _ := strings.Cut(line, ",")
			text.WriteString(rest)
		}
		return text.String()
	}
	s = newBooks(t)
	key := s.refundIn(contract.RefundSucceeded)
	s.settle(bare(file(s.out(key), "payout,po_1,-1.00,0.00,-1.00,eur,"+noon(1)+",,")))
	made = s.settle(bare(file(strings.ReplaceAll(s.out(key), "0.10", "0.12"), "payout,po_1,-1.00,0.00,-1.00,eur,"+noon(1)+",,")))
	assert.ElementsMatch(t, []string{"opened settlement_line_changed " + key.RefundID,
		"opened settlement_amount_differs " + key.RefundID + " +2 eur"}, made.found)
}

func TestALongerSettlementOfTheSameDaysCorrectsNothing(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	one, two := s.refundIn(contract.RefundSucceeded), s.refundIn(contract.RefundSucceeded)
	first := file(strings.ReplaceAll(s.out(one), noon(0), "2031-03-01 10:00:00"))
	s.settle(first)
	made := s.settle(first + "txn_2," + strings.ReplaceAll(s.out(two), noon(0), "2031-03-02 10:00:00") + "\n")
	assert.Empty(t, made.found)
	assert.EqualValues(t, 2, made.report.Matched)
}

func TestAFileThatIsNoSettlementIsRefusedWhole(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	for name, test := range map[string]struct{ content, problem string }{
		"no heading":   {"1,2,3\n4,5,6\n", "the column"},
		"not CSV":      {"\x00\xff\xfe\x00", "the column"},
		"an open text": {file(s.out(s.refundIn(contract.RefundSucceeded))) + "txn_2,\"" + strings.Repeat("a,b\n", 1<<19), "a quote may have been left open"},
	} {
		_, err := s.trySettle(tenant, test.content)
		require.ErrorContains(t, err, test.problem, name)
		require.ErrorContains(t, err, "docs/settlement.md", name)
		require.ErrorContains(t, err, string(contract.CodeBadInput), name)
	}
	assert.Empty(t, s.lines("SELECT line::text FROM reclaim.settlement_lines"))
	assert.Empty(t, s.lines("SELECT kind FROM reclaim.reconciliation_findings"))
}

func TestASettlementShowsNothingOfOtherTenants(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	s.topUp("rival", "theirs", 1)
	rival := s.orderOf("rival", "theirs", 1000, 10)
	ours := s.refundIn(contract.RefundSucceeded)
	theirs := s.write(written{tenant: "rival", orders: []string{rival}, many: 1})[0]
	require.Equal(t, "rival", theirs.Tenant)
	content := file(s.out(ours),
		strings.ReplaceAll(s.out(theirs), "0.10", "0.99"),
		"refund,re_x,-7.77,0.00,-7.77,eur,"+noon(1)+",,"+payment(rival),
		"charge,ch_x,8.88,0.00,8.88,eur,"+noon(1)+",,"+payment(rival),
		"txn_4,charge,ch_x,8.88,0.00,8.88,eur,"+noon(1)+",,"+payment(rival))
	made := s.settle(content)
	assert.Empty(t, made.found)
	assert.Equal(t, []int64{5, 1, 4}, []int64{made.report.Lines, made.report.Matched, made.report.OtherTenants})
	assert.Equal(t, []contract.SettlementTotal{
		{Kind: "refund", Currency: "eur", Lines: 1, Gross: "-10", Fee: "0", Net: "-10", Difference: "0"},
	}, made.report.Totals)
	s.settle(file("txn_1,"+s.out(ours), "txn_9,payout,po_1,-1.00,0.00,-1.00,eur,"+noon(1)+",,"))
	assert.Empty(t, s.lines(`SELECT kind || detail FROM reclaim.reconciliation_findings
		WHERE detail ~ '99|777|888|re_x|ch_x' OR kind LIKE '%gone'`), "what a file lacks of theirs is theirs")
	assert.Empty(t, s.lines("SELECT kind FROM reclaim.issues"))
	assert.Equal(t, "unknown", s.refundRead(theirs).ReclaimRefund.State, "their refunds are not moved by our file")
}

// breaking is a channel whose file breaks off after some lines.
type breaking struct {
	channel.Channel
	// reads is how often a file is still read to its end, and after how many lines the next breaks off.
	reads, after int
}

func (b *breaking) Settlement(file io.Reader) iter.Seq2[channel.SettlementLine, error] {
	b.reads--
	return func(yield func(channel.SettlementLine, error) bool) {
		n := 0
		for line, err := range b.Channel.Settlement(file) {
			if n++; b.reads < 0 && n > b.after {
				yield(channel.SettlementLine{}, io.ErrUnexpectedEOF)
				return
			}
			if !yield(line, err) {
				return
			}
		}
	}
}

func TestAReadingThatBrokeOffIsGoneOnWith(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	key := s.refundIn(contract.RefundSucceeded)
	all := []string{s.out(key)}
	for i := range 2500 {
		all = append(all, fmt.Sprintf("payout,po_%d,-1.00,0.00,-1.00,eur,%s,,", i, noon(1)))
	}
	content := file(all...)
	s.use(&breaking{Channel: s.bank, reads: 1, after: 2200})
	_, err := s.trySettle(tenant, content)
	require.ErrorContains(t, err, "unexpected EOF")
	before := s.lines("SELECT line || ' ' || xmin FROM reclaim.settlement_lines ORDER BY line")
	require.Len(t, before, 2000, "whole pages were kept")
	s.use(s.bank)
	made := s.settle(content)
	assert.Empty(t, made.found)
	assert.Equal(t, []int64{2501, 1}, []int64{made.report.Lines, made.report.Matched})
	assert.Subset(t, s.lines("SELECT line || ' ' || xmin FROM reclaim.settlement_lines"), before, "they were not written again")
}

// Whatever stands in a file, and whatever stood in those before it: what the findings say that they make up is exactly by how
// much the file's refunds differ from ours, and a second pass opens nothing.
func TestTheFindingsExplainEveryDifferenceOfSums(t *testing.T) {
	t.Parallel()
	s := newBooks(t)
	keys := s.sentMany(s.orderID, 100, 0)
	txn, passes, differing := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		if passes++; passes > 10 {
			return // each takes a good part of a second
		}
		var lines []string
		var theirs int64
		for range rapid.IntRange(1, 6).Draw(t, "refunds") {
			key := keys[0]
			keys = keys[1:]
			outcomes := rapid.SampledFrom([][]channel.Outcome{
				nil, {channel.OutcomePending}, {channel.OutcomePending, channel.OutcomeSucceeded}, {channel.OutcomeFailed},
				{channel.OutcomePending, channel.OutcomeFailed}, {channel.OutcomePending, channel.OutcomeSucceeded, channel.OutcomeFailed},
			}).Draw(t, "outcomes")
			for _, outcome := range outcomes {
				s.apply(s.refunds, key, activities.SourceNotice, s.says(key, outcome))
			}
			for range rapid.IntRange(0, 3).Draw(t, "lines") {
				amount := rapid.SampledFrom([]int64{10, 10, 10, 13, 7}).Draw(t, "amount")
				kind, sign := "refund", int64(-1)
				if rapid.IntRange(0, 2).Draw(t, "comes back") == 0 {
					kind, sign = "refund_failure", 1
				}
				ref := rapid.SampledFrom([]string{reference(key.RefundID), reference(key.RefundID), reference(key.RefundID),
					"re-other-" + key.RefundID, ""}).Draw(t, "reference")
				number := rapid.SampledFrom([]string{key.RefundID, key.RefundID, ""}).Draw(t, "number")
				if ref == "" {
					number = key.RefundID
				}
				currency := rapid.SampledFrom([]string{"eur", "eur", "eur", "eur", "usd"}).Draw(t, "currency")
				net := sign * amount
				if rapid.IntRange(0, 9).Draw(t, "adds up") == 0 {
					net++ // it cannot be relied on
				} else if currency == "eur" {
					theirs -= sign * amount
				}
				day := rapid.SampledFrom([]int{0, 0, 0, 24, 24 * 400}).Draw(t, "hour")
				txn++
				lines = append(lines, fmt.Sprintf("txn_%d,%s,%s,%s,0.00,%s,%s,%s,%s,%s", txn, kind, ref, cents(sign*amount), cents(net),
					currency, noon(day), number, payment(s.orderID)))
			}
		}
		if len(lines) == 0 {
			return
		}
		made := s.settle(file(lines...)) // which holds the differences against the findings
		for _, sums := range made.report.Refunds {
			require.Equal(t, sums.Difference, sums.Explained, "%s: %q of %q", sums.Currency, made.found, lines)
			if sums.Currency == "eur" {
				require.Equal(t, fmt.Sprint(theirs), sums.Theirs, "%q", lines)
			}
			if sums.Difference != "0" {
				differing++
			}
		}
		again := s.settle(file(lines...))
		require.Empty(t, again.opened(), "%q, then %q", made.found, again.found)
		require.Equal(t, made.report.Lines, again.report.Lines)
	})
	require.Greater(t, differing, 2, "files that differ were among them")
	s.assertRefundsSound()
}

// cents writes an amount in whole units.
func cents(amount int64) string {
	sign := ""
	if amount < 0 {
		sign, amount = "-", -amount
	}
	return fmt.Sprintf("%s%d.%02d", sign, amount/100, amount%100)
}

// A month's file is held against ours in well under a minute.
func TestALargeSettlementIsMatchedInTime(t *testing.T) {
	const refunds, payments = 8_000, 12_000
	s := newBooks(t)
	// As they stand once the channel has confirmed them, past the evidence function.
	_, err := s.admin.Exec(t.Context(), `INSERT INTO reclaim.refunds (tenant_id, refund_id, order_id, amount, currency, credits, state,
			channel_ref, requested_by, reason, send_count, first_sent_at, succeeded_at, ended_by)
		SELECT $1, 'rf_many_' || n, $2, 10, 'eur', 0, 'succeeded', 're-rf_many_' || n, 'test', 'a test', 1, clock_timestamp(),
			clock_timestamp(), 'create'
		FROM generate_series(0, $3::integer - 1) AS n`, tenant, s.orderID, refunds)
	require.NoError(t, err)
	var content strings.Builder
	content.WriteString(file())
	for i := range refunds {
		fmt.Fprintf(&content, "txn_%d,%s\n", i, s.out(contract.RefundKey{Tenant: tenant, RefundID: fmt.Sprint("rf_many_", i)}))
	}
	for i := range payments {
		fmt.Fprintf(&content, "txn_p%d,charge,ch_%d,1.00,0.03,0.97,eur,%s,,pi_%d\n", i, i, noon(0), i)
	}
	began := time.Now()
	made := s.settle(content.String())
	took := time.Since(began)
	t.Logf("%d lines in %s", refunds+payments, took)
	assert.Empty(t, made.found)
	assert.Equal(t, []int64{refunds + payments, refunds, payments}, []int64{made.report.Lines, made.report.Matched, made.report.Unassigned})
	assert.Less(t, took, time.Minute)
}
