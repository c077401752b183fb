package contract

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// RefundFacts is what is known of a refund, from which its status is told: by its run and, from the rows alone, by whoever
// reads them. Times are Postgres'; a zero one is not known.
type RefundFacts struct {
	State RefundState
	// Since is when this became known.
	Since      time.Time
	Amount     int64
	Currency   string
	Credits    int64
	Channel    string
	ChannelRef string
	// Sends is how often sending began, the first time at FirstSent.
	Sends     int
	FirstSent time.Time
	// LastOutcome and LastCode are those of the newest observation.
	LastOutcome, LastCode string
	NextLook, LookUntil   time.Time
	// Schedule says in words when the channel is asked, empty where that is not known.
	Schedule string
	// ByPerson is true where a person's word ended it, and the channel itself has not said the same.
	ByPerson bool
	// Sending is true while the refund may be further than its row: an attempt to send it is under way.
	Sending bool
	// ResendDue is true while a person's resend waits to be carried out.
	ResendDue bool
	// GaveUp is true where nothing goes on by itself and a person decides.
	GaveUp bool
	// NeedsReview is true where a person must look, OpenIssues how many issues say why, and ClosedIssues how many a person has
	// closed.
	NeedsReview              bool
	OpenIssues, ClosedIssues int
}

// Status tells where the refund stands.
func (f RefundFacts) Status() RefundStatus {
	status := RefundStatus{
		State: f.State, Since: f.Since, NeedsReview: f.NeedsReview || f.GaveUp && f.State.Open(), Actions: f.State.Actions(),
		Amount: f.Amount, Currency: f.Currency, Credits: f.Credits, ChannelRef: f.ChannelRef,
	}
	status.DidItHappen, status.Known = f.inWords()
	switch {
	case f.State.Open() || f.State == "" || f.State == RefundReversed:
	case f.OpenIssues > 0:
		status.DidItHappen += " An open issue disputes that."
	case f.ClosedIssues > 0:
		status.DidItHappen += " A person has closed an issue about it, and said why: their word may be another."
	}
	asked := ""
	if f.Schedule != "" {
		asked = "; it is asked " + f.Schedule
	}
	switch {
	case f.State == "":
		status.WaitsFor, status.Then = "its row", "it is sent"
	case !f.State.Open():
		status.WaitsFor, status.Then = "nothing", "nothing more: this is final"
		if f.State == RefundSucceeded {
			status.Then = "nothing more, unless the bank takes it back"
		}
	case f.GaveUp:
		status.WaitsFor = "a person's decision: resolve with " + inWords(status.Actions)
		status.Then = "what the person decides; nothing happens by itself, but a report of the channel still counts"
	case f.State == RefundAccepted:
		status.WaitsFor, status.Then = "being sent", "the channel is asked until it has confirmed what became of it"
	default:
		status.WaitsFor = "the channel's confirmation" + asked
		if f.ResendDue {
			status.WaitsFor = "its number being sent again, as a person decided"
		}
		status.NextLook, status.LookUntil = f.NextLook, f.LookUntil
		status.Then = "a person is asked, unless the channel has confirmed by then"
	}
	switch {
	case f.OpenIssues > 0:
		if !f.State.Open() {
			status.WaitsFor = "nothing by itself"
		}
		status.WaitsFor += "; and a person must look at its open issues"
	case f.NeedsReview && f.State.Open() && !f.GaveUp:
		status.WaitsFor += fmt.Sprintf("; and a person must look why it does not go on: whether the worker's configuration has "+
			"channel %s for this tenant, and at the last failure of its run's FollowRefund", f.Channel)
	}
	return status
}

// inWords says whether the money went back, and how that is known.
func (f RefundFacts) inWords() (happened, known string) {
	reference, last := "The channel's reference is "+f.ChannelRef+".", "Last: "+OutcomeInWords(f.LastOutcome, f.LastCode)+"."
	creditsBack := ""
	if f.Credits > 0 {
		creditsBack = " The credits are back."
	}
	switch f.State {
	case RefundAccepted:
		if f.Sending {
			return "Not as far as is known: it is accepted here and on its way to the channel.",
				"The channel has not answered yet."
		}
		return "No: it is accepted here and not sent yet.", "Nothing was sent to the channel."
	case RefundUnknown:
		times := "once"
		if f.Sends > 1 {
			times = fmt.Sprintf("%d times, first", f.Sends)
		}
		return "Unknown: it was sent and not acknowledged, so the money may or may not go back.", fmt.Sprintf(
			"Sent %s at %s; since then: %s.", times, f.FirstSent.Format(time.RFC3339), OutcomeInWords(f.LastOutcome, f.LastCode))
	case RefundPending:
		return "Not yet: the channel has taken it on.", reference + " " + last
	case RefundSucceeded:
		if f.ByPerson {
			return "Yes, as a person settled it on evidence: the channel itself has not confirmed it.", reference
		}
		return "Yes: the channel confirmed it.", reference
	case RefundFailed:
		if f.ByPerson {
			return "No, as a person released it on evidence: the channel itself has not said so." + creditsBack, last
		}
		return "No: the channel confirmed that no money moved and none will." + creditsBack, last
	case RefundCanceled:
		return "No: it was withdrawn before it was sent." + creditsBack, "Nothing was sent to the channel."
	case RefundReversed:
		if f.LastCode != "" {
			reference += " The channel calls it " + f.LastCode + " now."
		}
		return "It did, and the bank took it back later." + creditsBack, reference
	case "":
		return "Unknown: the refund has not been read yet.", "Nothing yet."
	default:
		return "Unknown: the refund is in a state that this program does not know.", "Its state is " + string(f.State) + "."
	}
}

// InWholeUnits writes an amount of smallest units with the currency's decimals, such as 5.00 EUR.
func InWholeUnits(amount int64, decimals int, currency string) string {
	return Decimal(amount, decimals) + " " + strings.ToUpper(currency)
}

// Decimal writes an amount of smallest units in whole ones, with so many decimals.
func Decimal(amount int64, decimals int) string {
	digits, negative := strings.CutPrefix(strconv.FormatInt(amount, 10), "-")
	if missing := decimals + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	if decimals > 0 {
		digits = digits[:len(digits)-decimals] + "." + digits[len(digits)-decimals:]
	}
	if negative {
		digits = "-" + digits
	}
	return digits
}

// OutcomeInWords says what an observation of a refund told.
func OutcomeInWords(outcome, code string) string {
	words, known := map[string]string{
		"accepted": "it was accepted", "sending": "no answer came yet", "canceled": "it was withdrawn",
		"pending": "the channel has taken it on", "succeeded": "the money went back",
		"failed": "no money moved and none will", "not_found": "the channel knows no such refund",
		"unknown": "no usable answer came",
	}[outcome]
	if !known {
		words = outcome
	}
	if code != "" {
		words += " (" + code + ")"
	}
	return words
}

// inWords lists what a person can choose from.
func inWords[T ~string](choices []T) string {
	words := ""
	for i, choice := range choices {
		switch {
		case i > 0 && i == len(choices)-1:
			words += " or "
		case i > 0:
			words += ", "
		}
		words += string(choice)
	}
	return words
}
