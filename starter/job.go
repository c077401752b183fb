package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (a *app) jobCommand() *cobra.Command {
	return group("job", "Start, follow and decide metered jobs", a.jobStartCommand(), a.jobStatusCommand(),
		a.jobTimelineCommand(), a.jobCancelCommand(), a.jobOutcomeCommand(), a.jobResolveCommand())
}

func (a *app) jobStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status JOB", Short: "Show where a job stands and what a person can do now",
		Args: exactly("JOB"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			status, err := c.Status(ctx, tenant, args[0])
			if err != nil {
				return err
			}
			result := struct {
				Tenant string `json:"tenant"`
				JobID  string `json:"jobId"`
				contract.JobStatus
			}{tenant, args[0], status}
			return a.show(result, func(w io.Writer) {
				line(w, "Job", args[0])
				line(w, "State", status.State)
				line(w, "Money", moneyInWords(status.Money))
				line(w, "Attempt", status.Attempt)
				line(w, "Waits for", status.WaitsFor)
				if status.RefundID != "" {
					line(w, "Refund", fmt.Sprintf("%s: %s refund status %s --tenant %s", status.RefundID, program, status.RefundID, tenant))
				}
				if status.Note != "" {
					line(w, "Refund", "not sent to its source: "+status.Note)
				}
				youCan(w, commandsFor(tenant, args[0], status))
			})
		}),
	}
}

func moneyInWords(m contract.Money) string {
	return fmt.Sprintf("charged %d, refunded %d, reclaimed %d: the customer pays %d", m.Charged, m.Refunded, m.Reclaimed, m.Net())
}

// commandsFor gives the commands that a person can paste now. The resolution id says what it decides about which attempt,
// so that pasting twice decides once; who and why is for the person to fill in.
func commandsFor(tenant, job string, status contract.JobStatus) []string {
	var commands []string
	for _, action := range status.Actions {
		command := fmt.Sprintf("%s job resolve %s --tenant %s --id %s-%d --action %s --operator \"$USER\" --reason 'WHY'",
			program, job, tenant, action, status.Attempt, action)
		switch action {
		case contract.ActionDeliver:
			command += " --evidence 'HOW IT IS KNOWN'"
		case contract.ActionRetry:
			command += " --attempts 1"
		}
		commands = append(commands, command)
	}
	if status.State.Open() {
		commands = append(commands, fmt.Sprintf("%s job cancel %s --tenant %s", program, job, tenant))
	}
	return commands
}

func (a *app) jobTimelineCommand() *cobra.Command {
	return &cobra.Command{
		Use: "timeline JOB", Short: "Tell a job's whole story, from the database alone",
		Args: exactly("JOB"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			story, err := c.Timeline(ctx, tenant, args[0])
			if err != nil {
				return err
			}
			result := struct {
				Tenant   string          `json:"tenant"`
				JobID    string          `json:"jobId"`
				Timeline []client.Moment `json:"timeline"`
			}{tenant, args[0], story}
			return a.show(result, func(w io.Writer) { storyTable(w, story) })
		}),
	}
}

// storyTable writes a story, one line for each moment.
func storyTable(w io.Writer, story []client.Moment) {
	line(w, "TIME", "WHAT", "AMOUNT", "BALANCE", "IN WORDS")
	for _, moment := range story {
		amount, balance := "", ""
		if moment.BalanceAfter != nil {
			amount, balance = fmt.Sprintf("%+d", moment.Amount), fmt.Sprint(*moment.BalanceAfter)
		}
		line(w, clock(moment.At), moment.Kind, amount, balance, moment.Text)
	}
}

func (a *app) jobCancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel JOB", Short: "Ask for a job to be canceled: it is refunded at once, its work is asked to stop",
		Args: exactly("JOB"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			if err := c.Cancel(ctx, tenant, args[0]); err != nil {
				return err
			}
			return a.showRequested(tenant, args[0], "cancel")
		}),
	}
}

// showRequested says that a request is recorded; what becomes of it, status and timeline tell.
func (a *app) showRequested(tenant, job, requested string) error {
	result := struct {
		Tenant    string `json:"tenant"`
		JobID     string `json:"jobId"`
		Requested string `json:"requested"`
	}{tenant, job, requested}
	return a.show(result, func(w io.Writer) {
		line(w, "Requested", requested)
		line(w, "Job", job)
		line(w, "Follow it", fmt.Sprintf("%s job timeline %s --tenant %s", program, job, tenant))
	})
}
