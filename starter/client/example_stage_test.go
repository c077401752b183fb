package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/config"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// atExit is called, the last first, once all tests and examples have run.
var atExit []func()

func TestMain(m *testing.M) {
	code := schematest.Run(m)
	for i := len(atExit) - 1; i >= 0; i-- {
		atExit[i]()
	}
	os.Exit(code)
}

// reclaim gives the examples a client on a running Reclaim with a channel "bank" and a worker of the work Render, which
// delivers at once, RenderSlowly, which does so after 2 s, and Break, which always fails. The servers start with the first
// example.
func reclaim() *client.Client { return exampleStack().client }

// ctx bounds an example.
func ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	atExit = append(atExit, cancel)
	return ctx
}

type stack struct {
	client   *client.Client
	store    *schema.Store
	base     *schematest.Database
	payments *simulator.Simulator
}

// exampleTB lets an example stand where a test stands: it has no testing.TB of its own.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                         {}
func (exampleTB) Cleanup(func())                  {}
func (exampleTB) Fatal(args ...any)               { panic(fmt.Sprint(args...)) }
func (exampleTB) Fatalf(text string, args ...any) { panic(fmt.Sprintf(text, args...)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var exampleStack = sync.OnceValue(func() stack {
	starting := context.Background()
	attributes := map[string]string{}
	for _, name := range contract.SearchAttributes() {
		attributes[name] = "Keyword"
	}
	server := must(localstack.StartTemporal(starting, localstack.TemporalOptions{Headless: true, SearchAttributes: attributes}))
	atExit = append(atExit, func() { _ = server.Close() })
	connection := must(temporalclient.DialContext(starting, temporalclient.Options{
		HostPort: server.Address(), Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	}))
	base := schematest.New(exampleTB{})
	store := must(schema.Open(starting, base.AppURL, schema.Options{MaxConns: 16}))
	payments := must(simulator.Start(simulator.Options{APIKey: "sk_test_example", WebhookSecret: "whsec_example"}))
	atExit = append(atExit, func() { _ = payments.Close() })
	deciding := worker.New(connection, contract.TaskQueue, worker.Options{})
	workflows.Register(deciding)
	workflows.RegisterActivities(deciding, activities.NewJobs(store), activities.NewRefunds(store, exampleChannels(payments.URL())))
	must(0, deciding.Start())
	working := worker.New(connection, "gpu", worker.Options{})
	for name, work := range map[string]any{
		"Render": func(context.Context, any, contract.WorkMeta) (string, error) { return "s3://videos/1", nil },
		"RenderSlowly": func(ctx context.Context, _ any, _ contract.WorkMeta) (string, error) {
			<-time.After(2 * time.Second)
			return "s3://videos/1", nil
		},
		"Break": func(context.Context, any, contract.WorkMeta) (string, error) {
			return "", temporal.NewApplicationError("out of memory", "GPU")
		},
	} {
		working.RegisterActivityWithOptions(work, activity.RegisterOptions{Name: name})
	}
	must(0, working.Start())
	atExit = append(atExit, func() {
		working.Stop()
		deciding.Stop()
		connection.Close()
		store.Close()
	})
	return stack{client: client.New(connection, store, ""), store: store, base: base, payments: payments}
})

func exampleChannels(url string) activities.Channels {
	folder := must(os.MkdirTemp("", "reclaim-example-*"))
	atExit = append(atExit, func() { _ = os.RemoveAll(folder) })
	file := filepath.Join(folder, "channels.toml")
	must(0, os.WriteFile(file, fmt.Appendf(nil, "[[channel]]\nname = \"bank\"\nkind = \"simulator\"\napi_key_env = \"KEY\"\n"+
		"webhook_secret_env = \"SECRET\"\nbase_url = %q\nfirst_query = \"100ms\"\npoll = [\"100ms\"]\n", url), 0o600))
	environment := map[string]string{
		"DATABASE_URL": "postgres://u:p@localhost/d", "RECLAIM_CHANNELS": file, "KEY": "sk_test_example", "SECRET": "whsec_example",
	}
	loaded := must(config.Load(func(name string) string { return environment[name] }))
	return config.ChannelSet(loaded.Channels)
}

// topUp gives an account of the tenant 1,000 credits.
func topUp(tenant string) {
	must(reclaim().TopUp(ctx(), client.Movement{Tenant: tenant, Actor: "shop", Account: "team-7", Key: "first", Amount: 1000}))
}

// video is a job of 40 credits that its activity does.
func video(tenant, id, activity string, promise time.Duration) contract.Job {
	return contract.Job{
		Tenant: tenant, JobID: id, Account: "team-7", Cost: 40, Promise: contract.Duration(promise),
		Work:  contract.Work{Activity: activity, TaskQueue: "gpu", Timeout: contract.Duration(time.Minute)},
		Retry: contract.Retrying{MaxAttempts: 1},
	}
}

// paidOrder is a payment of 100.00 EUR that bought 1,000 credits.
func paidOrder(tenant string) {
	payment := "pi_" + tenant
	must(0, exampleStack().payments.AddPayment(simulator.Payment{Intent: payment, Amount: 10_000, Currency: "eur"}))
	must(reclaim().AddOrder(ctx(), contract.Order{
		Tenant: tenant, OrderID: "order-1", Account: "team-7", Channel: "bank", Payment: payment, Currency: "EUR", Paid: 10_000,
		Credits: 1000, Actor: "shop", Key: "order-1",
	}))
}
