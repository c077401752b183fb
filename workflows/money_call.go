package workflows

import "go.temporal.io/sdk/workflow"

// ask runs one money call, under a summary for the reader of its run, and takes its answer in. A run's calls are made one at a time, so that the rows are taken in the
// order in which Postgres wrote them. A call that cannot succeed however often it is tried is a fault of the program or
// the schema: it blocks the workflow task, visibly, until a fixed worker takes over.
func ask[A any](
	ctx workflow.Context, calls workflow.Mutex, summary string, activity any, request any, take func(A),
) A {
	if err := calls.Lock(ctx); err != nil {
		panic(err)
	}
	defer calls.Unlock()
	var answer A
	if err := workflow.ExecuteLocalActivity(moneyCall(ctx, summary), activity, request).Get(ctx, &answer); err != nil {
		panic(err)
	}
	take(answer)
	return answer
}
