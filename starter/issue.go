package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
)

func (a *app) issueCommand() *cobra.Command {
	return group("issue", "List the issues and refunds that a person has to look at, and close issues", a.issueListCommand(), a.issueResolveCommand())
}

func (a *app) issueListCommand() *cobra.Command {
	var all bool
	command := &cobra.Command{
		Use: "list [--all]", Short: "List open issues and the refunds that wait for a person, the newest first",
		Long: "List open issues, the newest first, and after them the open refunds that wait for a person: those that their " +
			"channel has not confirmed in time, and those that cannot go on. What can be done about each is told with it, or by " +
			"refund status. Jobs that wait for a person are found in the Web UI: ReclaimAttention = \"dead_letter\".",
		Args: nothing,
		RunE: a.verb(func(ctx context.Context, c *client.Client, _ []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			issues, err := c.Issues(ctx, tenant, all)
			if err != nil {
				return err
			}
			refunds, err := c.WaitingRefunds(ctx, tenant)
			if err != nil {
				return err
			}
			result := struct {
				Tenant  string                 `json:"tenant"`
				Issues  []client.Issue         `json:"issues"`
				Refunds []client.WaitingRefund `json:"refunds"`
			}{tenant, issues, refunds}
			return a.show(result, func(w io.Writer) { attentionTable(w, tenant, issues, refunds) })
		}),
	}
	command.Flags().BoolVar(&all, "all", false, "resolved ones too")
	return command
}

// attentionTable writes all that a person has to look at.
func attentionTable(w io.Writer, tenant string, issues []client.Issue, refunds []client.WaitingRefund) {
	if len(issues)+len(refunds) == 0 {
		line(w, "No issues (jobs that wait for a person are in the Web UI: ReclaimAttention = \"dead_letter\")")
	}
	for i, issue := range issues {
		if i > 0 {
			line(w)
		}
		issueTable(w, tenant, issue)
	}
	if len(issues) == client.IssueLimit {
		line(w, "… there may be more")
	}
	for i, refund := range refunds {
		if i > 0 || len(issues) > 0 {
			line(w)
		}
		line(w, "Refund", refund.RefundID)
		line(w, "State", fmt.Sprintf("%s since %s", refund.State, clock(refund.Since)))
		line(w, "Order", refund.OrderID)
		wrapped(w, "Waits for", refund.WaitsFor)
		youCan(w, []string{fmt.Sprintf("%s refund status %s --tenant %s", program, refund.RefundID, tenant)})
	}
	if len(refunds) == client.IssueLimit {
		line(w, "… there may be more")
	}
}

// issueTable writes an issue and, while it is open, the command that closes it. The resolution id is the same for every
// paste, which so decides once.
func issueTable(w io.Writer, tenant string, issue client.Issue) {
	line(w, "Issue", issue.IssueID)
	state := fmt.Sprintf("%s since %s", issue.State, clock(issue.OpenedAt))
	open := issue.ResolvedAt.IsZero()
	if !open {
		state = fmt.Sprintf("%s at %s, opened at %s", issue.State, clock(issue.ResolvedAt), clock(issue.OpenedAt))
	}
	line(w, "State", state)
	line(w, "Kind", issue.Kind)
	line(w, "Subject", issue.SubjectKind+" "+issue.SubjectID)
	wrapped(w, "Evidence", issue.Evidence)
	if open {
		youCan(w, []string{fmt.Sprintf("%s issue resolve %s --tenant %s --id resolve-1 --operator \"$USER\" --reason 'WHY'",
			program, shellWord(issue.IssueID), tenant)})
	}
}

func (a *app) issueResolveCommand() *cobra.Command {
	var id, operator, reason string
	command := &cobra.Command{
		Use: "resolve ISSUE --id ID [--operator WHO] --reason WHY", Short: "Close an issue by a person's decision",
		Long: "Close an issue by a person's decision, which moves no money: correct a balance with account adjust, and decide an " +
			"open refund with refund resolve. The id makes repeating safe.",
		Args: exactly("ISSUE"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			if operator, err = a.needOperator(operator); err != nil {
				return err
			}
			answer, err := c.ResolveIssue(ctx, tenant, args[0], id, operator, reason)
			if err != nil {
				return err
			}
			return a.show(answer, func(w io.Writer) {
				line(w, "Resolution", answer.ID)
				line(w, "Issue", answer.IssueID)
				line(w, "Outcome", answer.Outcome)
				line(w, "State", answer.State)
			})
		}),
	}
	flags := command.Flags()
	flags.StringVar(&id, "id", "", "resolution id: the same for every repeat of this decision")
	flags.StringVar(&operator, "operator", "", operatorUsage)
	flags.StringVar(&reason, "reason", "", "why")
	mustHave(command, "id", "reason")
	return command
}
