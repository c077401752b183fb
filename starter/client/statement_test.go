package client_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// historian writes entries of chosen instants.
type historian struct {
	ctx        context.Context
	connection *pgx.Conn
}

func (l *ledger) historian() *historian {
	l.t.Helper()
	connection, err := pgx.Connect(l.ctx, l.base.SuperuserURL)
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = connection.Close(context.Background()) })
	return &historian{l.ctx, connection}
}

// write appends one top-up of an account of tenant acme for each instant. Entry n is of n credits.
func (h *historian) write(t require.TestingT, account string, at ...time.Time) {
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO reclaim.accounts (tenant_id, account_id, asset) VALUES ('acme', $1, 'CREDIT') ON CONFLICT DO NOTHING", account)
	batch.Queue(`INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason, created_at)
		SELECT 'acme', $1, seq, 'topup', seq, seq * (seq + 1) / 2, 'order ' || seq, at FROM (
			SELECT account.seq + number AS seq, at
			FROM reclaim.accounts AS account, unnest($2::timestamptz[]) WITH ORDINALITY AS given (at, number)
			WHERE account.tenant_id = 'acme' AND account.account_id = $1
		) AS numbered`, account, at)
	batch.Queue(`UPDATE reclaim.accounts SET seq = seq + $2, balance = (seq + $2) * (seq + $2 + 1) / 2
		WHERE tenant_id = 'acme' AND account_id = $1`, account, int64(len(at)))
	require.NoError(t, h.connection.SendBatch(h.ctx, batch).Close())
}

// each gives n instants, one step apart.
func each(n int, first time.Time, step time.Duration) []time.Time {
	all := make([]time.Time, n)
	for i := range all {
		all[i] = first.Add(time.Duration(i) * step)
	}
	return all
}

func ofPeriod(t require.TestingT, account, from, to, zone string) client.StatementQuery {
	period, err := client.ParsePeriod(from, to, zone)
	require.NoError(t, err)
	return client.StatementQuery{Tenant: "acme", Account: account, Period: period}
}

// read returns a statement with all its entries.
func (l *ledger) read(t require.TestingT, query client.StatementQuery) (*client.Statement, []client.Entry, int64) {
	statement, err := l.Statement(l.ctx, query)
	require.NoError(t, err)
	var all []client.Entry
	next, err := statement.Entries(l.ctx, func(e client.Entry) error {
		all = append(all, e)
		return nil
	})
	require.NoError(t, err)
	return statement, all, next
}

// written returns the statement in both formats.
func (l *ledger) written(t require.TestingT, query client.StatementQuery) (asJSON, asCSV string) {
	statement, err := l.Statement(l.ctx, query)
	require.NoError(t, err)
	var text, table bytes.Buffer
	require.NoError(t, statement.WriteJSON(l.ctx, &text))
	require.NoError(t, statement.WriteCSV(l.ctx, &table))
	return text.String(), table.String()
}

func seqs(entries []client.Entry) []int64 {
	all := []int64{}
	for _, e := range entries {
		all = append(all, e.Seq)
	}
	return all
}

func sum(entries []client.Entry) (total int64) {
	for _, e := range entries {
		total += e.Amount
	}
	return total
}

var november = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

func TestAStatementEndsWithTheBalanceOfItsBeginning(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 10, "order-1")
	l.topUp("acme", "team-7", 20, "order-2")
	statement, err := l.Statement(l.ctx, client.StatementQuery{Tenant: "acme", Account: "team-7"})
	require.NoError(t, err)
	l.topUp("acme", "team-7", 40, "order-3")
	var seen []int64
	next, err := statement.Entries(l.ctx, func(e client.Entry) error {
		seen = append(seen, e.BalanceAfter)
		return nil
	})
	require.NoError(t, err)
	assert.Zero(t, next)
	assert.Equal(t, []int64{10, 30}, seen)
	assert.Equal(t, int64(30), statement.Closing)
	assert.Equal(t, int64(30), statement.Account.Balance)
	assert.Equal(t, int64(2), statement.Account.Entries)
}

func TestAPeriodTakesInItsFromAndLeavesOutItsTo(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	before, after := november.Add(-time.Microsecond), november.Add(time.Microsecond)
	december := november.AddDate(0, 1, 0)
	l.historian().write(t, "team-7", before, november, november, after, december.Add(-time.Microsecond), december, december.Add(1e3))
	for _, c := range []struct {
		from, to string
		seqs     []int64
	}{
		{"", "", []int64{1, 2, 3, 4, 5, 6, 7}},
		{"2026-11-01", "2026-12-01", []int64{2, 3, 4, 5}},
		{"", "2026-11-01", []int64{1}},
		{"2026-12-01", "", []int64{6, 7}},
		{"2026-11-01T00:00:00.000001Z", "2026-12-01T00:00:00.000001Z", []int64{4, 5, 6}},
		{"2026-11-01T00:00:00.000000001Z", "", []int64{4, 5, 6, 7}},
		{"2026-11-02", "2026-11-03", []int64{}},
		{"1900-01-01", "2026-01-01", []int64{}},
		{"2027-01-01", "2028-01-01", []int64{}},
		{"2027-01-01", "", []int64{}},
	} {
		statement, entries, next := l.read(t, ofPeriod(t, "team-7", c.from, c.to, ""))
		assert.Equal(t, c.seqs, seqs(entries), "%+v", c)
		assert.Zero(t, next)
		assert.Equal(t, statement.Closing, statement.Opening+sum(entries), "%+v", c)
		assert.Equal(t, statement.ClosingSeq-statement.OpeningSeq, int64(len(entries)), "%+v", c)
		assert.Equal(t, statement.OpeningSeq*(statement.OpeningSeq+1)/2, statement.Opening, "%+v", c)
		assert.Equal(t, statement.Closing, statement.Account.Balance)
	}
	// An instant made by a program is taken as one that was written.
	query := ofPeriod(t, "team-7", "", "", "")
	query.Period.From = november.Add(1)
	_, entries, _ := l.read(t, query)
	assert.Equal(t, []int64{4, 5, 6, 7}, seqs(entries))
}

func TestL62AMonthIsTheMonthOfItsTimeZone(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	// The hour that Berlin has twice is 00:00 to 02:00 UTC on 25 October.
	l.historian().write(t, "team-7", each(50, time.Date(2026, 10, 24, 0, 30, 0, 0, time.UTC), time.Hour)...)
	_, day, _ := l.read(t, ofPeriod(t, "team-7", "2026-10-25", "2026-10-26", "Europe/Berlin"))
	assert.Len(t, day, 25)
	assert.Equal(t, "2026-10-25T00:30:00+02:00", day[0].CreatedAt.Format(time.RFC3339))
	assert.Equal(t, "2026-10-25T02:30:00+02:00", day[2].CreatedAt.Format(time.RFC3339))
	assert.Equal(t, "2026-10-25T02:30:00+01:00", day[3].CreatedAt.Format(time.RFC3339))
	assert.Equal(t, "2026-10-25T23:30:00+01:00", day[24].CreatedAt.Format(time.RFC3339))
	_, day, _ = l.read(t, ofPeriod(t, "team-7", "2026-10-25", "2026-10-26", ""))
	assert.Len(t, day, 24)

	// The last microsecond and the first one of each day are in that day's statement and in no other, in every zone.
	history := l.historian()
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu", "America/Havana"} {
		account := strings.ReplaceAll(zone, "/", ":")
		location, err := time.LoadLocation(zone)
		require.NoError(t, err)
		first := time.Date(2026, 10, 20, 12, 0, 0, 0, time.UTC)
		var edges []string
		var times []time.Time
		for day := range 20 { // two of them change the clocks: 25 October and 1 November
			date := first.AddDate(0, 0, day).Format(time.DateOnly)
			period, err := client.ParsePeriod(date, "", zone)
			require.NoError(t, err)
			edges, times = append(edges, date), append(times, period.From.Add(-time.Microsecond), period.From)
		}
		history.write(t, account, times...)
		for i := range len(edges) - 1 {
			_, day, _ := l.read(t, ofPeriod(t, account, edges[i], edges[i+1], zone))
			assert.Equal(t, []int64{int64(2*i + 2), int64(2*i + 3)}, seqs(day), "%s %s", zone, edges[i])
			for _, e := range day {
				assert.Equal(t, edges[i], e.CreatedAt.Format(time.DateOnly))
				assert.Equal(t, location, e.CreatedAt.Location())
			}
		}
	}
}

func TestL61AnInstantIsTheSameInEveryOffset(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.historian().write(t, "team-7", each(48, november, time.Hour)...)
	for _, zone := range []string{"UTC", "Asia/Dubai", "America/Los_Angeles"} {
		for _, edges := range [][2]string{
			{"2026-11-01T20:00:00Z", "2026-11-02T04:00:00Z"},
			{"2026-11-02T00:00:00+04:00", "2026-11-02T08:00:00+04:00"},
			{"2026-11-01T12:00:00-08:00", "2026-11-01T20:00:00-08:00"},
		} {
			_, entries, _ := l.read(t, ofPeriod(t, "team-7", edges[0], edges[1], zone))
			assert.Equal(t, []int64{21, 22, 23, 24, 25, 26, 27, 28}, seqs(entries), "%s %s", zone, edges)
			assert.True(t, entries[0].CreatedAt.Equal(november.Add(20*time.Hour)))
		}
	}
}

func TestL64EntriesOfOneInstantComeOnceOnPagesOfEverySize(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.historian().write(t, "team-7", each(250, november, 0)...)
	for _, size := range []int64{1, 7, 10, 100} {
		query := ofPeriod(t, "team-7", "2026-11-01", "2026-11-02", "")
		query.Limit = size
		var all []int64
		for {
			_, part, next := l.read(t, query)
			all = append(all, seqs(part)...)
			if next == 0 {
				break
			}
			assert.Len(t, part, int(size))
			query.After = next
		}
		require.Len(t, all, 250)
		for i, seq := range all {
			require.Equal(t, int64(i+1), seq)
		}
	}
}

func TestAdjacentPeriodsShareEveryEntryOutWhateverTheClockDid(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	history := l.historian()
	accounts := 0
	rapid.Check(t, func(t *rapid.T) {
		accounts++
		account := fmt.Sprintf("team-%d", accounts)
		steps := []time.Duration{0, time.Microsecond, time.Second, time.Hour}
		if rapid.Bool().Draw(t, "stepsBack") {
			steps = append(steps, -time.Microsecond, -3*time.Second, -2*time.Hour)
		}
		at := november
		times := make([]time.Time, rapid.IntRange(0, 40).Draw(t, "entries"))
		for i := range times {
			at = at.Add(rapid.SampledFrom(steps).Draw(t, "step"))
			times[i] = at
		}
		history.write(t, account, times...)
		edges := make([]time.Time, rapid.IntRange(1, 5).Draw(t, "edges"))
		for i := range edges {
			edges[i] = november.Add(time.Duration(rapid.IntRange(-3, 50).Draw(t, "hours")) * time.Hour)
			if len(times) > 0 && rapid.Bool().Draw(t, "beside") {
				edges[i] = rapid.SampledFrom(times).Draw(t, "of").Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "off")) * time.Microsecond)
			}
		}
		slices.SortFunc(edges, time.Time.Compare)
		edges = slices.CompactFunc(edges, time.Time.Equal)

		var closed []*client.Statement
		var all []client.Entry
		var balance int64
		for i := range len(edges) + 1 {
			query := client.StatementQuery{Tenant: "acme", Account: account}
			if i > 0 {
				query.Period.From = edges[i-1]
			}
			if i < len(edges) {
				query.Period.To = edges[i]
			}
			statement, entries, next := l.read(t, query)
			require.Zero(t, next)
			require.Equal(t, int64(len(all)), statement.OpeningSeq, "begins where the period before ended")
			require.Equal(t, balance, statement.Opening)
			all, balance = append(all, entries...), balance+sum(entries)
			require.Equal(t, int64(len(all)), statement.ClosingSeq)
			require.Equal(t, balance, statement.Closing)
			if len(steps) == 4 {
				for _, e := range entries {
					require.False(t, e.CreatedAt.Before(query.Period.From), "from")
					require.True(t, query.Period.To.IsZero() || e.CreatedAt.Before(query.Period.To), "to")
				}
			}
			if i < len(edges) {
				closed = append(closed, statement)
			}
		}
		require.Len(t, all, len(times))
		for i, e := range all {
			require.Equal(t, int64(i+1), e.Seq)
		}
		// Whatever is made from the last edge on moves no edge.
		history.write(t, account, each(rapid.IntRange(1, 40).Draw(t, "more"), edges[len(edges)-1], time.Microsecond)...)
		for _, was := range closed {
			is, err := l.Statement(l.ctx, client.StatementQuery{Tenant: "acme", Account: account, Period: was.Period})
			require.NoError(t, err)
			require.Equal(t, [4]int64{was.OpeningSeq, was.Opening, was.ClosingSeq, was.Closing},
				[4]int64{is.OpeningSeq, is.Opening, is.ClosingSeq, is.Closing})
		}
	})
}

func TestAStatementIsStableUnderWrites(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.historian().write(t, "team-7", each(3500, november, time.Second)...)
	query := ofPeriod(t, "team-7", "2026-11-01T00:10:00Z", "2026-11-30", "Asia/Tokyo")
	wantJSON, wantCSV := l.written(t, query)

	ctx, stop := context.WithCancel(l.ctx)
	made := make(chan struct{})
	var writers sync.WaitGroup
	for writer := range 3 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := l.TopUp(l.ctx, topUpOf(7, fmt.Sprintf("key-%d-%d", writer, n)))
				assert.NoError(t, err)
				select {
				case made <- struct{}{}:
				case <-ctx.Done():
				}
			}
		})
	}
	defer writers.Wait()
	defer stop()
	// slow takes every block only once two more entries were made.
	slow := func(w io.Writer) io.Writer {
		return writerFunc(func(p []byte) (int, error) {
			<-made
			<-made
			return w.Write(p)
		})
	}
	for range 3 {
		statement, err := l.Statement(l.ctx, query)
		require.NoError(t, err)
		var text, table strings.Builder
		require.NoError(t, statement.WriteJSON(l.ctx, slow(&text)))
		require.NoError(t, statement.WriteCSV(l.ctx, slow(&table)))
		require.Equal(t, wantJSON, text.String())
		require.Equal(t, wantCSV, table.String())
	}
	// An open end is the newest entry of the call.
	for range 3 {
		open := ofPeriod(t, "team-7", "2026-11-01T00:58:00Z", "", "")
		statement, err := l.Statement(l.ctx, open)
		require.NoError(t, err)
		// Each of the three writers may wait to tell of an entry that it made before.
		for range 4 {
			<-made
		}
		total, last := statement.Opening, statement.OpeningSeq
		_, err = statement.Entries(l.ctx, func(e client.Entry) error {
			assert.Equal(t, last+1, e.Seq)
			total, last = total+e.Amount, e.Seq
			return nil
		})
		require.NoError(t, err)
		assert.Equal(t, statement.Closing, total)
		assert.Equal(t, statement.ClosingSeq, last)
		now, err := l.Account(l.ctx, "acme", "team-7")
		require.NoError(t, err)
		assert.Greater(t, now.Entries, statement.ClosingSeq)
	}
	stop()
	writers.Wait()
	laterJSON, laterCSV := l.written(t, query)
	assert.Equal(t, wantJSON, laterJSON)
	assert.Equal(t, wantCSV, laterCSV)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestAStatementResumesAtEverySeq(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	history := l.historian()
	history.write(t, "team-7", each(30, november, time.Minute)...)
	query := ofPeriod(t, "team-7", "2026-11-01T00:05:00Z", "2026-11-01T00:25:00Z", "")
	whole, all, _ := l.read(t, query)
	require.Equal(t, int64(6), all[0].Seq)
	require.Len(t, all, 20)
	for after := range int64(33) {
		query.After = after
		part, rest, next := l.read(t, query)
		from := min(max(after-whole.OpeningSeq, 0), 20)
		assert.Equal(t, seqs(all[from:]), seqs(rest), after)
		assert.Zero(t, next)
		assert.Equal(t, [4]int64{whole.OpeningSeq, whole.Opening, whole.ClosingSeq, whole.Closing},
			[4]int64{part.OpeningSeq, part.Opening, part.ClosingSeq, part.Closing}, "those of the period")
	}
	for limit := int64(1); limit <= 21; limit++ {
		query.After, query.Limit = 0, limit
		var parts []client.Entry
		for {
			_, part, next := l.read(t, query)
			assert.LessOrEqual(t, int64(len(part)), limit)
			parts = append(parts, part...)
			if next == 0 {
				break
			}
			require.Equal(t, part[len(part)-1].Seq, next)
			require.Less(t, next, whole.ClosingSeq, "there is more to come")
			query.After = next
		}
		assert.Equal(t, all, parts, limit)
	}
	query.After, query.Limit = math.MaxInt64, math.MaxInt64
	_, rest, next := l.read(t, query)
	assert.Empty(t, rest)
	assert.Zero(t, next)

	// Entries are read in pages of a thousand.
	history.write(t, "team-8", each(2500, november, time.Second)...)
	for _, after := range []int64{0, 1, 999, 1000, 1001, 1999, 2000, 2499, 2500, 2501} {
		for _, limit := range []int64{0, 1, 999, 1000, 1001, 2000} {
			query := client.StatementQuery{Tenant: "acme", Account: "team-8", After: after, Limit: limit}
			_, rest, next := l.read(t, query)
			count := max(2500-after, 0)
			if limit > 0 && limit < count {
				count = limit
				assert.Equal(t, after+limit, next)
			} else {
				assert.Zero(t, next)
			}
			require.Len(t, rest, int(count))
			for i, e := range rest {
				require.Equal(t, after+int64(i)+1, e.Seq)
			}
		}
	}
}

func TestAStatementInBothFormats(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.tamper(`
		INSERT INTO reclaim.accounts (tenant_id, account_id, asset, balance, seq, created_at)
		VALUES ('acme', 'team-7', 'CREDIT', 9007199254740991, 5, '2026-10-01T00:00:00Z'), ('acme', 'empty', 'CREDIT', 0, 0, '2026-10-01T00:00:00Z');
		INSERT INTO reclaim.ledger_entries
			(tenant_id, account_id, seq, type, amount, balance_after, job_id, order_id, refund_id, reason, created_at)
		VALUES
			('acme', 'team-7', 1, 'topup', 100, 100, NULL, NULL, NULL, 'before', '2026-10-01T00:00:00Z'),
			('acme', 'team-7', 2, 'charge', -40, 60, '-j', NULL, NULL, '4K render, "30 s"', '2026-10-31T23:00:00.25Z'),
			('acme', 'team-7', 3, 'payout', -60, 0, 'j-2', 'o-1', 'rf_1', E'=HYPERLINK("x");\n=1', '2026-11-01T12:00:00Z'),
			('acme', 'team-7', 4, 'adjust', -9007199254740991, -9007199254740991, NULL, NULL, NULL, '<é> 🎉', '2026-11-02T12:00:00Z'),
			('acme', 'team-7', 5, 'adjust', 18014398509481982, 9007199254740991, NULL, NULL, NULL, 'after', '2026-12-01T12:00:00Z')`)
	query := ofPeriod(t, "team-7", "2026-11-01", "2026-12-01", "Europe/Berlin")
	text, table := l.written(t, query)
	assert.Equal(t, `{"account":{"tenant":"acme","account":"team-7","asset":"CREDIT","balance":-9007199254740991,"entries":4,"createdAt":"2026-10-01T00:00:00Z"},
"period":{"from":"2026-11-01T00:00:00+01:00","to":"2026-12-01T00:00:00+01:00","timeZone":"Europe/Berlin"},
"openingSeq":1,"opening":100,
"entries":[
{"seq":2,"type":"charge","amount":-40,"balanceAfter":60,"jobId":"-j","reason":"4K render, \"30 s\"","createdAt":"2026-11-01T00:00:00.25+01:00"},
{"seq":3,"type":"payout","amount":-60,"balanceAfter":0,"jobId":"j-2","orderId":"o-1","refundId":"rf_1","reason":"=HYPERLINK(\"x\");\n=1","createdAt":"2026-11-01T13:00:00+01:00"},
{"seq":4,"type":"adjust","amount":-9007199254740991,"balanceAfter":-9007199254740991,"reason":"\u003cé\u003e 🎉","createdAt":"2026-11-02T13:00:00+01:00"}],
"closingSeq":4,"closing":-9007199254740991,"next":null}
`, text)
	assert.True(t, json.Valid([]byte(text)))
	assert.Equal(t, strings.Join([]string{
		"seq,time,type,amount,balance,job,order,refund,reason",
		`1,2026-11-01T00:00:00+01:00,opening,,100,,,,"account team-7, CREDIT, Europe/Berlin"`,
		`2,2026-11-01T00:00:00.25+01:00,charge,-40,60,"'-j",,,"4K render, ""30 s"""`,
		`3,2026-11-01T13:00:00+01:00,payout,-60,0,j-2,o-1,rf_1,"'=HYPERLINK(""x"");'` + "\n" + `'=1"`,
		"4,2026-11-02T13:00:00+01:00,adjust,-9007199254740991,-9007199254740991,,,,<é> 🎉",
		"4,2026-12-01T00:00:00+01:00,closing,,-9007199254740991,,,,",
		"",
	}, "\r\n"), table)

	query.After, query.Limit = 2, 1
	text, table = l.written(t, query)
	assert.Contains(t, text, `"openingSeq":1,"opening":100,`)
	assert.True(t, strings.HasSuffix(text, "],\n\"closingSeq\":4,\"closing\":-9007199254740991,\"next\":3}\n"), text)
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 4)
	assert.Equal(t, "opening", rows[1][2])
	assert.Equal(t, "3", rows[2][0])
	assert.Equal(t, []string{"3", "", "next", "", "0", "", "", "", ""}, rows[3])

	text, table = l.written(t, client.StatementQuery{Tenant: "acme", Account: "empty"})
	assert.Equal(t, `{"account":{"tenant":"acme","account":"empty","asset":"CREDIT","balance":0,"entries":0,"createdAt":"2026-10-01T00:00:00Z"},
"period":{"from":null,"to":null,"timeZone":"UTC"},
"openingSeq":0,"opening":0,
"entries":[],
"closingSeq":0,"closing":0,"next":null}
`, text)
	assert.Equal(t, "seq,time,type,amount,balance,job,order,refund,reason\r\n"+
		"0,,opening,,0,,,,\"account empty, CREDIT, UTC\"\r\n0,,closing,,0,,,,\r\n", table)
}

func TestAStatementIsRefusedByField(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	query := client.StatementQuery{
		Account: "no id", After: -1, Limit: -1, Period: client.Period{From: november, To: november},
	}
	_, err := l.Statement(l.ctx, query)
	var fields []string
	for _, field := range refusal(t, contract.CodeBadInput, err).Fields {
		fields = append(fields, field.Field)
	}
	assert.Equal(t, []string{"tenant", "account", "to", "after", "limit"}, fields)
	_, err = l.Statement(l.ctx, client.StatementQuery{Tenant: "acme", Account: "nobody"})
	refusal(t, contract.CodeNotFound, err)
	l.topUp("acme", "team-7", 1, "order-1")
	_, err = l.Statement(l.ctx, client.StatementQuery{Tenant: "globex", Account: "team-7"})
	refusal(t, contract.CodeNotFound, err)
}

// isCutOff asserts that both formats of the statement end in an error, and that neither looks whole.
func (l *ledger) isCutOff(query client.StatementQuery, says string, entries int) {
	l.t.Helper()
	statement, err := l.Statement(l.ctx, query)
	require.NoError(l.t, err)
	var text, table bytes.Buffer
	err = statement.WriteJSON(l.ctx, &text)
	assert.Contains(l.t, refusal(l.t, contract.CodeUnavailable, err).Message, says)
	err = statement.WriteCSV(l.ctx, &table)
	assert.Contains(l.t, refusal(l.t, contract.CodeUnavailable, err).Message, says)
	if entries == 0 {
		assert.Empty(l.t, text.String())
		assert.Empty(l.t, table.String())
		return
	}
	assert.False(l.t, json.Valid(text.Bytes()))
	assert.NotContains(l.t, text.String(), "closing")
	var whole struct{ Entries []client.Entry }
	require.NoError(l.t, json.Unmarshal([]byte(text.String()+"]}"), &whole), "it ends after a whole entry")
	assert.Len(l.t, whole.Entries, entries)
	rows, err := csv.NewReader(&table).ReadAll()
	require.NoError(l.t, err)
	assert.Len(l.t, rows, entries+2)
	for _, row := range rows[2:] {
		assert.Equal(l.t, "topup", row[2])
	}
}

func TestAStatementThatDoesNotAddUpIsNeverWhole(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	history := l.historian()
	for _, account := range []string{"gap", "end", "sum", "soon"} {
		history.write(t, account, each(1500, november, time.Second)...)
	}
	l.tamper(`
		DELETE FROM reclaim.ledger_entries WHERE account_id = 'gap' AND seq = 1400;
		DELETE FROM reclaim.ledger_entries WHERE account_id = 'end' AND seq > 1450;
		UPDATE reclaim.ledger_entries SET balance_after = balance_after + 1 WHERE account_id = 'sum' AND seq = 1300;
		UPDATE reclaim.ledger_entries SET amount = 7 WHERE account_id = 'soon' AND seq = 1`)
	whole := func(account string) client.StatementQuery {
		return client.StatementQuery{Tenant: "acme", Account: account}
	}
	l.isCutOff(whole("gap"), "entry 1400 is missing", 1399)
	l.isCutOff(whole("end"), "entry 1451 is missing", 1450)
	l.isCutOff(whole("sum"), "entry 1300 moves 1300 from 844350 and leaves 845651", 1299)
	l.isCutOff(whole("soon"), "entry 1 moves 7 from 0 and leaves 1", 0)
	// What is sound is told.
	_, entries, _ := l.read(t, ofPeriod(t, "gap", "", "2026-11-01T00:10:00Z", ""))
	assert.Len(t, entries, 600)
}

func TestAStatementSurvivesALostConnection(t *testing.T) {
	t.Parallel()
	base := schematest.New(t)
	proxy := schematest.NewLossyProxy(t, base.Address)
	l := openLedger(t, base, proxy.URL(base.AppURL))
	l.historian().write(t, "team-7", each(2500, november, time.Second)...)
	query := client.StatementQuery{Tenant: "acme", Account: "team-7"}
	want, _ := l.written(t, query)
	statement, err := l.Statement(l.ctx, query)
	require.NoError(t, err)
	proxy.LoseReply(schematest.Containing("name: ListEntries"), 3)
	var text strings.Builder
	require.NoError(t, statement.WriteJSON(l.ctx, &text))
	assert.Equal(t, 3, proxy.Lost())
	assert.Equal(t, want, text.String())

	ctx, cancel := context.WithCancel(l.ctx)
	err = statement.WriteJSON(ctx, writerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	}))
	refusal(t, contract.CodeUnavailable, err)
	full := errors.New("disk full")
	broken := writerFunc(func([]byte) (int, error) { return 0, full })
	assert.ErrorIs(t, statement.WriteJSON(l.ctx, broken), full)
	assert.ErrorIs(t, statement.WriteCSV(l.ctx, broken), full)
}

// Each edge costs its 63 look-ups by the primary key, and nothing grows with the history.
func TestAPeriodIsFoundByThePrimaryKeyAlone(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.historian().write(t, "team-7", each(50_000, november, time.Second)...)
	text, err := schema.QueryText("statement")
	require.NoError(t, err)
	// The statement takes its parameters as $1 to $4 in this order.
	text = strings.NewReplacer("@tenant_id", "$1", "@account_id", "$2", "sqlc.narg('from_at')", "$3", "sqlc.narg('to_at')", "$4").Replace(text)
	history := l.historian()
	_, err = history.connection.Exec(l.ctx, "ANALYZE reclaim.ledger_entries, reclaim.accounts")
	require.NoError(t, err)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		_, err = history.connection.Exec(l.ctx, "SET plan_cache_mode = "+mode)
		require.NoError(t, err)
		rows, err := history.connection.Query(l.ctx, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, BUFFERS) "+text,
			"acme", "team-7", november.Add(time.Hour), november.Add(10*time.Hour))
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		plan := strings.Join(lines, "\n")
		assert.NotContains(t, plan, "Seq Scan on ledger_entries", plan)
		assert.NotContains(t, plan, "Bitmap", plan)
		assert.NotContains(t, plan, "hashed SubPlan", plan)
		assert.Contains(t, plan, "Index Scan using ledger_entries_pkey on ledger_entries entry (actual rows=0 loops=126)", plan)
		assert.Equal(t, 3, strings.Count(plan, "Index Scan using ledger_entries_pkey"), plan)
	}
}
