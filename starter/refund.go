package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (a *app) refundCommand() *cobra.Command {
	return group("refund", "Send money of an order back through its channel, follow it, and decide stuck refunds",
		a.refundRequestCommand(), a.refundStatusCommand(), a.refundResolveCommand())
}

func (a *app) refundRequestCommand() *cobra.Command {
	var request contract.RefundRequest
	var money, credits amount
	command := &cobra.Command{
		Use: "request --order ORDER --amount N --key K --reason WHY", Short: "Ask to send money of an order back",
		Long: "Ask to send money of an order back through its channel. Once it is accepted it is followed to its end, whatever " +
			"happens here. The key makes repeating safe: tenant, actor and key stand for one refund for ever.",
		Args: nothing,
	}
	command.RunE = a.verb(func(ctx context.Context, c *client.Client, _ []string) (err error) {
		if request.Tenant, request.Actor, err = a.needTenantAndActor(); err != nil {
			return err
		}
		request.Amount = money.value
		if command.Flags().Changed("credits") {
			request.Credits = &credits.value
		}
		refund, err := c.RequestRefund(ctx, request)
		if err != nil {
			return err
		}
		return a.show(refund, func(w io.Writer) {
			answer := "accepted"
			if !refund.Created {
				answer = "accepted before under this key: nothing moved now"
			}
			line(w, "Answer", answer)
			line(w, "Refund", refund.RefundID)
			line(w, "State", refund.State)
			line(w, "Amount", fmt.Sprintf("%d %s and %d credits", refund.Amount, refund.Currency, refund.Credits))
			line(w, "Follow it", fmt.Sprintf("%s refund status %s --tenant %s", program, refund.RefundID, request.Tenant))
		})
	})
	flags := command.Flags()
	flags.StringVar(&request.OrderID, "order", "", "whose money it is")
	flags.Var(&money, "amount", "how much, in the smallest unit of the order's currency")
	flags.Var(&credits, "credits", "how many credits leave the account with it; 0 leaves them to the customer "+
		"(default as many as the amount stands for)")
	flags.StringVar(&request.Currency, "currency", "", "checked against the order's (default the order's)")
	flags.StringVar(&request.Key, "key", "", "operation key: the same for every repeat of this request")
	flags.StringVar(&request.Reason, "reason", "", "why")
	mustHave(command, "order", "amount", "key", "reason")
	return command
}

func (a *app) refundStatusCommand() *cobra.Command {
	var key string
	command := &cobra.Command{
		Use:   "status REFUND | --key K",
		Short: "Tell whether the money went back, what is known, what comes next, and what a person can do now",
		Long: "Tell whether the money went back, what is known and since when, what comes next, and what a person can do now, " +
			"from the database alone. With --key, the refund is the one that the actor asked for under this key.",
	}
	command.Args = func(_ *cobra.Command, args []string) error {
		if key == "" {
			return exactly("REFUND (or --key K)")(command, args)
		}
		return nothing(command, args)
	}
	command.RunE = a.verb(func(ctx context.Context, c *client.Client, args []string) error {
		refund, err := a.findRefund(ctx, c, key, args)
		if err != nil {
			return err
		}
		return a.show(refund, func(w io.Writer) { refundTable(w, refund) })
	})
	command.Flags().StringVar(&key, "key", "", "operation key under which the refund was asked for")
	return command
}

func (a *app) findRefund(ctx context.Context, c *client.Client, key string, args []string) (client.Refund, error) {
	if key != "" {
		tenant, actor, err := a.needTenantAndActor()
		if err != nil {
			return client.Refund{}, err
		}
		return c.FindRefund(ctx, tenant, actor, key)
	}
	tenant, err := a.needTenant()
	if err != nil {
		return client.Refund{}, err
	}
	return c.Refund(ctx, tenant, args[0])
}

func refundTable(w io.Writer, refund client.Refund) {
	line(w, "Refund", refund.RefundID)
	line(w, "Did it happen", refund.DidItHappen)
	line(w, "Known", refund.Known)
	line(w, "Since", clock(refund.Since))
	line(w, "State", refund.State)
	line(w, "Next look", clockOrDash(refund.NextLook))
	line(w, "Looks until", clockOrDash(refund.LookUntil))
	line(w, "Then", refund.Then)
	line(w, "Waits for", refund.WaitsFor)
	needed := "no"
	if refund.NeedsReview {
		needed = "yes"
	}
	line(w, "Needs a person", needed)
	youCan(w, refundCommandsFor(refund))
	line(w, "Amount", fmt.Sprintf("%d %s and %d credits", refund.Amount, refund.Currency, refund.Credits))
	line(w, "Order", refund.OrderID)
	if refund.JobID != "" {
		line(w, "Job", refund.JobID)
	}
	line(w, "Account", refund.Account)
	line(w, "Payment", refund.Payment+" through "+refund.Channel)
	line(w, "Channel's ref", orDash(refund.ChannelRef))
	line(w, "Reason", refund.Reason)
	for _, issue := range refund.Issues {
		line(w)
		issueTable(w, refund.Tenant, issue)
	}
	line(w)
	storyTable(w, refund.Story)
}

func clockOrDash(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return clock(at)
}

// refundCommandsFor gives the commands that a person can paste now. The resolution id says what it decides after how many
// sends and looks, so that pasting twice decides once; what is known, and who and why, is for the person to fill in.
func refundCommandsFor(refund client.Refund) []string {
	var commands []string
	needsApprover := false
	for _, action := range refund.Actions {
		command := fmt.Sprintf("%s refund resolve %s --tenant %s --id %s-%d.%d --action %s --operator \"$USER\" --reason 'WHY'",
			program, refund.RefundID, refund.Tenant, action, refund.Sends, refund.Looks, action)
		if action == contract.ActionSettle || action == contract.ActionRelease {
			command += " --amount AMOUNT --evidence 'HOW IT IS KNOWN'"
		}
		if action == contract.ActionSettle {
			command += " --channel-ref 'CHANNEL REFERENCE'"
		}
		commands = append(commands, command)
		// Which amounts need one, only the worker's configuration knows.
		needsApprover = needsApprover || action != contract.ActionExtend
	}
	if needsApprover {
		commands = append(commands, "(add --approver 'SECOND PERSON' if the channel asks for a second person)")
	}
	return commands
}

func (a *app) refundResolveCommand() *cobra.Command {
	var decision contract.RefundResolution
	var many bulk
	var money amount
	var action choice
	for _, possible := range contract.RefundActions() {
		action.of = append(action.of, string(possible))
	}
	command := &cobra.Command{
		Use:   "resolve REFUND|--query QUERY --id ID --action settle|release|resend|extend|cancel [--operator WHO] --reason WHY",
		Short: "Decide a stuck refund",
		Long: "Decide a stuck refund: settle says, with evidence, that the channel sent the money back; release, that no money " +
			"moved and none will; resend sends the same number again, while the channel honours it; extend goes on looking; " +
			"cancel withdraws a refund that was not sent. settle and release need --amount, which must be the refund's, and " +
			"--evidence; settle needs --channel-ref. Above the channel's limit an --approver is needed, a second person. The " +
			"id makes repeating safe. With --query, all that match are decided (resend, extend or cancel); see it first with --dry-run.",
		Args: many.subject("REFUND"),
		RunE: a.patientVerb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			if decision.Operator, err = a.needOperator(decision.Operator); err != nil {
				return err
			}
			if err := decision.CheckApprover(a.actor, "the actor who sends the decision"); err != nil {
				return err
			}
			decision.Action, decision.Amount = contract.RefundAction(action.value), money.value
			if many.query != "" {
				return a.showBulk(many, c.ResolveRefunds(ctx, tenant, many.query, decision, many.dryRun))
			}
			ctx, cancel := context.WithTimeout(ctx, a.timeout)
			defer cancel()
			answer, err := c.ResolveRefund(ctx, tenant, args[0], decision)
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
	flags.StringVar(&decision.Approver, "approver", "", "who approved it, a second person")
	flags.StringVar(&decision.Reason, "reason", "", "why")
	flags.StringVar(&decision.ChannelRef, "channel-ref", "", "the channel's own reference of the refund (settle)")
	flags.Var(&money, "amount", "the refund's amount, to be sure that it is this one (settle, release)")
	flags.StringVar(&decision.Currency, "currency", "", "the refund's currency, checked where it is given")
	flags.StringVar(&decision.Evidence, "evidence", "", "how it is known (settle, release)")
	many.flags(command)
	mustHave(command, "id", "action", "reason")
	return command
}
