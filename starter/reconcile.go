package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// codeFindings is the code of exit status 1 where a pass opened issues or could not be finished.
const codeFindings contract.Code = "NotReconciled"

// shownFindings is how many findings tables and JSON list; CSV lists all of them.
const shownFindings = 1000

func (a *app) reconcileCommand() *cobra.Command {
	command := a.reconcileRunCommand()
	command.AddCommand(a.reconcileShowCommand(), a.reconcileScheduleCommand())
	return command
}

// passFlags are what a pass is asked for.
type passFlags struct {
	parts        []string
	since, until string
	window       time.Duration
	grace        time.Duration
	wholeEvery   time.Duration
}

func (p *passFlags) add(command *cobra.Command, wholeEvery time.Duration) {
	flags := command.Flags()
	flags.StringSliceVar(&p.parts, "part", nil, "compare only this, and the others that are named: "+contract.ReconcilePartsInWords())
	flags.DurationVar(&p.window, "window", contract.ReconcileWindow.Std(), "how far back channels are asked for")
	flags.DurationVar(&p.grace, "grace", contract.ReconcileGrace.Std(), "how long a row is final before a run still open is ended")
	flags.DurationVar(&p.wholeEvery, "whole-every", wholeEvery,
		"prove only what is new in the ledger, and all of it where the last whole audit is older than this (0: all of the tenant's)")
}

func (p *passFlags) request(tenant string) (contract.ReconcileRequest, error) {
	request := contract.ReconcileRequest{
		Tenant: tenant, Window: contract.Duration(p.window), Grace: contract.Duration(p.grace),
		WholeEvery: contract.Duration(p.wholeEvery),
	}
	for _, part := range p.parts {
		request.Parts = append(request.Parts, contract.ReconcilePart(part))
	}
	var sinceErr, untilErr error
	request.Since, sinceErr = client.ParseEdge("since", p.since, time.UTC)
	request.Until, untilErr = client.ParseEdge("until", p.until, time.UTC)
	return request, cmp.Or(sinceErr, untilErr)
}

func (a *app) reconcileRunCommand() *cobra.Command {
	var flags passFlags
	var given settlementFlags
	command := &cobra.Command{
		Use:   "reconcile [--part PART] [--since WHEN] [--until WHEN] [--settlement FILE --channel NAME]",
		Short: "Hold jobs, refunds and orders against Temporal's runs and the channels' own lists",
		Long: "Hold jobs, refunds and orders against Temporal's runs and the channels' own lists. Open jobs and refunds without a run " +
			"are taken up again, runs of final rows are ended, what a channel knows better is taken in, and the rest is opened as " +
			"issues, one for each fact. Ends with status 1 if issues were opened or a part could not be finished.\n\n" +
			"With --settlement the channel's settlement file is stored, once for each content, and held line by line against refunds, " +
			"orders and the channel's own list; the other parts are then made only if --part names them.\n\n" +
			"WHEN is an RFC 3339 instant or a date (UTC).",
		Args: nothing,
		RunE: a.patientVerb(func(ctx context.Context, c *client.Client, _ []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			request, err := flags.request(tenant)
			if err != nil {
				return err
			}
			stored, err := a.storeSettlement(ctx, c, given)
			if err != nil {
				return err
			}
			if stored != nil {
				request.Settlement = &stored.Key
			}
			result, err := c.Reconcile(ctx, request)
			if err != nil {
				return err
			}
			return a.showReconciliation(ctx, c, tenant, result.ReconciliationID, &result, stored)
		}),
	}
	flags.add(command, 0)
	given.add(command)
	command.Flags().StringVar(&flags.since, "since", "", "ask channels for what they made from WHEN on (default --window before --until)")
	command.Flags().StringVar(&flags.until, "until", "", "and before WHEN (default now)")
	command.Flags().Var(statementFormat{&a.output}, "output", "table, json or csv")
	return command
}

func (a *app) reconcileShowCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "show [RECONCILIATION]", Short: "List what a reconciliation found, the newest where none is named",
		Args: cobra.MaximumNArgs(1),
		RunE: a.patientVerb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			id := ""
			if len(args) > 0 {
				id = args[0]
			}
			return a.showReconciliation(ctx, c, tenant, id, nil, nil)
		}),
	}
	command.Flags().Var(statementFormat{&a.output}, "output", "table, json or csv")
	return command
}

func (a *app) reconcileScheduleCommand() *cobra.Command {
	var flags passFlags
	var every time.Duration
	var off bool
	command := &cobra.Command{
		Use: "schedule --every DURATION | --off", Short: "Have a reconciliation made every so often, or no longer",
		Long: "Have a reconciliation made every so often, from a Temporal Schedule, which replaces the one that the tenant has; or no " +
			"longer. A pass that is still under way when the next is due lets that out.",
		Args: nothing,
		RunE: a.verb(func(ctx context.Context, c *client.Client, _ []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			if off == (every != 0) {
				return usagef("give --every DURATION or --off")
			}
			state := "ended"
			if off {
				err = c.UnscheduleReconcile(ctx, tenant)
			} else {
				var request contract.ReconcileRequest
				if request, err = flags.request(tenant); err != nil {
					return err
				}
				state = "every " + every.String()
				err = c.ScheduleReconcile(ctx, every, request)
			}
			if err != nil {
				return err
			}
			result := struct {
				Tenant   string `json:"tenant"`
				Schedule string `json:"schedule"`
				State    string `json:"state"`
			}{tenant, contract.ReconcileWorkflowID(tenant), state}
			return a.show(result, func(w io.Writer) {
				line(w, "Tenant", tenant)
				line(w, "Schedule", result.Schedule)
				line(w, "State", state)
			})
		}),
	}
	flags.add(command, contract.ReconcileWholeEvery.Std())
	command.Flags().DurationVar(&every, "every", 0, "how often: 1m or more")
	command.Flags().BoolVar(&off, "off", false, "end the schedule")
	return command
}

// showReconciliation prints a pass: its result and the settlement file where it was just made, and its findings.
func (a *app) showReconciliation(
	ctx context.Context, c *client.Client, tenant, id string, result *contract.ReconcileResult, stored *client.StoredSettlement,
) error {
	if a.output == outputCSV {
		return a.findingsCSV(ctx, c, tenant, id)
	}
	var findings []client.Finding
	total := 0
	pass, err := c.Findings(ctx, tenant, id, func(f client.Finding) error {
		if total++; total <= shownFindings {
			findings = append(findings, f)
		}
		return nil
	})
	if err != nil {
		return err
	}
	shown := reconciliation{
		ReconciliationID: pass.ID, Tenant: tenant, Settlement: stored, Result: result, Unfinished: pass.Unfinished, Findings: findings,
		More: max(total-shownFindings, 0),
	}
	if problem := shown.problem(); problem != "" {
		shown.Code, shown.Message, shown.Retry = codeFindings, problem, contract.RetrySameKey
	}
	if err := a.show(shown, func(w io.Writer) { reconciliationTable(w, shown) }); err != nil {
		return err
	}
	if shown.Code != "" {
		return errShown
	}
	return nil
}

// reconciliation is a pass as it is printed.
type reconciliation struct {
	Code             contract.Code             `json:"code,omitempty"`
	Message          string                    `json:"message,omitempty"`
	Retry            contract.Retry            `json:"retry,omitempty"`
	ReconciliationID string                    `json:"reconciliationId"`
	Tenant           string                    `json:"tenant"`
	Settlement       *client.StoredSettlement  `json:"settlement,omitempty"`
	Result           *contract.ReconcileResult `json:"result,omitempty"`
	// Unfinished says what could not be finished and why.
	Unfinished []string         `json:"unfinished,omitempty"`
	Findings   []client.Finding `json:"findings"`
	// More is how many findings are not listed.
	More int `json:"more,omitempty"`
}

// problem says what a pass that was just made leaves to people, and nothing where it leaves nothing.
func (r reconciliation) problem() string {
	if r.Result == nil {
		return ""
	}
	for _, compared := range r.Result.Compared {
		if compared.Problem != "" {
			return fmt.Sprintf("%s %s could not be compared wholly: %s", compared.Part, compared.Channel, compared.Problem)
		}
	}
	var opened int64
	for _, found := range r.Result.Found {
		if found.Effect == contract.FindingOpened {
			opened += found.Findings
		}
	}
	if opened > 0 {
		return counted(opened, "issue was opened", "issues were opened") + ": see issue list"
	}
	return ""
}

func reconciliationTable(w io.Writer, r reconciliation) {
	line(w, "Tenant", r.Tenant)
	line(w, "Reconciliation", r.ReconciliationID)
	if r.Settlement != nil {
		storedSettlementTable(w, *r.Settlement)
	}
	if r.Result != nil {
		line(w, "Period", clock(r.Result.Since)+" to "+clock(r.Result.Until))
		for _, compared := range r.Result.Compared {
			text := fmt.Sprintf("%d here, %d there", compared.Ours, compared.Theirs)
			switch {
			case compared.NewSince != nil:
				text += ", what is new in all tenants since " + clock(*compared.NewSince)
			case compared.Doubt != "":
				text += ", the whole ledger: " + compared.Doubt
			}
			if compared.Unassigned > 0 {
				text += fmt.Sprintf(", %d of no tenant (issue list --tenant %s)", compared.Unassigned, contract.UnassignedTenant)
			}
			if compared.Problem != "" {
				text += ", NOT FINISHED: " + compared.Problem
			}
			line(w, "Compared", fmt.Sprintf("%s %s: %s", compared.Part, compared.Channel, text))
			if compared.Settlement != nil {
				settlementTable(w, *compared.Settlement)
			}
		}
	}
	if r.Result == nil {
		for _, part := range r.Unfinished {
			line(w, "NOT FINISHED", part)
		}
	}
	verdict := "nothing is otherwise than it should be"
	switch {
	case len(r.Findings) > 0:
		verdict = counted(len(r.Findings)+r.More, "finding", "findings")
	case len(r.Unfinished) > 0:
		verdict = "nothing in what could be compared"
	}
	line(w, "Found", verdict)
	if len(r.Findings) == 0 {
		return
	}
	line(w)
	line(w, "FOUND", "EFFECT", "SUBJECT", "ISSUE", "DETAIL")
	for _, f := range r.Findings {
		line(w, f.Kind, f.Effect, f.SubjectKind+" "+f.SubjectID, orDash(f.IssueID), f.Detail)
	}
	if r.More > 0 {
		line(w, fmt.Sprintf("… %d more: --output csv lists all", r.More))
	}
}

// findingsCSV streams all findings of a pass, a heading first (RFC 4180).
func (a *app) findingsCSV(ctx context.Context, c *client.Client, tenant, id string) error {
	w := csv.NewWriter(a.stdout)
	err := w.Write([]string{"kind", "effect", "subject_kind", "subject_id", "particular", "issue_id", "found_at", "detail", "difference",
		"currency"})
	if err != nil {
		return fmt.Errorf("print the findings: %w", err)
	}
	if _, err := c.Findings(ctx, tenant, id, func(f client.Finding) error {
		return w.Write([]string{
			f.Kind, string(f.Effect), f.SubjectKind, f.SubjectID, f.Particular, f.IssueID, f.FoundAt.Format(time.RFC3339Nano), f.Detail,
			strconv.FormatInt(f.Difference, 10), f.Currency,
		})
	}); err != nil {
		return err
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return fmt.Errorf("print the findings: %w", err)
	}
	return nil
}
