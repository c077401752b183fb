package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestAPeriodIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, text, is string }{
		{"", "2026-11-01", "2026-11-01T00:00:00Z"},
		{"UTC", "2026-11-01T09:30:00+01:00", "2026-11-01T08:30:00Z"},
		{"UTC", "2026-11-01T09:30:00.000001Z", "2026-11-01T09:30:00.000001Z"},
		// Between two instants that Postgres can tell apart, the later one: it has the same entries before it.
		{"UTC", "2026-11-01T09:30:00.000000001Z", "2026-11-01T09:30:00.000001Z"},
		{"UTC", "2026-12-31T23:59:59.999999999Z", "2027-01-01T00:00:00Z"},
		{"Europe/Berlin", "2026-11-01", "2026-10-31T23:00:00Z"},
		{"Europe/Berlin", "2026-10-25", "2026-10-24T22:00:00Z"}, // a day of 25 hours
		{"Europe/Berlin", "2026-10-26", "2026-10-25T23:00:00Z"},
		{"Asia/Kathmandu", "2026-01-01", "2025-12-31T18:15:00Z"},
		{"Pacific/Kiritimati", "2026-01-01", "2025-12-31T10:00:00Z"},
		{"Etc/GMT+12", "2026-01-01", "2026-01-01T12:00:00Z"},
		// Clocks went from 23:59:59 to 01:00:00.
		{"America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00Z"},
		// Clocks went from 23:59:59 to 23:00:00 of the same day: the next day begins once, an hour later.
		{"America/Sao_Paulo", "2018-02-18", "2018-02-18T03:00:00Z"},
		// Clocks went from 00:59:59 to 00:00:00: midnight came twice, and the first one counts.
		{"America/Havana", "2025-11-02", "2025-11-02T04:00:00Z"},
		{"America/Havana", "2025-11-03", "2025-11-03T05:00:00Z"},
		// Clocks went from 00:00:59 to 23:01:00 of the day before: the first midnight counts.
		{"America/St_Johns", "2010-11-07", "2010-11-07T02:30:00Z"},
		// Samoa had no 30 December.
		{"Pacific/Apia", "2011-12-29", "2011-12-29T10:00:00Z"},
		{"Pacific/Apia", "2011-12-30", "2011-12-30T10:00:00Z"},
		{"Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z"},
		{"Pacific/Apia", "2012-01-01", "2011-12-31T10:00:00Z"},
	} {
		for _, edge := range []string{"from", "to"} {
			from, to := c.text, ""
			if edge == "to" {
				from, to = "", c.text
			}
			period, err := client.ParsePeriod(from, to, c.zone)
			require.NoError(t, err, "%+v", c)
			got, open := period.From, period.To
			if edge == "to" {
				got, open = period.To, period.From
			}
			assert.Equal(t, c.is, got.UTC().Format(time.RFC3339Nano), "%+v", c)
			assert.True(t, open.IsZero())
		}
	}
	everything, err := client.ParsePeriod("", "", "")
	require.NoError(t, err)
	assert.Equal(t, client.Period{Zone: time.UTC}, everything)
}

func TestAPeriodThatIsWrongIsRefusedByField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to, zone string
		fields         string
		says           string
	}{
		{from: "yesterday", fields: "from", says: `not "yesterday"`},
		{from: "2026-11-01 ", fields: "from"},
		{from: "2026-1-1", fields: "from"},
		{from: "2026-02-30", fields: "from"},
		{from: "2026-11-01T24:00:00Z", fields: "from"},
		{from: "2026-11-01T00:00:60Z", fields: "from"},
		{from: "2026-11-01T00:00Z", fields: "from"},
		{from: "2026-11-01T00:00:00", fields: "from"},
		{from: "2026-11-01T0:00:00Z", fields: "from"},
		{from: "2026-11-01t00:00:00z", fields: "from"},
		{from: "2026-11-01T00:00:00,5Z", fields: "from"},
		{from: "2026-11-01T00:00:00.1234567890Z", fields: "from"},
		{from: "2026-11-01T00:00:00+24:00", fields: "from"},
		{from: "2026-11-01T00:00:00 01:00", fields: "from", says: "%2B"},
		{from: "1767225600", fields: "from"},
		{from: "1899-12-31", fields: "from", says: "1900 to 9998"},
		{from: "0001-01-01T00:00:00Z", fields: "from", says: "1900 to 9998"},
		{to: "0001-01-01T00:00:00Z", fields: "to", says: "1900 to 9998"},
		{to: "9999-01-01", fields: "to"},
		{from: "2026-11-01", to: "2026-11-01", fields: "to", says: "from=2026-11-01 to=2026-11-02"},
		{from: "2026-11-02", to: "2026-11-01", fields: "to"},
		{from: "2011-12-30", to: "2011-12-31", zone: "Pacific/Apia", fields: "to"},
		{from: "2026-11-01T01:00:00+01:00", to: "2026-11-01T00:00:00Z", fields: "to"},
		{zone: "Local", fields: "timeZone"},
		{zone: "local", fields: "timeZone"},
		{zone: "localtime", fields: "timeZone"},
		{zone: "CEST+2", fields: "timeZone"},
		{zone: "+01:00", fields: "timeZone"},
		{zone: "../etc/passwd", fields: "timeZone"},
		{zone: "/etc/localtime", fields: "timeZone"},
		{zone: "Europe/Atlantis", fields: "timeZone", says: `not "Europe/Atlantis"`},
		{zone: "Europe/Berlin\x00", fields: "timeZone"},
		{zone: strings.Repeat("Europe/", 30) + "Berlin", fields: "timeZone"},
		{from: "x", to: "y", zone: "z", fields: "from to timeZone"},
		{from: "x", to: "y", fields: "from to"},
	} {
		period, err := client.ParsePeriod(c.from, c.to, c.zone)
		refused := refusal(t, contract.CodeBadInput, err)
		var fields []string
		for _, field := range refused.Fields {
			fields = append(fields, field.Field)
		}
		assert.Equal(t, c.fields, strings.Join(fields, " "), "%+v", c)
		assert.Contains(t, refused.Message, c.says, "%+v", c)
		assert.Equal(t, contract.RetryNewKey, refused.Retry)
		assert.Zero(t, period)
	}
}

// dateOf is the date that clocks in the zone show, in a form that sorts.
func dateOf(at time.Time, zone *time.Location) string { return at.In(zone).Format(time.DateOnly) }

func TestADayBeginsWhenClocksFirstShowIt(t *testing.T) {
	t.Parallel()
	zones := []string{
		"America/Sao_Paulo", "America/Havana", "America/St_Johns", "Pacific/Apia", "Africa/Cairo", "Asia/Beirut", "Asia/Gaza",
		"America/Asuncion", "Antarctica/Casey", "Asia/Tehran", "Australia/Lord_Howe", "Europe/Dublin", "America/Scoresbysund",
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		days := rapid.IntRange(0, 365*60).Draw(t, "days")
		day := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, days)
		// Half of the days are next to a change of the clocks.
		if _, end := day.In(zone).ZoneBounds(); !end.IsZero() && rapid.Bool().Draw(t, "change") {
			day, err = time.Parse(time.DateOnly, dateOf(end, zone))
			require.NoError(t, err)
			day = day.AddDate(0, 0, rapid.IntRange(-1, 1).Draw(t, "beside"))
		}
		period, err := client.ParsePeriod(day.Format(time.DateOnly), "", name)
		require.NoError(t, err)
		want := day.Format(time.DateOnly)
		require.GreaterOrEqual(t, dateOf(period.From, zone), want)
		for before := time.Microsecond; before < 30*time.Hour; before += 5 * time.Minute {
			require.Less(t, dateOf(period.From.Add(-before), zone), want, "%s before %s", before, period.From)
		}
	})
}

func FuzzParsePeriod(f *testing.F) {
	f.Add("2026-11-01", "2026-12-01", "Europe/Berlin")
	f.Add("2026-11-01T09:30:00.123456789+01:00", "", "")
	f.Add("", "0001-01-01T00:00:00Z", "UTC")
	f.Add("2011-12-30", "2011-12-31", "Pacific/Apia")
	f.Add("1900-01-01", "1937-07-01", "Europe/Amsterdam")
	f.Fuzz(func(t *testing.T, from, to, zone string) {
		period, err := client.ParsePeriod(from, to, zone)
		if err != nil {
			for _, field := range refusal(t, contract.CodeBadInput, err).Fields {
				require.Contains(t, []string{"from", "to", "timeZone"}, field.Field)
			}
			return
		}
		require.Equal(t, from == "", period.From.IsZero())
		require.Equal(t, to == "", period.To.IsZero())
		if from != "" && to != "" {
			require.True(t, period.From.Before(period.To))
		}
		for _, edge := range []time.Time{period.From, period.To} {
			require.True(t, edge.Equal(edge.Truncate(time.Microsecond)))
			if edge.IsZero() {
				continue
			}
			again, err := client.ParsePeriod(edge.UTC().Format(time.RFC3339Nano), "", zone)
			require.NoError(t, err)
			require.True(t, again.From.Equal(edge))
		}
	})
}
