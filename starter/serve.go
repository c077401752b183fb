package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/api"
)

func (a *app) serveCommand() *cobra.Command {
	limits := api.DefaultLimits()
	command := &cobra.Command{
		Use:   "serve",
		Short: "Answer HTTP requests that carry an API key, until SIGTERM",
		Long: `Answer HTTP requests that carry an API key, until SIGTERM. GET /docs describes them; starter key create makes keys.

Beside the variables that every verb reads: RECLAIM_LISTEN is where to listen (default ` + listenDefault + `), RECLAIM_CONNECTIONS
how many database connections to hold (default ` + strconv.Itoa(connectionsDefault) + `), and RECLAIM_NOTICES_URL the address of a worker's own
RECLAIM_LISTEN, to which payment channels' notices are handed on.

/healthz, /readyz, /metrics and /docs ask for no key: let only /v1/ through to the outside.`,
		Args: nothing,
	}
	command.Flags().Float64Var(&limits.Rate, "rate", limits.Rate, "how many requests a second one key may make")
	command.Flags().IntVar(&limits.Burst, "burst", limits.Burst, "how many requests at once one key may make beyond its rate")
	command.Flags().IntVar(&limits.AtOnce, "at-once", limits.AtOnce, "how many requests are in progress at most; one tenant may have half")
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		a.began = true
		e, environmentErr := readEnvironment(a.getenv)
		o := api.RunOptions{
			DatabaseURL: e.databaseURL, Temporal: e.temporal, TaskQueue: e.taskQueue, Limits: limits,
			Listen: cmp.Or(a.getenv("RECLAIM_LISTEN"), listenDefault), Notices: a.getenv("RECLAIM_NOTICES_URL"),
		}
		mistakes := []error{environmentErr}
		if _, _, err := net.SplitHostPort(o.Listen); err != nil {
			mistakes = append(mistakes, fmt.Errorf("RECLAIM_LISTEN must be host:port, such as :8080, not %q", o.Listen))
		}
		if o.Notices != "" {
			_, err := api.ParseNoticesURL(o.Notices)
			mistakes = append(mistakes, err)
		}
		var err error
		if o.Connections, err = connections(a.getenv("RECLAIM_CONNECTIONS")); err != nil {
			mistakes = append(mistakes, err)
		}
		if limits.Rate <= 0 || limits.Burst < 1 || limits.AtOnce < 1 {
			mistakes = append(mistakes, errors.New("--rate, --burst and --at-once must be above 0"))
		}
		if err := errors.Join(mistakes...); err != nil {
			return usagef("the environment has mistakes:\n%w", err)
		}
		logger, stop := api.NewLogger()
		defer func() { _ = stop() }()
		o.Logger = logger
		return api.Run(cmd.Context(), o)
	}
	return command
}

const (
	listenDefault      = "127.0.0.1:8080"
	connectionsDefault = 16
)

func connections(text string) (int, error) {
	if text == "" {
		return connectionsDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return 0, fmt.Errorf("RECLAIM_CONNECTIONS must be a whole number from 1 to 1000, not %q", text)
	}
	return n, nil
}
