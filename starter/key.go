package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (a *app) keyCommand() *cobra.Command {
	return group("key", "Make and revoke the API keys of programs that ask over HTTP", a.keyCreateCommand(), a.keyListCommand(),
		a.keyRevokeCommand())
}

func (a *app) keyCreateCommand() *cobra.Command {
	var names []string
	command := &cobra.Command{
		Use:   "create --scopes SCOPE,…",
		Short: "Make a key by which requests act as --actor within --tenant; its secret is shown once",
		Long: "Make a key by which requests act as --actor within --tenant, with the scopes and nothing else. Its secret is shown " +
			"now and never again: only a hash of it is kept. Scopes: " + inWords(contract.Scopes()) + ". The scope resolve takes " +
			"decisions as a person does.",
		Args: nothing,
		RunE: a.verb(func(ctx context.Context, c *client.Client, _ []string) error {
			tenant, actor, err := a.needTenantAndActor()
			if err != nil {
				return err
			}
			scopes := make([]contract.Scope, len(names))
			for i, name := range names {
				scopes[i] = contract.Scope(strings.TrimSpace(name))
			}
			key, err := c.CreateKey(ctx, tenant, actor, scopes)
			if err != nil {
				return err
			}
			return a.show(key, func(w io.Writer) {
				line(w, "Secret", key.Secret)
				line(w, "", "keep it now: it is shown only once")
				keyTable(w, key.Key)
			})
		}),
	}
	command.Flags().StringSliceVar(&names, "scopes", nil, "what the key may do, separated by commas")
	mustHave(command, "scopes")
	return command
}

func inWords[T ~string](all []T) string {
	words := make([]string, len(all))
	for i, one := range all {
		words[i] = string(one)
	}
	return strings.Join(words, ", ")
}

func keyTable(w io.Writer, key client.Key) {
	line(w, "Key", key.KeyID)
	line(w, "Tenant", key.Tenant)
	line(w, "Actor", key.Actor)
	line(w, "Scopes", inWords(key.Scopes))
	line(w, "Created", clock(key.CreatedAt))
	if !key.RevokedAt.IsZero() {
		line(w, "Revoked", clock(key.RevokedAt))
	}
}

func (a *app) keyListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List a tenant's keys, the newest first, revoked ones too", Args: nothing,
		RunE: a.verb(func(ctx context.Context, c *client.Client, _ []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			keys, err := c.Keys(ctx, tenant)
			if err != nil {
				return err
			}
			result := struct {
				Tenant string       `json:"tenant"`
				Keys   []client.Key `json:"keys"`
			}{tenant, keys}
			return a.show(result, func(w io.Writer) {
				if len(keys) == 0 {
					line(w, "No keys")
				}
				for i, key := range keys {
					if i > 0 {
						line(w)
					}
					keyTable(w, key)
				}
			})
		}),
	}
}

func (a *app) keyRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke KEY", Short: "Take a key's rights away, at once and for good", Args: exactly("KEY"),
		Long: "Take a key's rights away, at once and for good: requests that wait for something get no answer any more either. " +
			"KEY is its id, the part of it after rk_ up to the next _; key list shows it.",
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			at, err := c.RevokeKey(ctx, tenant, args[0])
			if err != nil {
				return err
			}
			result := struct {
				KeyID     string    `json:"keyId"`
				RevokedAt time.Time `json:"revokedAt"`
			}{args[0], at}
			return a.show(result, func(w io.Writer) { line(w, "Revoked", fmt.Sprintf("%s at %s", args[0], clock(at))) })
		}),
	}
}
