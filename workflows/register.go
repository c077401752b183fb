package workflows

import (
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Registry is what workflows and activities are registered with: a worker, a replayer or a test environment.
type Registry interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// ActivityRegistry takes activities; a replayer has none.
type ActivityRegistry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// Register makes Reclaim's workflows known to a worker, a replayer or a test environment, under their contract names.
func Register(r Registry) {
	r.RegisterWorkflowWithOptions(MeteredJob, workflow.RegisterOptions{Name: contract.MeteredJobWorkflow})
	r.RegisterWorkflowWithOptions(Reconcile, workflow.RegisterOptions{Name: contract.ReconcileWorkflow})
	r.RegisterWorkflowWithOptions(ChannelRefund, workflow.RegisterOptions{Name: contract.ChannelRefundWorkflow})
}

// RegisterActivities makes the activities that the workflows call known to a worker or a test environment.
func RegisterActivities(r ActivityRegistry, jobs *activities.Jobs, refunds *activities.Refunds) {
	r.RegisterActivityWithOptions(refunds, activity.RegisterOptions{})
	r.RegisterActivityWithOptions(jobs, activity.RegisterOptions{})
}

// RegisterReconciler makes the activities of reconciliations known to a worker or a test environment.
func RegisterReconciler(r ActivityRegistry, reconciler *activities.Reconciler) {
	r.RegisterActivityWithOptions(reconciler, activity.RegisterOptions{})
}
