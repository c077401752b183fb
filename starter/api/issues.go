package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/reclaimhq/reclaim/starter/client"
)

// Attention is all that a person has to look at.
type Attention struct {
	Issues  []client.Issue         `json:"issues" doc:"The newest first, at most 1000"`
	Refunds []client.WaitingRefund `json:"refunds" doc:"Open refunds that wait for a person, the newest first, at most 1000"`
}

func (d *Door) issueRoutes(routes huma.API) {
	type listInput struct {
		State string `query:"state" enum:"open,all" default:"open" doc:"all: resolved ones too"`
	}
	type listOutput struct{ Body Attention }
	handle(routes, route{
		id: "list-issues", method: http.MethodGet, path: "/v1/issues", tag: "issues",
		summary: "List what a person has to look at", scope: "refunds:read", status: http.StatusOK,
	}, func(ctx context.Context, key client.Key, input *listInput) (*listOutput, error) {
		issues, err := d.client.Issues(ctx, key.Tenant, input.State == "all")
		if err != nil {
			return nil, err
		}
		refunds, err := d.client.WaitingRefunds(ctx, key.Tenant)
		return &listOutput{Attention{issues, refunds}}, err
	})
}
