package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/starter/metrics"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (a *app) auditCommand() *cobra.Command {
	var all, since, chain bool
	var heads []string
	var file string
	command := &cobra.Command{
		Use: "audit [--all-tenants]", Short: "Prove every invariant of the ledger and list open jobs and refunds without a run",
		Long: "Prove every invariant of the ledger in one snapshot and list open jobs and refunds without a run. Ends with " +
			"status 1 if and only if an invariant is broken. With --since-checkpoint, prove only what is new since the last sound " +
			"audit of all tenants. With --chain, also verify that no entry was changed or removed since it was sealed.",
		Args: nothing,
	}
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if all && cmd.Flags().Changed("tenant") {
			a.began = true
			return usagef("--tenant and --all-tenants contradict each other: give one of them")
		}
		if file != "" && !all {
			a.began = true
			return usagef("--metrics-file tells about the whole ledger: give --all-tenants too")
		}
		if since && !all {
			a.began = true
			return usagef("a checkpoint covers the whole ledger: give --all-tenants with --since-checkpoint")
		}
		if len(heads) > 0 && !chain {
			a.began = true
			return usagef("--expect-head is about the chain of sealed entries: give --chain too")
		}
		return a.patientVerb(func(ctx context.Context, c *client.Client, _ []string) error {
			tenant := ""
			if !all {
				var err error
				if tenant, err = a.needTenant(); err != nil {
					return err
				}
			}
			began := time.Now()
			report, err := audit(ctx, c, tenant, since)
			if err != nil {
				return err
			}
			if chain {
				if err := c.VerifyChain(ctx, &report, heads); err != nil {
					return err
				}
			}
			if file != "" {
				if err := writeAuditMetrics(file, report, time.Since(began)); err != nil {
					return err
				}
			}
			return a.showAudit(report)
		})(cmd, args)
	}
	command.Flags().BoolVar(&all, "all-tenants", false, "audit every tenant")
	command.Flags().BoolVar(&since, "since-checkpoint", false, "prove only what is new since the last sound audit of all tenants")
	command.Flags().BoolVar(&chain, "chain", false, "also verify the chains of sealed entries")
	command.Flags().StringArrayVar(&heads, "expect-head", nil,
		"with --chain, a head that an earlier verification showed and that must still be in a chain; may be repeated")
	command.Flags().StringVar(&file, "metrics-file", "",
		"also write what was found to this .prom file, for the textfile collector of Prometheus' node_exporter")
	return command
}

func audit(ctx context.Context, c *client.Client, tenant string, sinceCheckpoint bool) (client.AuditReport, error) {
	if sinceCheckpoint {
		return c.AuditSinceCheckpoint(ctx, 0)
	}
	return c.Audit(ctx, tenant)
}

// writeAuditMetrics replaces the file as a whole, so that no half of it is ever read.
func writeAuditMetrics(file string, report client.AuditReport, took time.Duration) error {
	registry := prometheus.NewRegistry()
	if err := metrics.NewAudit(registry).Show(report, took); err != nil {
		return err
	}
	if err := prometheus.WriteToTextfile(file, registry); err != nil {
		return fmt.Errorf("write --metrics-file: %w", err)
	}
	return nil
}

func (a *app) showAudit(report client.AuditReport) error {
	var value any = report
	if !report.Sound {
		value = struct {
			Code    contract.Code  `json:"code"`
			Message string         `json:"message"`
			Retry   contract.Retry `json:"retry"`
			client.AuditReport
		}{codeInvariantBroken, brokenInWords(report), contract.RetryNever, report}
	}
	if err := a.show(value, func(w io.Writer) { auditTable(w, report) }); err != nil {
		return err
	}
	if !report.Sound {
		return errShown
	}
	return nil
}

func brokenInWords(report client.AuditReport) string {
	text, separator := "broken: ", ""
	for _, check := range report.Checks {
		if check.Broken > 0 {
			text += fmt.Sprintf("%s%s (%s: %s)", separator, check.Name, counted(check.Broken, "time", "times"), check.Rule)
			separator = "; "
		}
	}
	return text
}

func auditTable(w io.Writer, report client.AuditReport) {
	tenant := report.Tenant
	if tenant == "" {
		tenant = "all"
	}
	line(w, "Tenant", tenant)
	line(w, "Snapshot", clock(report.TakenAt))
	line(w, "Checked", fmt.Sprintf("%s, %s, %s, %s, %s, %s against %s",
		counted(report.Accounts, "account", "accounts"), counted(report.Entries, "entry", "entries"),
		counted(report.Jobs, "job", "jobs"), counted(report.Orders, "order", "orders"),
		counted(report.Refunds, "refund", "refunds"), counted(report.Operations, "operation", "operations"),
		counted(len(report.Checks), "rule", "rules")))
	switch checkpoint := report.Checkpoint; {
	case checkpoint.Since != nil:
		line(w, "Proven", "what is new since the checkpoint of "+clock(*checkpoint.Since))
	case checkpoint.Doubt != "":
		line(w, "Proven", "the whole ledger: "+checkpoint.Doubt)
	}
	if report.Checkpoint.Problem != "" {
		line(w, "Checkpoint", "not written: "+report.Checkpoint.Problem)
	}
	verdict := "every invariant holds"
	if !report.Sound {
		verdict = brokenInWords(report)
	}
	line(w, "Ledger", verdict)
	if !report.Sound {
		line(w)
		line(w, "BROKEN", "TENANT", "ACCOUNT", "ENTRY", "JOB", "ORDER", "REFUND", "EXPECTED", "FOUND")
		for _, b := range report.Breaks {
			line(w, b.Check, b.Tenant, orDash(b.Account), orDash(entryNumber(b.Seq)), orDash(b.JobID), orDash(b.OrderID),
				orDash(b.RefundID), b.Expected, b.Found)
		}
	}
	for _, check := range report.Checks {
		if check.Broken > client.AuditLimit {
			line(w, fmt.Sprintf("… %d more of %s", check.Broken-client.AuditLimit, check.Name))
		}
	}
	if report.Chain != nil {
		line(w)
		line(w, "CHAIN OF TENANT", "SEALED", "UNSEALED", "HEAD")
		for _, head := range report.Chain.Heads {
			line(w, head.Tenant, fmt.Sprint(head.Sealed), fmt.Sprint(head.Unsealed), head.Head)
		}
	}
	line(w)
	runsTable(w, report.Runs)
}

func runsTable(w io.Writer, runs client.AuditRuns) {
	if !runs.Checked {
		line(w, "Open jobs and refunds without a run: not checked: "+runs.Problem)
		return
	}
	if runs.Count == 0 {
		line(w, "Open jobs without a run: none")
	} else {
		line(w, fmt.Sprintf("Open jobs without a run: %d. Submitting such a job again takes it up.", runs.Count))
		line(w, "TENANT", "JOB", "STATE", "SINCE")
		for _, job := range runs.OpenJobs {
			line(w, job.Tenant, job.JobID, job.State, clock(job.Since))
		}
		if runs.Count > int64(len(runs.OpenJobs)) {
			line(w, fmt.Sprintf("… %d more", runs.Count-int64(len(runs.OpenJobs))))
		}
	}
	if runs.RefundCount == 0 {
		line(w, "Open refunds without a run: none")
		return
	}
	line(w, fmt.Sprintf("Open refunds without a run: %d. Asking for such a refund again under its key takes it up.",
		runs.RefundCount))
	line(w, "TENANT", "REFUND", "STATE", "SINCE")
	for _, refund := range runs.OpenRefunds {
		line(w, refund.Tenant, refund.RefundID, refund.State, clock(refund.Since))
	}
	if runs.RefundCount > int64(len(runs.OpenRefunds)) {
		line(w, fmt.Sprintf("… %d more", runs.RefundCount-int64(len(runs.OpenRefunds))))
	}
}

func entryNumber(seq int64) string {
	if seq == 0 {
		return ""
	}
	return fmt.Sprint(seq)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
