package webui_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/worker/webui"
)

// may is a moment for the links of the runbook.
var may = time.Date(2026, 5, 3, 10, 30, 0, 0, time.UTC)

func TestTheRunbooksViewsAreTheseViews(t *testing.T) {
	runbook, err := os.ReadFile(filepath.Join("..", "..", "docs", "runbook.md"))
	require.NoError(t, err)
	ui := webui.UI{Address: "http://localhost:8233", Namespace: "default"}
	table := "| view | what it shows | query |\n|---|---|---|\n"
	for _, v := range append(webui.Views(may), webui.OfAccount("acme", "team-7"), webui.OfOrder("acme", "order-first")) {
		table += fmt.Sprintf("| [%s](%s) | %s | `%s` |\n", v.Name, ui.Open(v), v.Shows, v.Query)
	}
	assert.Contains(t, string(runbook), table, "docs/runbook.md must have this table")
}

func TestAViewsAddressHoldsItsQueryAndName(t *testing.T) {
	ui := webui.UI{Address: "http://ui:8080/", Namespace: "my space"}
	for _, v := range webui.Views(may) {
		kept, err := url.Parse(ui.Keep(v))
		require.NoError(t, err)
		assert.Equal(t, "/namespaces/my space/workflows", kept.Path)
		assert.Equal(t, url.Values{"query": {v.Query}, "savedQuery": {v.Name}}, kept.Query())
		assert.Equal(t, strings.Contains(v.Query, `"2026-05-03T`), v.Dated, v.Name)
	}
	assert.Equal(t, "http://ui:8080/namespaces/my%20space/workflows/job%2Facme%2Frender-1", ui.Run("job/acme/render-1"))
}
