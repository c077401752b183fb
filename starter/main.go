// Command starter asks Reclaim for things from the command line: move credits, start jobs, send money back, follow both,
// decide stuck ones, and audit the ledger.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/starter/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(status)
}

// program is how the commands that are shown to people begin.
var program = calledAs(os.Args[0])

// calledAs tells how this program was called. What go built for one run is gone after it.
func calledAs(path string) string {
	if strings.Contains(path, "go-build") || strings.HasSuffix(path, ".test") {
		return "go run ./starter"
	}
	return path
}

// patience is how long a verb waits for its answer unless --timeout says otherwise.
const patience = 30 * time.Second

// run does what the arguments ask for and returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv, output: outputTable, timeout: patience}
	defer a.close()
	root := a.command()
	// Given nil, cobra would read the process' own arguments.
	root.SetArgs(append([]string{}, args...))
	used, err := root.ExecuteContextC(ctx)
	return a.report(used, err)
}

// app is one call of the program.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string

	tenant, actor string
	output        outputFormat
	timeout       time.Duration

	// began is set once a verb's own code runs: what fails before that is the command line.
	began bool
	store *schema.Store
	ends  []func()
}

func (a *app) command() *cobra.Command {
	root := group("starter", "Ask Reclaim for things: move credits, start and follow jobs, refund orders, audit the ledger",
		a.accountCommand(), a.jobCommand(), a.orderCommand(), a.refundCommand(), a.issueCommand(), a.auditCommand(), a.reconcileCommand(),
		a.keyCommand(), a.serveCommand(), a.codecCommand(), a.benchCommand())
	root.Long = root.Short + `.

DATABASE_URL names the database; TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and the other variables of the Temporal SDK name
the Temporal server; RECLAIM_TASK_QUEUE is where Reclaim's worker polls; RECLAIM_CODEC_KEYS is the file with the keys that the
worker encrypts with, if it does.

Exit status: 0 done; 1 refused or broken (with --output json, the JSON on stdout says why: code, message, retry);
2 wrong usage: a mistake in the command line or the environment.`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetIn(a.stdin)
	flags := root.PersistentFlags()
	flags.StringVar(&a.tenant, "tenant", "", "tenant (default $RECLAIM_TENANT)")
	flags.StringVar(&a.actor, "actor", "", "who asks (default $RECLAIM_ACTOR)")
	flags.Var(&a.output, "output", "table or json")
	flags.DurationVar(&a.timeout, "timeout", patience,
		"how long to wait for an answer; statement, audit and --wait end take their time unless it is given")
	return root
}

// group is a command that only leads to others.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs}
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s needs a verb", cmd.CommandPath())
		}
		return usagef("%s has no verb %q", cmd.CommandPath(), args[0])
	}
	command.AddCommand(verbs...)
	return command
}

// verb makes a body what cobra runs, bounded by --timeout.
func (a *app) verb(body func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
		defer cancel()
		return a.begin(ctx, args, body)
	}
}

// patientVerb is verb for what takes as long as it needs: only a --timeout that was given bounds it.
func (a *app) patientVerb(body func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("timeout") {
			return a.verb(body)(cmd, args)
		}
		return a.begin(cmd.Context(), args, func(ctx context.Context, c *client.Client, args []string) error {
			// A database that does not answer at all is told within the usual time.
			reach, cancel := context.WithTimeout(ctx, a.timeout)
			defer cancel()
			if err := a.store.Pool.Ping(reach); err != nil {
				return unreachable("reach Postgres", err)
			}
			return body(ctx, c, args)
		})
	}
}

func (a *app) begin(ctx context.Context, args []string, body func(context.Context, *client.Client, []string) error) error {
	a.began = true
	if a.timeout <= 0 {
		return usagef("--timeout must be above 0, not %s", a.timeout)
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	return a.explain(ctx, body(ctx, c, args))
}

// needTenant returns the tenant that was given, or says how to give one.
func (a *app) needTenant() (string, error) {
	if a.tenant == "" {
		return "", usagef("no tenant is given: add --tenant NAME or set RECLAIM_TENANT")
	}
	return a.tenant, nil
}

// needTenantAndActor is needTenant for what has an operation key, which is unique to one actor.
func (a *app) needTenantAndActor() (tenant, actor string, err error) {
	if tenant, err = a.needTenant(); err != nil {
		return "", "", err
	}
	if a.actor == "" {
		return "", "", usagef("no actor is given, and the key is unique to one: add --actor NAME or set RECLAIM_ACTOR")
	}
	return tenant, a.actor, nil
}

// operatorUsage describes the flag that needOperator reads.
const operatorUsage = "who decided it (default --actor or $RECLAIM_ACTOR)"

// needOperator returns who decides: whom the flag names, or who asks. A shell hands an empty name on where a variable of
// its own is not set.
func (a *app) needOperator(given string) (string, error) {
	if strings.TrimSpace(given) != "" {
		return given, nil
	}
	if a.actor == "" {
		return "", usagef("no operator is given: add --operator NAME, who decided it, or set RECLAIM_ACTOR")
	}
	return a.actor, nil
}

func (a *app) close() {
	for _, end := range a.ends {
		end()
	}
}
