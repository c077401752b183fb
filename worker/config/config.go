// Package config reads what a Reclaim process is told by its environment, and reports every mistake at once.
package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/workflows/contract"
	"github.com/reclaimhq/reclaim/workflows/contract/codec"
)

// Config is the environment of one process.
type Config struct {
	// DatabaseURL is the application's login, MigrateURL the owner's (DATABASE_URL where RECLAIM_MIGRATE_URL is unset).
	DatabaseURL string
	MigrateURL  string
	// TaskQueue is where workflows and their activities are polled.
	TaskQueue string
	// Connections bounds the connection pool and, with it, the money calls that run at once.
	Connections int
	// Listen is the address on which payment channels' notices are taken, empty for none.
	Listen string
	// AuditEvery is the pause between two audits of all tenants by the worker, 0 for none.
	AuditEvery time.Duration
	// AuditWholeEvery is after how long such an audit proves the whole ledger again, not only what is new.
	AuditWholeEvery time.Duration
	// SealEvery is the pause between two looks for entries to seal, 0 for none.
	SealEvery time.Duration
	// Channels are the payment channels of the file that RECLAIM_CHANNELS names, none where it is unset.
	Channels []ChannelConfig
	// DeploymentName and BuildID name the version that this worker is of its deployment; both are empty where the worker is
	// not versioned.
	DeploymentName, BuildID string
	// Temporal is read as the official SDKs read it: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY,
	// TEMPORAL_TLS_… and a configuration file with profiles. It encrypts payloads where RECLAIM_CODEC_KEYS is set.
	Temporal client.Options
}

// Load reads the environment through getenv. The error joins every mistake in it, each naming its variable. Temporal's
// variables are always read from the process' own environment, by the SDK.
func Load(getenv func(string) string) (Config, error) {
	c := Config{
		DatabaseURL: getenv("DATABASE_URL"),
		MigrateURL:  getenv("RECLAIM_MIGRATE_URL"),
		TaskQueue:   getenv("RECLAIM_TASK_QUEUE"),
		Connections: 16, AuditWholeEvery: 24 * time.Hour, SealEvery: 5 * time.Second,
	}
	var mistakes []error
	mistake := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if c.DatabaseURL == "" {
		mistake("DATABASE_URL is missing: set it to postgres://user:password@host:port/database")
	}
	if c.MigrateURL == "" {
		c.MigrateURL = c.DatabaseURL
	}
	for _, database := range []struct{ name, url string }{
		{"DATABASE_URL", c.DatabaseURL}, {"RECLAIM_MIGRATE_URL", getenv("RECLAIM_MIGRATE_URL")},
	} {
		if err := schema.CheckURL(database.url); err != nil {
			mistake("%s %w", database.name, err)
		}
	}
	if c.TaskQueue == "" {
		c.TaskQueue = contract.TaskQueue
	} else if len(c.TaskQueue) > 200 || strings.HasPrefix(c.TaskQueue, "/_sys/") {
		mistake("RECLAIM_TASK_QUEUE must have at most 200 characters and not begin with /_sys/")
	}
	if text := getenv("RECLAIM_CONNECTIONS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 4 || n > 1000 {
			mistake("RECLAIM_CONNECTIONS must be a whole number from 4 to 1000, not %q", text)
		}
		c.Connections = n
	}
	c.Listen = getenv("RECLAIM_LISTEN")
	if _, _, err := net.SplitHostPort(c.Listen); c.Listen != "" && err != nil {
		mistake("RECLAIM_LISTEN must be host:port, such as 127.0.0.1:8080, not %q", c.Listen)
	}
	// The names are those that Temporal's worker controller for Kubernetes sets.
	c.DeploymentName, c.BuildID = getenv("TEMPORAL_DEPLOYMENT_NAME"), getenv("TEMPORAL_WORKER_BUILD_ID")
	if (c.DeploymentName == "") != (c.BuildID == "") {
		mistake("TEMPORAL_DEPLOYMENT_NAME and TEMPORAL_WORKER_BUILD_ID go together: set both for a versioned worker, or neither")
	}
	var err error
	if text := getenv("RECLAIM_AUDIT_EVERY"); text != "" {
		if c.AuditEvery, err = time.ParseDuration(text); err != nil || c.AuditEvery < time.Second {
			mistake("RECLAIM_AUDIT_EVERY must be a duration of at least 1s, such as 1h, not %q", text)
		}
	}
	if text := getenv("RECLAIM_AUDIT_WHOLE_EVERY"); text != "" {
		if c.AuditWholeEvery, err = time.ParseDuration(text); err != nil || c.AuditWholeEvery < time.Second {
			mistake("RECLAIM_AUDIT_WHOLE_EVERY must be a duration of at least 1s, such as 24h, not %q", text)
		}
	}
	if text := getenv("RECLAIM_SEAL_EVERY"); text != "" {
		if c.SealEvery, err = time.ParseDuration(text); err != nil || c.SealEvery < time.Second && c.SealEvery != 0 {
			mistake("RECLAIM_SEAL_EVERY must be a duration of at least 1s, such as 5s, or 0 for never, not %q", text)
		}
	}
	if path := getenv("RECLAIM_CHANNELS"); path != "" {
		if c.Channels, err = loadChannels(path, getenv); err != nil {
			mistakes = append(mistakes, err)
		}
	}
	if c.Temporal, err = LoadTemporal(getenv); err != nil {
		mistakes = append(mistakes, err)
	}
	return c, errors.Join(mistakes...)
}

// LoadTemporal reads how to reach Temporal, and the keys that payloads are encrypted with, all that a worker without a
// database needs. The error joins every mistake.
func LoadTemporal(getenv func(string) string) (client.Options, error) {
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		err = fmt.Errorf("the TEMPORAL_… variables or their configuration file cannot be read: %w", err)
	}
	if err := errors.Join(err, codec.ApplyFile(&options, getenv(codec.KeysVariable))); err != nil {
		return options, err
	}
	if options.Namespace == "" {
		options.Namespace = client.DefaultNamespace
	}
	if options.HostPort == "" {
		options.HostPort = client.DefaultHostPort
	}
	// Histories are small: packing them takes more of both sides' processors than it saves of the network.
	options.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{}
	return options, nil
}
