package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Decided is how a decision that was taken to many went for one of them.
type Decided struct {
	// ID is the job's or the refund's.
	ID string `json:"id"`
	// Outcome is applied, or possible in a dry run; empty where it was refused.
	Outcome string `json:"outcome,omitempty"`
	// State is the subject's, where the decision was applied.
	State   string          `json:"state,omitempty"`
	Refusal *contract.Error `json:"refusal,omitempty"`
}

// outcomePossible is what a dry run says of a decision that would be sent.
const outcomePossible = "possible"

// decidedAtOnce is how many decisions are under way at once, and decisionPatience how long one may take.
const (
	decidedAtOnce    = 8
	decisionPatience = 30 * time.Second
)

// ResolveJobs takes one decision to every job of the tenant that has an open run and matches a query of the Web UI (empty:
// every one), and tells of each how it went. Its id is each job's own, so that repeating all of it after an interruption is
// safe. A dry run sends nothing. The server's list may be some seconds behind; what is decided is held against each job's
// row. An error ends it: BadInput (the query or the decision is not valid), Unavailable.
func (c *Client) ResolveJobs(
	ctx context.Context, tenant, query string, decision contract.Resolution, dryRun bool,
) iter.Seq2[Decided, error] {
	err := decision.Check()
	return c.decideEach(ctx, err, tenant, query, contract.MeteredJobWorkflow, contract.JobWorkflowID(tenant, ""), func(ctx context.Context, id string) (Decided, error) {
		if dryRun {
			row, answer, err := c.foreseeResolution(ctx, tenant, id, decision)
			if err == nil && answer.ID == "" {
				return Decided{Outcome: outcomePossible, State: row.State}, notPossible(contract.JobState(row.State), decision.Action)
			}
			return Decided{Outcome: answer.Outcome, State: string(answer.State)}, err
		}
		answer, err := c.Resolve(ctx, tenant, id, decision)
		return Decided{Outcome: answer.Outcome, State: string(answer.State)}, err
	})
}

// ResolveRefunds is ResolveJobs for refunds. settle and release need the amount of one refund, so that they suit no query.
func (c *Client) ResolveRefunds(
	ctx context.Context, tenant, query string, decision contract.RefundResolution, dryRun bool,
) iter.Seq2[Decided, error] {
	err := decision.Check()
	if decision.Action == contract.ActionSettle || decision.Action == contract.ActionRelease {
		err = contract.NewError(contract.CodeBadInput, contract.RetryNewKey,
			fmt.Sprintf("%s needs the amount and the evidence of one refund: decide each by itself", decision.Action), nil)
	}
	return c.decideEach(ctx, err, tenant, query, contract.ChannelRefundWorkflow, contract.RefundWorkflowID(tenant, ""), func(ctx context.Context, id string) (Decided, error) {
		if dryRun {
			row, answer, err := c.foreseeRefundResolution(ctx, tenant, id, decision)
			if err == nil && answer.ID == "" {
				return Decided{Outcome: outcomePossible, State: row.ReclaimRefund.State}, nil
			}
			return Decided{Outcome: answer.Outcome, State: string(answer.State)}, err
		}
		answer, err := c.ResolveRefund(ctx, tenant, id, decision)
		return Decided{Outcome: answer.Outcome, State: string(answer.State)}, err
	})
}

// decideEach lists the subjects of a query page by page and decides a page's at once.
func (c *Client) decideEach(
	ctx context.Context, invalid error, tenant, query, workflowType, prefix string,
	decide func(context.Context, string) (Decided, error),
) iter.Seq2[Decided, error] {
	return func(yield func(Decided, error) bool) {
		if err := errors.Join(invalid, contract.CheckID("tenant", tenant)); err != nil {
			yield(Decided{}, err)
			return
		}
		var token []byte
		for {
			ids, next, err := c.openRuns(ctx, tenant, query, workflowType, prefix, token)
			if err != nil {
				yield(Decided{}, err)
				return
			}
			for _, decided := range decidePage(ctx, ids, decide) {
				if !yield(decided, ctx.Err()) || ctx.Err() != nil {
					return
				}
			}
			if token = next; len(token) == 0 {
				return
			}
		}
	}
}

// decidePage decides all of a page, decidedAtOnce at a time.
func decidePage(ctx context.Context, ids []string, decide func(context.Context, string) (Decided, error)) []Decided {
	results := make([]Decided, len(ids))
	var group sync.WaitGroup
	turns := make(chan struct{}, decidedAtOnce)
	for i, id := range ids {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(ctx, decisionPatience)
			defer cancel()
			decided, err := decide(ctx, id)
			if decided.ID = id; err != nil {
				decided = Decided{ID: id, Refusal: contract.AsError(err)}
			}
			results[i] = decided
		})
	}
	group.Wait()
	return results
}

// openRuns lists a page of the subjects with an open run that match; prefix begins their workflow ids.
func (c *Client) openRuns(
	ctx context.Context, tenant, query, workflowType, prefix string, token []byte,
) (ids []string, next []byte, err error) {
	all := fmt.Sprintf("%s = %q AND WorkflowType = %q AND ExecutionStatus = 'Running'", contract.AttributeTenant, tenant, workflowType)
	if strings.TrimSpace(query) != "" {
		all += " AND (" + query + ")"
	}
	page, err := c.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query: all, NextPageToken: token, PageSize: 100,
	})
	if _, invalid := errors.AsType[*serviceerror.InvalidArgument](err); invalid {
		return nil, nil, contract.NewError(contract.CodeBadInput, contract.RetryNewKey, "the server does not take the query: "+err.Error(), err)
	}
	if err != nil {
		return nil, nil, translate("list the runs to decide", err)
	}
	for _, run := range page.GetExecutions() {
		// However the query's parentheses fall, only this tenant's runs are decided.
		if id, ours := strings.CutPrefix(run.GetExecution().GetWorkflowId(), prefix); ours {
			ids = append(ids, id)
		}
	}
	return ids, page.GetNextPageToken(), nil
}
