// Package deploy holds what the containers of docker-compose.yml are set up with, so that the local stack and the tests
// run the very same.
package deploy

import (
	"bufio"
	"bytes"
	_ "embed"
	"strings"
)

// The one-shot jobs of the containers, in their order: each is text for sh -c, takes its settings from the environment and
// says there what it needs, and is safe to run again.
var (
	//go:embed postgres/setup-databases.sh
	SetupDatabases string
	//go:embed temporal/setup-schema.sh
	SetupSchema string
	//go:embed temporal/setup-namespace.sh
	SetupNamespace string
)

// DynamicConfig is the Temporal server's file of that name.
//
//go:embed temporal/dynamicconfig.yaml
var DynamicConfig []byte

//go:embed temporal/server.env
var serverSettings []byte

// ServerEnvironment gives the Temporal server's settings as NAME=value, without where its database is.
func ServerEnvironment() []string {
	var settings []string
	for lines := bufio.NewScanner(bytes.NewReader(serverSettings)); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			settings = append(settings, line)
		}
	}
	return settings
}
