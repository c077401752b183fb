package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
)

func (a *app) issueCommand() *cobra.Command {
	return group("issue", "List what a person has to look at, and close it", a.issueListCommand(), a.issueResolveCommand())
}

func (a *app) issueListCommand() *cobra.Command {
	var all bool
	command := &cobra.Command{
		Use: "list [--all]", Short: "List open issues, the newest first",
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
			result := struct {
				Tenant string         `json:"tenant"`
				Issues []client.Issue `json:"issues"`
			}{tenant, issues}
			return a.show(result, func(w io.Writer) {
				if len(issues) == 0 {
					line(w, "No issues")
					return
				}
				issueTable(w, issues)
				if len(issues) == client.IssueLimit {
					line(w, "… there may be more")
				}
			})
		}),
	}
	command.Flags().BoolVar(&all, "all", false, "resolved ones too")
	return command
}

func issueTable(w io.Writer, issues []client.Issue) {
	line(w, "ISSUE", "STATE", "OPENED", "SUBJECT", "EVIDENCE")
	for _, issue := range issues {
		line(w, issue.IssueID, issue.State, clock(issue.OpenedAt), issue.SubjectKind+" "+issue.SubjectID, issue.Evidence)
	}
}

func (a *app) issueResolveCommand() *cobra.Command {
	var id, operator, reason string
	command := &cobra.Command{
		Use: "resolve ISSUE --id ID --operator WHO --reason WHY", Short: "Close an issue by a person's decision",
		Long: "Close an issue by a person's decision, which moves no money: correct a balance with account adjust, and decide an " +
			"open refund with refund resolve. The id makes repeating safe.",
		Args: exactly("ISSUE"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
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
	flags.StringVar(&operator, "operator", "", "who decided it")
	flags.StringVar(&reason, "reason", "", "why")
	mustHave(command, "id", "operator", "reason")
	return command
}
