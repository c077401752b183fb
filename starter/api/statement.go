package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// StatementAnswer describes a statement as JSON; it is written entry by entry.
type StatementAnswer struct {
	Account    client.Account `json:"account" doc:"As it stood at the period's end"`
	Period     StatementSpan  `json:"period"`
	OpeningSeq int64          `json:"openingSeq" doc:"The seq of the last entry before the period, 0 for none"`
	Opening    int64          `json:"opening" doc:"The balance before the period's first entry"`
	Entries    []client.Entry `json:"entries" doc:"With times in the period's zone"`
	ClosingSeq int64          `json:"closingSeq"`
	Closing    int64          `json:"closing" doc:"Opening and all amounts together"`
	Next       *int64         `json:"next" doc:"Where a limit ended the entries: the after of the rest"`
}

// StatementSpan is the half-open period that a statement covers.
type StatementSpan struct {
	From     *time.Time `json:"from"`
	To       *time.Time `json:"to"`
	TimeZone string     `json:"timeZone"`
}

func (d *Door) statementRoutes(routes huma.API) {
	type statementInput struct {
		Account string `path:"account"`
		Accept  string `header:"Accept" hidden:"true"`
		From    string `query:"from" doc:"The period's first instant, RFC 3339, or a date: midnight in timeZone. Left out: the account's first entry"`
		To      string `query:"to" doc:"The first instant after the period, as from. Left out: now"`
		Zone    string `query:"timeZone" doc:"IANA name of the zone in which dates are meant and times are told, UTC if left out"`
		After   string `query:"after" doc:"Leave out the entries up to this seq: what is left of a statement that was read before"`
		Limit   string `query:"limit" doc:"How many entries at most; the answer's next is then the after of the rest"`
		Format  string `query:"format" enum:"json,csv" doc:"csv also by Accept: text/csv"`
	}
	type statementOutput struct {
		ContentType string `header:"Content-Type"`
		Disposition string `header:"Content-Disposition"`
		Body        func(huma.Context)
	}
	schema := routes.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[StatementAnswer](), true, "StatementAnswer")
	handle(routes, route{
		id: "get-statement", method: http.MethodGet, path: "/v1/accounts/{account}/statement", tag: "accounts",
		summary: "List an account's entries in a period, with running balance", scope: "accounts:read", status: http.StatusOK,
		errors: []int{404}, content: map[string]*huma.MediaType{
			"application/json": {Schema: schema}, "text/csv": {Schema: &huma.Schema{Type: huma.TypeString}},
		},
	}, func(ctx context.Context, key client.Key, input *statementInput) (*statementOutput, error) {
		period, err := client.ParsePeriod(input.From, input.To, input.Zone)
		if err != nil {
			return nil, err
		}
		after, err := wholeNumber("after", input.After)
		if err != nil {
			return nil, err
		}
		limit, err := wholeNumber("limit", input.Limit)
		if err != nil {
			return nil, err
		}
		statement, err := d.client.Statement(ctx, client.StatementQuery{
			Tenant: key.Tenant, Account: input.Account, Period: period, After: after, Limit: limit,
		})
		if err != nil {
			return nil, err
		}
		output := &statementOutput{ContentType: "application/json"}
		write := statement.WriteJSON
		if input.Format == "csv" || input.Format == "" && strings.HasPrefix(input.Accept, "text/csv") {
			output.ContentType = "text/csv; charset=utf-8; header=present"
			output.Disposition = fmt.Sprintf("attachment; filename=%q", input.Account+".csv")
			write = statement.WriteCSV
		}
		output.Body = func(answer huma.Context) {
			ctx, cancel := context.WithTimeout(withoutLimit(ctx), statementWithin)
			defer cancel()
			to := &patient{to: answer.BodyWriter(), control: controlOf(ctx), looked: time.Now(), valid: func() error { return d.stillValid(ctx) }}
			err := write(ctx, to)
			if err != nil && !to.began {
				r, w := humago.Unwrap(answer)
				w.Header().Del("Content-Disposition")
				refuse(w, r, err)
			} else if err != nil {
				noteCause(ctx, err)
				// What was sent is not the whole: the connection ends without saying that it is.
				panic(http.ErrAbortHandler)
			}
		}
		return output, nil
	})
}

const (
	// statementWithin bounds a whole statement: what is left of it is had with after.
	statementWithin = 15 * time.Minute
	// lookAgain is how often it is looked, while one is sent, whether its key is still valid.
	lookAgain = 5 * time.Second
)

// patient gives each part of a long answer the time of a short one: a reader may be slow as long as it reads, and has its
// right to.
type patient struct {
	to      io.Writer
	control *http.ResponseController
	began   bool
	// valid says whether the key still is, as it was when looked.
	valid  func() error
	looked time.Time
}

// Write sends one part.
func (p *patient) Write(part []byte) (int, error) {
	if time.Since(p.looked) > lookAgain {
		if err := p.valid(); err != nil {
			return 0, err
		}
		p.looked = time.Now()
	}
	p.began = true
	if p.control != nil {
		if err := p.control.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
			return 0, fmt.Errorf("give a long answer its time: %w", err)
		}
	}
	return p.to.Write(part)
}

// wholeNumber reads a number of a query, 0 where it is left out.
func wholeNumber(field, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, contract.BadField(field, "must be a whole number, 0 or more")
	}
	return int64(n), nil
}
