package client

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	// A statement's days must not depend on what the machine has installed.
	_ "time/tzdata"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Period is the half-open span [From, To): an entry of the instant From is in it, one of the instant To is not. Both are
// whole microseconds, as Postgres keeps time.
type Period struct {
	// From and To are its ends. A zero From means since the account's first entry, a zero To up to now.
	From, To time.Time
	// Zone is the time zone that instants are shown in; nil means UTC.
	Zone *time.Location
}

// ParsePeriod reads a period as people write it. from and to are each an RFC 3339 instant, a date such as 2026-11-01, or
// empty for an open end. zone is an IANA name such as Europe/Berlin; empty means UTC.
//
// A date is the first instant at which the zone's clocks show it, or a later date. So where clocks skip midnight, the day
// begins with the first minute that they show; where midnight comes twice, with the first of them; and a date that a zone
// skipped altogether begins with the next one. Instants finer than a microsecond count as the next whole one, which leaves
// the same entries before them.
//
// Errors: BadInput, naming from, to or timeZone, each that is wrong. A period must not be empty: to is after from.
func ParsePeriod(from, to, zone string) (Period, error) {
	location, err := parseZone(zone)
	if err != nil {
		// Dates mean nothing without their zone, but what is no instant and no date is wrong in every zone.
		_, fromErr := ParseEdge("from", from, time.UTC)
		_, toErr := ParseEdge("to", to, time.UTC)
		return Period{}, together(fromErr, toErr, err)
	}
	period := Period{Zone: location}
	var fromErr, toErr error
	period.From, fromErr = ParseEdge("from", from, location)
	period.To, toErr = ParseEdge("to", to, location)
	if err := together(fromErr, toErr); err != nil {
		return Period{}, err
	}
	if err := period.check(); err != nil {
		return Period{}, err
	}
	return period, nil
}

// check holds the rules that a period must keep whoever made it.
func (p Period) check() error {
	if !p.From.IsZero() && !p.To.IsZero() && !p.From.Before(p.To) {
		return contract.BadField("to", "must be after from: a period ends before its to, so that one day is from=2026-11-01 to=2026-11-02")
	}
	return together(checkYear("from", p.From), checkYear("to", p.To))
}

// checkYear keeps instants to years that are written with four digits in every time zone. The zero Time, which is in none of
// them, is an open end.
func checkYear(field string, at time.Time) error {
	if year := at.UTC().Year(); !at.IsZero() && (year < 1900 || year > 9998) {
		return contract.BadField(field, "must be in the years 1900 to 9998")
	}
	return nil
}

var zoneName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`)

// parseZone finds a time zone by its IANA name. Names that mean another zone on another machine are none.
func parseZone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	known := len(name) <= 100 && zoneName.MatchString(name)
	switch strings.ToLower(name) {
	case "local", "localtime", "posixrules":
		known = false
	}
	if known {
		if location, err := time.LoadLocation(name); err == nil {
			return location, nil
		}
	}
	return nil, contract.BadField("timeZone", fmt.Sprintf("must be an IANA time zone such as Europe/Berlin or UTC, not %q", contract.Clip(name, 60)))
}

var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// ParseEdge reads one end of a period as ParsePeriod does, zero where it is open. Errors: BadInput, naming the field.
func ParseEdge(field, text string, zone *time.Location) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	var at time.Time
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		at = startOfDay(day, zone)
	} else if !rfc3339.MatchString(text) || at.UnmarshalText([]byte(text)) != nil {
		rule := fmt.Sprintf("must be an RFC 3339 instant such as 2026-11-01T09:30:00+01:00, or a date such as 2026-11-01, not %q",
			contract.Clip(text, 60))
		if strings.Contains(text, " ") {
			rule += " (in a URL, + is written %2B)"
		}
		return time.Time{}, contract.BadField(field, rule)
	}
	if at.IsZero() {
		// It is written out, and no open end.
		at = at.Add(1)
	}
	if err := checkYear(field, at); err != nil {
		return time.Time{}, err
	}
	return wholeMicros(at).In(zone), nil
}

// wholeMicros returns the first whole microsecond that is not before the instant: Postgres would take the last one.
func wholeMicros(at time.Time) time.Time {
	if whole := at.Truncate(time.Microsecond); whole.Before(at) {
		return whole.Add(time.Microsecond)
	}
	return at
}

// startOfDay returns the first instant at which clocks in the zone show the date, or a later one. day is the date's midnight
// in UTC.
func startOfDay(day time.Time, zone *time.Location) time.Time {
	// No zone was ever 36 hours from UTC: at this instant the date has begun nowhere.
	at := day.Add(-36 * time.Hour).In(zone)
	for {
		_, offset := at.Zone()
		midnight := day.Add(-time.Duration(offset) * time.Second)
		_, end := at.ZoneBounds()
		switch {
		case midnight.Before(at):
			// The clocks were put forward over midnight just now.
			return at
		case end.IsZero() || midnight.Before(end):
			return midnight.In(zone)
		}
		at = end.In(zone)
	}
}

// MarshalJSON writes both ends in the period's time zone, null where one is open.
func (p Period) MarshalJSON() ([]byte, error) {
	edge := func(at time.Time) *string {
		if at.IsZero() {
			return nil
		}
		text := p.show(at)
		return &text
	}
	return json.Marshal(struct {
		From     *string `json:"from"`
		To       *string `json:"to"`
		TimeZone string  `json:"timeZone"`
	}{edge(p.From), edge(p.To), p.zone().String()})
}

func (p Period) zone() *time.Location {
	if p.Zone == nil {
		return time.UTC
	}
	return p.Zone
}

// show writes an instant in the period's time zone as RFC 3339, which has no seconds in an offset: before there were
// standard times, it is written in UTC.
func (p Period) show(at time.Time) string {
	at = at.In(p.zone())
	if _, offset := at.Zone(); offset%60 != 0 {
		at = at.UTC()
	}
	return at.Format(time.RFC3339Nano)
}
