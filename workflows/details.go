package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// details is what the Web UI shows of a run while a worker is there to ask: what happened in order, what the run waits for,
// and what a person can send. It is made anew on replay, so it costs no event, and no running workflow can notice a change
// of it.
type details struct {
	steps []detail
	// earlier is how many steps are no longer shown, and earlierLedger what they moved in sum.
	earlier       int
	earlierLedger int64
}

// detail is one step; ledger is what it moved on the account.
type detail struct {
	at     time.Time
	step   string
	ledger int64
}

// stepTime is how instants are shown, with spaces at which no line ends. The year is on every page of the run.
const stepTime = "2\u00a0Jan\u00a015:04:05"

// shownSteps bounds a page; the timeline has them all.
const shownSteps = 40

// tell adds a step. Texts from outside go through contract.Plain first.
func (d *details) tell(ctx workflow.Context, ledger int64, format string, args ...any) {
	d.tellAt(workflow.Now(ctx), ledger, format, args...)
}

// tellAt adds a step that was made at another time than now.
func (d *details) tellAt(at time.Time, ledger int64, format string, args ...any) {
	if len(d.steps) == shownSteps {
		// The first step stays: it says what was charged, or where the run took up.
		d.earlier++
		d.earlierLedger += d.steps[1].ledger
		d.steps = append(d.steps[:1], d.steps[2:]...)
	}
	d.steps = append(d.steps, detail{at, fmt.Sprintf(format, args...), ledger})
}

// tellRefusal adds that a person's decision was refused.
func (d *details) tellRefusal(ctx workflow.Context, operator, refusal string) {
	if operator == "" {
		operator = "an unnamed operator"
	}
	d.tell(ctx, 0, "a decision of %s was refused: %s", told(operator), told(refusal))
}

// page is what the details are shown with.
type page struct {
	// stands is one sentence, waits what the run waits for, command what tells all of it from the database.
	stands, waits, command string
	// needs says why a person must look, empty where nobody must; send are the decisions to choose from.
	needs string
	send  []choice
}

// choice is a message that a person can send, ready to be pasted. Its fields stand on lines of their own, since the Web UI cuts
// long lines off.
type choice struct {
	does   string
	fields []string
}

// show renders the page as Markdown.
func (d *details) show(ctx workflow.Context, p page) {
	text := fmt.Sprintf("%s\n\n**Waits for:** %s\n\n**From the command line:** `%s`\n\n", p.stands, p.waits, p.command)
	if p.needs != "" {
		text += "**A person is needed:** " + p.needs + "\n\n"
	}
	rows := []string{"| when (UTC) | step | ledger |", "|---|---|---|"}
	for i, step := range d.steps {
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |", step.at.UTC().Format(stepTime), step.step, signed(step.ledger)))
		if i == 0 && d.earlier > 0 {
			rows = append(rows, fmt.Sprintf("| … | %d more, see the timeline | %s |", d.earlier, signed(d.earlierLedger)))
		}
	}
	text += strings.Join(rows, "\n") + "\n"
	if len(p.send) > 0 {
		text += "\n*More Actions*, *Send an Update* (which says at once why it is refused) or *a Signal*: `resolve`, with one of these, " +
			"after filling in what is empty or 0. Then reload the page: the last step says how it went. An id serves once; the page " +
			"has the next one.\n\n"
	}
	for _, option := range p.send {
		text += fmt.Sprintf("- %s\n\n```json\n{\n  %s\n}\n```\n\n", option.does, strings.Join(option.fields, ",\n  "))
	}
	workflow.SetCurrentDetails(ctx, text+contract.BottomOfPage)
}

// decisionID proposes an id for a decision: each needs one of its own, and a page is made anew after each.
func decisionID(ctx workflow.Context) string {
	return "ui-" + workflow.Now(ctx).UTC().Format("20060102-150405")
}

// signed is an amount as a ledger entry shows it, empty for none.
func signed(amount int64) string {
	if amount == 0 {
		return ""
	}
	return fmt.Sprintf("%+d", amount)
}

// told cuts a text from outside down to what a table's cell can hold.
func told(text string) string { return contract.Plain(contract.Clip(text, 300)) }
