package webui_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/worker/webui"
)

// TestSupportFindsCausesAndDecidesInTheWebUI tries the Web UI as support uses it: each story's cause is found in at most two
// clicks from a view, and what is open is resolved by what its page says.
func TestSupportFindsCausesAndDecidesInTheWebUI(t *testing.T) {
	if os.Getenv("RECLAIM_FAULTS") == "" {
		t.Skip("runs a browser against the whole stack for a minute: run it with `make test-faults` (RECLAIM_FAULTS=1)")
	}
	path := chromium(t)
	s := startStage(t)
	browser := startBrowser(t, path)
	stories := s.stories()

	t.Run("views list what they say", func(t *testing.T) {
		b := browser.in(t)
		views, err := s.Views(b.ctx)
		require.NoError(t, err)
		// By the list an hour from now, the refund is an hour old.
		for _, v := range webui.Views(time.Now().Add(time.Hour)) {
			if v.Name == "Refunds unconfirmed for an hour" {
				views = append(views, webui.View{Name: "An hour later", Query: v.Query})
			}
		}
		views = append(views, webui.OfOrder(tenant, "order-reversed"))
		for _, v := range views {
			b.open(s.UI().Open(v))
			for _, id := range listed(v.Name, stories) {
				b.sees(id)
			}
			if v.Name == "Refunds unconfirmed for an hour" {
				b.sees("No Results")
			}
			assert.NotContains(t, b.text(), "There is an error", v.Name)
		}
	})
	t.Run("a saved view", func(t *testing.T) {
		b := browser.in(t)
		for _, v := range webui.Views(time.Now())[:2] {
			b.open(s.UI().Keep(v))
			b.sees("Custom Views", v.Name)
		}
		b.open(s.UI().Runs())
		b.click("button", "Needs a person")
		b.sees("ReclaimAttention IS NOT", "job/acme/"+deadJob)
		b.eventually("only what needs a person", func() bool { _, other := b.find("a", "job/acme/"+lateJob); return !other })
		b.picture("needs-a-person")
	})
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			b := browser.in(t)
			s.t = t
			b.open(s.UI().Open(story.view))
			b.click("td a", story.workflowID)
			b.sees(story.first...)
			if story.name == "late" {
				b.picture("late-success-history")
			}
			b.click("[data-testid=user-metadata-tab]", "")
			b.sees(story.second...)
			assert.LessOrEqual(t, b.clicks, 2)
			if story.picture != "" {
				b.picture(story.picture)
			}
			if story.resolve != nil {
				story.resolve(b)
			}
		})
	}
	s.t = t
	t.Run("nothing is left open", func(t *testing.T) {
		b := browser.in(t)
		b.eventually("an empty view", func() bool {
			b.open(s.UI().Open(webui.Views(time.Now())[0]))
			b.sees("Custom Views")
			b.eventually("the view's answer", func() bool { _, row := b.find("td a", ""); return row || strings.Contains(b.text(), "No Results") })
			return strings.Contains(b.text(), "No Results")
		})
		issues, err := s.client.Issues(s.ctx(), tenant, false)
		require.NoError(t, err)
		assert.Empty(t, issues)
		report, err := s.client.Audit(s.ctx(), tenant)
		require.NoError(t, err)
		assert.True(t, report.Sound && report.Runs.Checked && report.Runs.Count == 0, "%+v", report)
	})
}

// listed are the stories' workflow ids that the view of this name must list.
func listed(view string, stories []story) (ids []string) {
	for _, story := range stories {
		switch {
		case story.view.Name == view, view == "An hour later" && story.name == "unconfirmed",
			view == "Order order-reversed" && story.name == "reversed":
			ids = append(ids, story.workflowID)
		}
	}
	return ids
}

// dialog is one of the Web UI's forms for messages: what opens it, and where its message's name is chosen.
type dialog struct{ menuItem, names string }

var (
	signalDialog = dialog{"[data-testid=signal-button]", "signal-select-select"}
	updateDialog = dialog{"[data-testid=update-button]", "update-select-select"}
)

// send fills the form in on the run's page, takes its picture if it has a name, and submits it.
func (b *browser) send(form dialog, payload, picture string) {
	b.t.Helper()
	b.click("[aria-controls=workflow-actions]", "More Actions")
	b.click(form.menuItem, "")
	b.click("dialog[open] [aria-controls="+form.names+"]", "")
	b.click("dialog[open] [role=option]", "resolve")
	b.click("dialog[open] .cm-content", "")
	b.paste(payload)
	b.sees(`"action": "`)
	if picture != "" {
		b.picture(picture)
	}
	b.click("dialog[open] [data-testid=confirm-modal-button]", "Submit")
}

// payloads finds the messages that a page shows, ready to be pasted.
var payloads = regexp.MustCompile(`\{\s*"id":[^{}]*\}`)

// filledIn gives the page's own message for an action, with what only a person knows filled in.
func (b *browser) filledIn(action string, known map[string]any) string {
	b.t.Helper()
	for _, shown := range payloads.FindAllString(b.text(), -1) {
		var message map[string]any
		require.NoError(b.t, json.Unmarshal([]byte(shown), &message), shown)
		if message["action"] != action {
			continue
		}
		for field, value := range known {
			require.Contains(b.t, message, field, "the page's message has no place for it")
			message[field] = value
		}
		// In the form's own layout: it lays out what it holds when one leaves it, and its button moves away from under the click.
		filled, err := json.MarshalIndent(message, "", "  ")
		require.NoError(b.t, err)
		return string(filled)
	}
	b.t.Fatalf("the page shows no message to %s:\n%s", action, b.text())
	return ""
}
