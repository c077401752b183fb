package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/worker/webui"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func viewsCommand() *cobra.Command {
	var ui webui.UI
	var tenant, account, order string
	command := &cobra.Command{
		Use:   "views",
		Short: "Print links to the Web UI's views: what needs a person, what was reclaimed today, one account, one order",
		Long: "Print links to the views of Temporal's Web UI that docs/runbook.md tells of, as of now: the Web UI's queries " +
			"know no relative time, so print them anew for a later one.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (tenant == "") != (account == "" && order == "") {
				return fmt.Errorf("--tenant goes with --account, --order or both: %w", errUsage)
			}
			for _, id := range []struct{ flag, value string }{{"--tenant", tenant}, {"--account", account}, {"--order", order}} {
				if id.value == "" {
					continue
				}
				if err := contract.CheckID(id.flag, id.value); err != nil {
					return fmt.Errorf("%w: %w", err, errUsage)
				}
			}
			views := webui.Views(time.Now())
			if account != "" {
				views = append(views, webui.OfAccount(tenant, account))
			}
			if order != "" {
				views = append(views, webui.OfOrder(tenant, order))
			}
			fmt.Fprint(cmd.OutOrStdout(), ui.List(views))
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&ui.Address, "ui", "http://localhost:8233", "the Web UI's address")
	flags.StringVar(&ui.Namespace, "namespace", "default", "the namespace")
	flags.StringVar(&tenant, "tenant", "", "whose account or order")
	flags.StringVar(&account, "account", "", "an account, for its view")
	flags.StringVar(&order, "order", "", "an order, for its view")
	return command
}
