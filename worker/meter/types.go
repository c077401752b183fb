package meter

import (
	"reflect"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"
)

// Types collects the names of the workflows and activities that are registered with it, which is how a worker knows what it
// runs.
type Types struct{ Names []string }

// RegisterWorkflowWithOptions keeps the workflow's name.
func (t *Types) RegisterWorkflowWithOptions(_ any, options workflow.RegisterOptions) {
	t.Names = append(t.Names, options.Name)
}

// RegisterActivityWithOptions keeps the names of all methods, which are the activities of a value.
func (t *Types) RegisterActivityWithOptions(a any, _ activity.RegisterOptions) {
	for method := range reflect.TypeOf(a).Methods() {
		t.Names = append(t.Names, method.Name)
	}
}
