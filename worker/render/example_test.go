package render_test

import (
	"log"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/reclaimhq/reclaim/worker/render"
)

// A whole work worker: its own program, apart from the worker that runs the metered jobs.
func ExampleNewWorker() {
	studio, err := render.NewStudio("results")
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.Dial(client.Options{HostPort: "localhost:7233", RPCTimeout: render.RPCTimeout})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if err := render.NewWorker(c, "gpu", studio).Run(worker.InterruptCh()); err != nil {
		log.Fatal(err)
	}
}
