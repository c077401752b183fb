package main

import (
	"context"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (a *app) jobOutcomeCommand() *cobra.Command {
	var outcome contract.Outcome
	var output string
	state := choice{of: []string{string(contract.OutcomeSucceeded), string(contract.OutcomeFailed)}}
	command := &cobra.Command{
		Use: "outcome JOB --state succeeded|failed --source TEXT", Short: "Report from outside how an attempt of the work ended",
		Args: exactly("JOB"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			outcome.State = contract.OutcomeState(state.value)
			if output != "" {
				if !json.Valid([]byte(output)) {
					return usagef("--output-json is not valid JSON: a text needs its quotes, as in '\"done\"'")
				}
				outcome.Output = json.RawMessage(output)
			}
			if err := contract.CheckText("source", outcome.Source, 200); err != nil {
				return err
			}
			if err := c.ReportOutcome(ctx, tenant, args[0], outcome); err != nil {
				return err
			}
			return a.showRequested(tenant, args[0], "outcome "+state.value)
		}),
	}
	flags := command.Flags()
	flags.Var(&state, "state", "how it ended")
	flags.IntVar(&outcome.Attempt, "attempt", 0, "which attempt ended (default the one in flight)")
	flags.StringVar(&output, "output-json", "", "the work's result, as JSON")
	flags.StringVar(&outcome.Error, "error", "", "what went wrong")
	flags.StringVar(&outcome.Source, "source", "", "who reports it")
	mustHave(command, "state", "source")
	return command
}

func (a *app) jobResolveCommand() *cobra.Command {
	var decision contract.Resolution
	var many bulk
	action := choice{of: []string{string(contract.ActionRetry), string(contract.ActionDeliver), string(contract.ActionWriteOff)}}
	command := &cobra.Command{
		Use:   "resolve JOB|--query QUERY --id ID --action retry|deliver|write_off [--operator WHO] --reason WHY",
		Short: "Decide a stuck job",
		Long: "Decide a stuck job: retry grants a dead letter more attempts; deliver says, with evidence, that the customer has " +
			"the result, and takes a refund back; write_off gives the job up, refunded. The id makes repeating safe. " +
			"With --query, all that match are decided; see it first with --dry-run.",
		Args: many.subject("JOB"),
		RunE: a.patientVerb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			if decision.Operator, err = a.needOperator(decision.Operator); err != nil {
				return err
			}
			decision.Action = contract.Action(action.value)
			if many.query != "" {
				return a.showBulk(many, c.ResolveJobs(ctx, tenant, many.query, decision, many.dryRun))
			}
			ctx, cancel := context.WithTimeout(ctx, a.timeout)
			defer cancel()
			answer, err := c.Resolve(ctx, tenant, args[0], decision)
			if err != nil {
				return err
			}
			return a.show(answer, func(w io.Writer) {
				line(w, "Resolution", answer.ID)
				line(w, "Outcome", answer.Outcome)
				line(w, "State", answer.State)
			})
		}),
	}
	flags := command.Flags()
	flags.StringVar(&decision.ID, "id", "", "resolution id: the same for every repeat of this decision")
	flags.Var(&action, "action", "what is decided")
	flags.StringVar(&decision.Operator, "operator", "", operatorUsage)
	flags.StringVar(&decision.Reason, "reason", "", "why")
	flags.StringVar(&decision.Evidence, "evidence", "", "how it is known that the customer has the result (deliver)")
	flags.IntVar(&decision.Attempts, "attempts", 0, "how many more attempts, 1 to 100 (retry; default 1)")
	many.flags(command)
	mustHave(command, "id", "action", "reason")
	return command
}
