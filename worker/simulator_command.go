package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/worker/devstack"
)

func simulatorCommand() *cobra.Command {
	options := simulator.Options{
		Addr: "127.0.0.1:12111", APIKey: os.Getenv(devstack.SimulatorAPIKey), WebhookSecret: os.Getenv(devstack.SimulatorWebhookSecret),
	}
	command := &cobra.Command{
		Use:   "simulator",
		Short: "Run a payment channel that moves no real money, until SIGTERM",
		Long: "Run a payment channel that moves no real money, until SIGTERM. It speaks as much of Stripe's API as refunds " +
			"need, misbehaves as it is told under /simulator, and keeps a book of what it moved, in memory only. " + devstack.SimulatorAPIKey + " (else " +
			"sk_test_simulator) is the key that it takes, " + devstack.SimulatorWebhookSecret + " (else whsec_simulator) what it signs " +
			"webhooks with.\n\n" +
			simulator.Help(),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			channel, err := simulator.Start(options)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "a simulated payment channel listens on %s; what it can be told: GET %[1]s/simulator\n",
				channel.URL())
			<-cmd.Context().Done()
			return channel.Close()
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Addr, "listen", options.Addr, "host:port to listen on")
	flags.StringVar(&options.WebhookURL, "notices", "", "where its webhooks go (default: nowhere)")
	flags.DurationVar(&options.Latency, "latency", 0, "how long every answer takes")
	return command
}
