// Package demo plays scenes of a render studio's life on a running stack, with real work and real money guards, and
// checks the ledger after each.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	tenant  = "acme"
	account = "team-7"
	actor   = "demo"
	// creditsPerMegapixel is the studio's price, and credits what the account begins with.
	creditsPerMegapixel = 50
	credits             = 200

	// sceneLimit bounds whatever a scene waits for, on a slow machine too.
	sceneLimit = 2 * time.Minute
)

// Run plays every scene, then shows the accounts' statements and the audit. The error says what did not go as expected.
func Run(ctx context.Context, stack *devstack.Stack, out io.Writer) error {
	store, err := schema.Open(ctx, stack.AppURL(), schema.Options{Name: "reclaim-demo"})
	if err != nil {
		return err
	}
	defer store.Close()
	s := &stage{stack: stack, client: client.New(stack.Temporal(), store, ""), out: out}
	_, err = s.client.TopUp(ctx, client.Movement{
		Tenant: tenant, Actor: actor, Account: account, Key: "demo", Amount: credits, Reason: "bought for the demo",
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nA studio renders fractals for %d credits a megapixel. Account %s of tenant %s has bought %d credits.\n",
		creditsPerMegapixel, account, tenant, credits)

	began := time.Now()
	type part struct {
		title string
		show  func(context.Context) error
	}
	var all []part
	for _, scene := range scenes() {
		all = append(all, part{scene.title, func(ctx context.Context) error { return s.show(ctx, scene) }})
	}
	for _, scene := range refundScenes() {
		all = append(all, part{scene.title, func(ctx context.Context) error { return s.showRefund(ctx, scene) }})
	}
	for _, scene := range sourceScenes() {
		all = append(all, part{scene.title, func(ctx context.Context) error { return s.show(ctx, scene) }})
	}
	unexpected := 0
	for i, part := range all {
		fmt.Fprintf(out, "\n%d/%d  %s\n", i+1, len(all), part.title)
		if err := part.show(ctx); err != nil {
			unexpected++
			fmt.Fprintf(out, "     NOT AS EXPECTED: %v\n", err)
		}
		if err := errors.Join(ctx.Err(), stack.Trouble()); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "\nAll %d scenes took %.0f s.\n", len(all), time.Since(began).Seconds())
	err = errors.Join(s.statement(ctx, account, expectedBalance()), s.statement(ctx, shop, expectedShopBalance()), s.audit(ctx))
	if unexpected > 0 {
		err = errors.Join(err,
			fmt.Errorf("%d of %d scenes did not go as expected: look for NOT AS EXPECTED above", unexpected, len(all)))
	}
	return err
}

// Links gives, a line for each job and refund, where the Web UI shows it.
func Links(stack *devstack.Stack) string {
	var text string
	for _, scene := range slices.Concat(scenes(), sourceScenes()) {
		text += fmt.Sprintf("  %-14s %s\n", scene.job.JobID, stack.UI().Run(contract.JobWorkflowID(tenant, scene.job.JobID)))
	}
	for _, scene := range refundScenes() {
		number := contract.RefundNumber(tenant, actor, scene.order)
		text += fmt.Sprintf("  %-14s %s\n", scene.order, stack.UI().Run(contract.RefundWorkflowID(tenant, number)))
	}
	return text
}
