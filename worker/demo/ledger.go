package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reclaimhq/reclaim/starter/client"
)

// show plays a scene, shows the job's ledger entries, and checks them and the job's end.
func (s *stage) show(ctx context.Context, scene scene) error {
	ctx, cancel := context.WithTimeout(ctx, sceneLimit)
	defer cancel()
	s.began, s.told, s.result.State = time.Now(), map[client.Moment]bool{}, ""
	playErr := scene.play(ctx, s, scene.job)
	took := time.Since(s.began)
	var found []client.Entry
	err := s.client.Entries(ctx, tenant, scene.job.Account, 0, func(entry client.Entry) error {
		if entry.JobID == scene.job.JobID {
			found = append(found, entry)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(s.out, "     ledger")
	for _, entry := range found {
		s.sayAt(entry.CreatedAt, "%-13s %+5d  balance %4d  %s", entry.Type, entry.Amount, entry.BalanceAfter, entry.Reason)
	}
	if len(found) == 0 {
		fmt.Fprintln(s.out, "             no entry")
	}
	if playErr != nil {
		return playErr
	}
	if err := checkEntries(scene, found); err != nil {
		return err
	}
	if s.result.State != scene.state {
		return fmt.Errorf("expected the job to end as %s, found %s (%s)", scene.state, s.result.State, s.result.Reason)
	}
	fmt.Fprintf(s.out, "     job %s ended as %s after %.1f s; the customer paid %d credits\n",
		scene.job.JobID, s.result.State, took.Seconds(), s.result.Net)
	fmt.Fprintf(s.out, "     Notice: %s\n", scene.notice)
	return nil
}

// checkEntries compares types, amounts and order with what the scene must have moved.
func checkEntries(scene scene, found []client.Entry) error {
	var want, have []string
	for _, kind := range scene.entries {
		amount := -scene.job.Cost
		if kind == "refund" || kind == "payout_return" {
			amount = scene.job.Cost
		}
		want = append(want, fmt.Sprintf("%s %+d", kind, amount))
	}
	for _, entry := range found {
		have = append(have, fmt.Sprintf("%s %+d", entry.Type, entry.Amount))
	}
	if slices.Equal(want, have) {
		return nil
	}
	return fmt.Errorf("expected the entries %s, found %s", inWords(want), inWords(have))
}

func inWords(entries []string) string {
	if len(entries) == 0 {
		return "none"
	}
	return strings.Join(entries, ", ")
}

// statement shows an account's statement and checks its balance.
func (s *stage) statement(ctx context.Context, account string, want int64) error {
	fmt.Fprintf(s.out, "\nStatement of account %s\n", account)
	fmt.Fprintf(s.out, "  %3s  %-13s %6s %8s  %s\n", "seq", "type", "amount", "balance", "reason")
	stands, err := s.client.Statement(ctx, client.StatementQuery{Tenant: tenant, Account: account})
	if err != nil {
		return err
	}
	_, err = stands.Entries(ctx, func(entry client.Entry) error {
		reason := entry.Reason
		if entry.JobID != "" && !strings.Contains(reason, entry.JobID) {
			reason = entry.JobID + ": " + reason
		}
		_, err := fmt.Fprintf(s.out, "  %3d  %-13s %+6d %8d  %s\n", entry.Seq, entry.Type, entry.Amount, entry.BalanceAfter, reason)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "  balance %d\n", stands.Closing)
	if stands.Closing != want {
		return fmt.Errorf("expected the balance %d of account %s, found %d", want, account, stands.Closing)
	}
	return nil
}

// expectedBalance is what the account began with, less each delivered picture once.
func expectedBalance() int64 {
	balance := int64(credits)
	for _, scene := range scenes() {
		if len(scene.entries) > 0 {
			balance -= scene.job.Cost
		}
	}
	return balance
}

// expectedShopBalance is what the orders bought, less the credits of every refund that moved money and each delivered
// picture once.
func expectedShopBalance() int64 {
	var balance int64
	for _, scene := range refundScenes() {
		balance += orderCredits - scene.moved*orderCredits/orderPaid
	}
	for _, scene := range sourceScenes() {
		balance += orderCredits - scene.job.Cost
		if !slices.Contains(scene.entries, "payout_return") {
			balance -= scene.job.Cost
		}
	}
	return balance
}

// audit proves the whole ledger.
func (s *stage) audit(ctx context.Context) error {
	report, err := s.client.Audit(ctx, "")
	if err != nil {
		return err
	}
	for _, broken := range report.Breaks {
		fmt.Fprintf(s.out, "  broken: %s at account %s, job %s: expected %s, found %s\n",
			broken.Check, broken.Account, broken.JobID, broken.Expected, broken.Found)
	}
	if !report.Sound || !report.Runs.Checked || report.Runs.Count > 0 {
		return fmt.Errorf("the audit found %d breaks and %d open jobs without a run %s",
			len(report.Breaks), report.Runs.Count, report.Runs.Problem)
	}
	fmt.Fprintf(s.out, "\nAudit: sound. %d rules hold for %d entries and %d jobs; no open job is without a run.\n",
		len(report.Checks), report.Entries, report.Jobs)
	return nil
}
