// Package webui knows addresses in Temporal's Web UI: those of the views that support and operators open, and of one run.
package webui

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// UI is where a Web UI is, such as http://localhost:8233, and which namespace it shows.
type UI struct{ Address, Namespace string }

// Runs gives the address of the list of all runs.
func (u UI) Runs() string {
	return strings.TrimSuffix(u.Address, "/") + "/namespaces/" + url.PathEscape(u.Namespace) + "/workflows"
}

// Run gives the address of the newest run of a workflow id, and the id itself where there is no Web UI.
func (u UI) Run(workflowID string) string {
	if u.Address == "" {
		return workflowID
	}
	return u.Runs() + "/" + url.PathEscape(workflowID)
}

// Open gives the address of a view.
func (u UI) Open(v View) string { return u.Runs() + "?query=" + url.QueryEscape(v.Query) }

// Keep gives an address that opens a view and keeps it in this browser, by its name, among the Web UI's saved views: once
// more each time it is opened.
func (u UI) Keep(v View) string { return u.Open(v) + "&savedQuery=" + url.QueryEscape(v.Name) }

// View is a list of runs that somebody looks at again and again.
type View struct {
	Name string
	// Shows says what is in the list, and why one looks there.
	Shows string
	// Query is in Temporal's list filter. It knows no "now": a view with Dated set holds the time it was made at.
	Query string
	Dated bool
	// Needs is a search attribute that only newer servers have, empty where every server can answer.
	Needs string
}

// problems is the search attribute by which newer servers tell of workflow tasks that fail again and again.
const problems = "TemporalReportedProblems"

// Views are those of all tenants, as of now. "Reclaimed today" means since midnight UTC.
func Views(now time.Time) []View {
	now = now.UTC()
	return []View{
		{
			Name:  "Needs a person",
			Shows: "open runs that wait for a decision: dead letters, and refunds that are not confirmed in time",
			Query: contract.AttributeAttention + ` IS NOT NULL AND ExecutionStatus = "Running"`,
		},
		{
			Name:  "Ended with a question",
			Shows: "ended runs at which somebody must look: contradicted and reversed refunds, and credits that could not leave",
			Query: contract.AttributeAttention + ` IS NOT NULL AND ExecutionStatus != "Running"`,
		},
		{
			Name:  "Refunds unconfirmed for an hour",
			Shows: "refunds that have been under way for longer than an hour, whether or not a person is asked yet",
			Query: fmt.Sprintf(`WorkflowType = "%s" AND ExecutionStatus = "Running" AND StartTime < "%s"`,
				contract.ChannelRefundWorkflow, now.Add(-time.Hour).Format(time.RFC3339)),
			Dated: true,
		},
		{
			Name:  "Reclaimed today",
			Shows: "jobs delivered after their refund, whose price was taken again: the ones that customers ask about",
			Query: fmt.Sprintf(`%s = "%s" AND CloseTime > "%s"`, contract.AttributeMoney, contract.MoneyReclaimed,
				now.Truncate(24*time.Hour).Format(time.RFC3339)),
			Dated: true,
		},
		{
			Name:  "Terminated runs",
			Shows: "runs that somebody ended by force: what they were about stays open until it is submitted again or reconciled",
			Query: fmt.Sprintf(`WorkflowType IN ("%s", "%s") AND ExecutionStatus = "Terminated"`, contract.MeteredJobWorkflow,
				contract.ChannelRefundWorkflow),
		},
		{
			Name:  "Stuck workflow tasks",
			Shows: "runs that stand still since their workflow task fails or times out again and again",
			Query: problems + ` IN ("category=WorkflowTaskFailed", "category=WorkflowTaskTimedOut")`,
			Needs: problems,
		},
	}
}

// OfAccount is the view of all that an account paid for and got back.
func OfAccount(tenant, account string) View {
	return View{
		Name: "Account " + account, Shows: "all jobs and refunds of one account",
		Query: fmt.Sprintf(`%s = "%s" AND %s = "%s"`, contract.AttributeTenant, tenant, contract.AttributeAccount, account),
	}
}

// OfOrder is the view of the refunds of an order.
func OfOrder(tenant, order string) View {
	return View{
		Name: "Order " + order, Shows: "all refunds of one order",
		Query: fmt.Sprintf(`%s = "%s" AND %s = "%s"`, contract.AttributeTenant, tenant, contract.AttributeOrder, order),
	}
}

// List gives the views' addresses, a line each.
func (u UI) List(views []View) string {
	var text strings.Builder
	for _, v := range views {
		fmt.Fprintf(&text, "  %-32s %s\n", v.Name, u.Open(v))
	}
	return text.String()
}
