package stripe

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

type read struct {
	line channel.SettlementLine
	err  string
}

func readAll(t *testing.T, file io.Reader) []read {
	t.Helper()
	c, err := New(Options{APIKey: testKey})
	require.NoError(t, err)
	var all []read
	for line, err := range c.Settlement(file) {
		one := read{line: line}
		if err != nil {
			one.err = err.Error()
		}
		all = append(all, one)
	}
	return all
}

const settlementFile = "\uFEFF" + `id,Type,source,amount,fee,net,currency,created,description,refund_metadata[reclaim_refund]
txn_1,charge,ch_1,100.00,3.20,96.80,usd,2024-01-02 15:04:05,"Order 7, ""blue""",
txn_2,refund,re_1,-12.5,0,-12.50,USD,2024-01-03 08:00,REFUND FOR CHARGE,rf_1
txn_3,payment_refund,pyr_1,-1000,0.00,-1000,jpy,1704268800,,rf_2
txn_4,refund_failure,re_1,12.50,0.00,12.50,usd,2024-01-09T08:00:00Z,REFUND FAILURE,rf_1
txn_5,payout,po_1,-80.00,0.00,-80.00,usd,,,
`

func TestSettlement(t *testing.T) {
	day := func(day, hour, minute, second int) time.Time {
		return time.Date(2024, 1, day, hour, minute, second, 0, time.UTC)
	}
	raw := func(line int) string { return strings.Split(settlementFile, "\n")[line-1] }
	got := readAll(t, strings.NewReader(settlementFile))
	assert.Equal(t, []read{
		{line: channel.SettlementLine{Line: 2, Raw: raw(2), Transaction: "txn_1", Gross: 10000, Settled: "usd", Kind: "payment", Fee: 320, Net: 9680, Evidence: channel.Evidence{
			Outcome: channel.OutcomeUnknown, Payment: "ch_1", Amount: 10000, Currency: "usd", Code: "charge",
			Detail: `txn_1 Order 7, "blue"`, ObservedAt: day(2, 15, 4, 5)}}},
		{line: channel.SettlementLine{Line: 3, Raw: raw(3), Transaction: "txn_2", Gross: -1250, Settled: "usd", Kind: "refund", Net: -1250, Evidence: channel.Evidence{
			Outcome: channel.OutcomeSucceeded, Number: "rf_1", Reference: "re_1", Amount: 1250, Currency: "usd", Code: "refund",
			Detail: "txn_2 REFUND FOR CHARGE", ObservedAt: day(3, 8, 0, 0)}}},
		{line: channel.SettlementLine{Line: 4, Raw: raw(4), Transaction: "txn_3", Gross: -1000, Settled: "jpy", Kind: "refund", Net: -1000, Evidence: channel.Evidence{
			Outcome: channel.OutcomeSucceeded, Number: "rf_2", Reference: "pyr_1", Amount: 1000, Currency: "jpy",
			Code: "payment_refund", Detail: "txn_3", ObservedAt: day(3, 8, 0, 0)}}},
		{line: channel.SettlementLine{Line: 5, Raw: raw(5), Transaction: "txn_4", Gross: 1250, Settled: "usd", Kind: "refund_failure", Net: 1250, Evidence: channel.Evidence{
			Outcome: channel.OutcomeFailed, Number: "rf_1", Reference: "re_1", Amount: 1250, Currency: "usd",
			Code: "refund_failure", Detail: "txn_4 REFUND FAILURE", ObservedAt: day(9, 8, 0, 0)}}},
		{line: channel.SettlementLine{Line: 6, Raw: raw(6), Transaction: "txn_5", Gross: -8000, Settled: "usd", Kind: "payout", Ordinary: true, Net: -8000, Evidence: channel.Evidence{
			Outcome: channel.OutcomeUnknown, Amount: 8000, Currency: "usd", Code: "payout", Detail: "txn_5"}}},
	}, got)
}

func TestTheReportsOwnHeadings(t *testing.T) {
	got := readAll(t, strings.NewReader(`net,fee,gross,currency,reporting_category,source_id,payment_intent_id,`+
		`customer_facing_amount,customer_facing_currency,refund_metadata[reclaim_payment]
-11.01,0.00,-11.01,eur,refund,re_1,pi_1,-12.00,usd,ch_1
50.00,1.00,51.00,eur,charge,ch_1,pi_1,55.00,usd,
`))
	require.Len(t, got, 2)
	assert.Equal(t, channel.SettlementLine{Line: 2, Kind: "refund", Gross: -1101, Net: -1101, Settled: "eur",
		Raw: "-11.01,0.00,-11.01,eur,refund,re_1,pi_1,-12.00,usd,ch_1", Evidence: channel.Evidence{
			Outcome: channel.OutcomeSucceeded, Reference: "re_1", Payment: "ch_1", PaymentAlias: "pi_1", Amount: 1200,
			Currency: "usd", Code: "refund"}}, got[0].line, "the refund in the customer's currency, the net in the balance's")
	assert.Equal(t, []string{"pi_1", "ch_1"}, []string{got[1].line.Payment, got[1].line.PaymentAlias})
}

// C56: a line that does not add up is told, kept, and does not end the import.
func TestC56_ALineThatDoesNotAddUp(t *testing.T) {
	got := readAll(t, strings.NewReader(`type,source,amount,fee,net,currency,refund_metadata[reclaim_refund]
refund,re_1,-10.00,0.30,-10.00,usd,rf_1
refund,re_2,-10.00,0.30,-10.30,usd,rf_2
`))
	require.Len(t, got, 2)
	assert.Equal(t, "line 2: gross -1000 - fee 30 is not net -1000 (in the smallest unit of usd)", got[0].err)
	assert.Equal(t, "rf_1", got[0].line.Number, "so that the issue can name it")
	assert.Empty(t, got[1].err)
	assert.Equal(t, int64(-1030), got[1].line.Net)
}

func TestLinesThatCannotBeRead(t *testing.T) {
	for name, test := range map[string]struct{ line, problem string }{
		"too few fields":      {"refund,re_1", `gross: "" is no currency`},
		"no number":           {"refund,re_1,ten,0,10,usd,", `gross: "ten"`},
		"a float":             {"refund,re_1,1e3,0,1000,usd,", `gross: "1e3"`},
		"too many decimals":   {"refund,re_1,10.001,0,10.001,usd,", "at most 2 decimals"},
		"decimals of yen":     {"refund,re_1,10.5,0,10.5,jpy,", "at most 0 decimals"},
		"thousands":           {`refund,re_1,"1,000.00",0,"1,000.00",usd,`, `gross: "1,000.00"`},
		"a comma for a point": {`refund,re_1,"10,00",0,"10,00",usd,`, `gross: "10,00"`},
		"a plus":              {"refund,re_1,+1,0,1,usd,", `gross: "+1"`},
		"two signs":           {"refund,re_1,--1,0,1,usd,", `gross: "--1"`},
		"only a sign":         {"refund,re_1,-,0,1,usd,", `gross: "-"`},
		"only a fraction":     {"refund,re_1,.5,0,0.5,usd,", `gross: ".5"`},
		"a point at the end":  {"refund,re_1,5.,0,5,usd,", `gross: "5."`},
		"beyond int64":        {"refund,re_1,92233720368547758.08,0,1,usd,", "is no amount"},
		"beyond a difference": {"refund,re_1,11529215046068469.77,0,1,usd,", "is no amount"},
		"no currency":         {"refund,re_1,1,0,1,,", `"" is no currency`},
		"unknown currency":    {"refund,re_1,1,0,1,xxx,", `"xxx" is no currency`},
		"no fee":              {"refund,re_1,1,,1,usd,", `fee: ""`},
		"no time":             {"refund,re_1,1,0,1,usd,yesterday", `"yesterday" is no time`},
		"a stray quote":       {`refund,re"1,1,0,1,usd,`, "bare"},
	} {
		t.Run(name, func(t *testing.T) {
			got := readAll(t, strings.NewReader("type,source,amount,fee,net,currency,created\n"+
				test.line+"\nrefund,re_2,-1,0,-1,usd,\n"))
			require.Len(t, got, 2)
			assert.Contains(t, got[0].err, test.problem)
			assert.Contains(t, got[0].err, "line 2")
			assert.Equal(t, channel.SettlementLine{Line: 2, Raw: test.line}, got[0].line)
			assert.Empty(t, got[1].err, "the reading goes on")
			assert.Equal(t, 3, got[1].line.Line)
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	for name, test := range map[string]struct{ file, problem string }{
		"nothing":        {"", "heading"},
		"no currency":    {"type,source,amount,fee,net\n", "the column currency is missing"},
		"an amount less": {"type,source,fee,net,currency\n", "the column gross or amount is missing"},
		"twice":          {"type,source,amount,fee,net,currency,Amount\n", `"amount" is there twice`},
	} {
		t.Run(name, func(t *testing.T) {
			got := readAll(t, strings.NewReader(test.file))
			require.Len(t, got, 1)
			assert.Contains(t, got[0].err, test.problem)
			assert.Equal(t, channel.SettlementLine{Line: 1}, got[0].line)
		})
	}
	lost := errors.New("the disk is gone")
	got := readAll(t, io.MultiReader(strings.NewReader(settlementFile), iotest.ErrReader(lost)))
	assert.Equal(t, lost.Error(), got[len(got)-1].err)
	assert.Len(t, got, 6)
}

func TestReadingCanStopEarly(t *testing.T) {
	c, err := New(Options{APIKey: testKey})
	require.NoError(t, err)
	lines := 0
	for _, err := range c.Settlement(strings.NewReader(settlementFile)) {
		require.NoError(t, err)
		lines++
		break
	}
	assert.Equal(t, 1, lines)
}

func TestParseMajor(t *testing.T) {
	for text, want := range map[string]map[string]int64{
		"12.50": {"usd": 1250}, "-0.01": {"usd": -1}, "0": {"usd": 0, "jpy": 0, "kwd": 0}, "7": {"usd": 700, "jpy": 7, "kwd": 7000},
		"5.12": {"kwd": 5120}, "500.00": {"jpy": 500, "isk": 50000}, "11529215046068469.76": {"usd": 1 << 60},
	} {
		for currency, amount := range want {
			got, err := parseMajor(text, currency)
			require.NoError(t, err, text)
			assert.Equal(t, amount, got, text+" "+currency)
		}
	}
}

// Quoted line ends and blank lines in between: every record's text is what stands in the file, and reads the same alone.
func FuzzTheTextOfEachLine(f *testing.F) {
	f.Add(settlementFile)
	f.Add("type,source,amount,fee,net,currency,description\r\n\r\nrefund,re_1,-1,0,-1,usd,\"two\r\nlines\"\r\n\nrefund,re\"2,1,0,1,usd\n")
	f.Add("type,source,amount,fee,net,currency\nrefund,\"re_1,-1,0,-1,usd\nrefund,re_2,-1,0,-1,usd\n")
	c, err := New(Options{APIKey: testKey})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, file string) {
		heading, rest, _ := strings.Cut(file, "\n")
		last := 1
		for line, err := range c.Settlement(strings.NewReader(file)) {
			if line.Line < 2 {
				continue
			}
			require.Greater(t, line.Line, last)
			last = line.Line
			at := strings.Index(rest, line.Raw)
			require.GreaterOrEqual(t, at, 0, "the file has %q, after the lines before it", line.Raw)
			require.Empty(t, strings.Trim(rest[:at], "\r\n"), "nothing but line ends is left out")
			rest = rest[at+len(line.Raw):]
			for alone, problem := range c.Settlement(strings.NewReader(heading + "\n" + line.Raw)) {
				if err != nil {
					require.Error(t, problem)
					continue
				}
				require.NoError(t, problem)
				alone.Line = line.Line
				require.Equal(t, line, alone)
			}
		}
	})
}

func TestALineWithoutEndIsNotKeptInMemory(t *testing.T) {
	file := "type,source,amount,fee,net,currency\nrefund,\"re_1,-1,0,-1,usd\n"
	endless := &countingReader{}
	got := readAll(t, io.MultiReader(strings.NewReader(file), endless))
	require.Len(t, got, 1)
	assert.Equal(t, errLongRecord.Error(), got[0].err)
	assert.Equal(t, channel.SettlementLine{}, got[0].line)
	assert.Less(t, endless.read, 2*maxRecord)
}

// countingReader gives the letter a for ever.
type countingReader struct{ read int }

func (r *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	r.read += len(p)
	return len(p), nil
}
