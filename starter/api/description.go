package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// version of the routes, as their path has it.
const version = "1.0.0"

// scopeOf names the right that an operation needs among its metadata.
const scopeOf = "reclaim-scope"

// readsJob names, among its metadata, whether an operation begins with reading the job of its path.
const readsJob = "reclaim-reads-job"

// description is what the routes are described in.
func description() huma.Config {
	config := huma.DefaultConfig("Reclaim", version)
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	// Answers carry what the description says and no links to it.
	config.CreateHooks = nil
	config.RejectUnknownQueryParameters = true
	config.Info.Description = "Durable billing for metered jobs. Amounts are whole numbers of the smallest unit of the account's " +
		"asset or of the order's currency. An API key decides tenant, actor and rights. What makes something takes an " +
		"Idempotency-Key header (a job's own id is its key), so that every request may be repeated: the same key stands for the " +
		"same operation for ever."
	config.Servers = []*huma.Server{{URL: "/", Description: "This server"}}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"key": {Type: "http", Scheme: "bearer", Description: "An API key: rk_…, made by `starter key create`"},
	}
	config.Tags = []*huma.Tag{
		{Name: "accounts", Description: "Balances, top-ups and statements"},
		{Name: "orders", Description: "Payments that bought credits"},
		{Name: "jobs", Description: "Metered jobs: start, follow, report and decide them"},
		{Name: "refunds", Description: "Refunds through the payment channel of an order"},
		{Name: "issues", Description: "What a person has to look at"},
	}
	return config
}

// operation describes the route.
func (r route) operation() huma.Operation {
	op := huma.Operation{
		OperationID: r.id, Method: r.method, Path: r.path, Summary: r.summary, Tags: []string{r.tag}, DefaultStatus: r.status,
		Security:    []map[string][]string{{"key": {}}},
		Metadata:    map[string]any{scopeOf: contract.Scope(r.scope), readsJob: r.readsJob},
		Description: "Needs the scope `" + r.scope + "`.",
		Errors:      append([]int{400, 401, 403, 429, 503}, r.errors...),
	}
	op.MaxBodyBytes = cmp.Or(r.maxBody, contract.MaxInputBytes)
	if r.body != nil {
		op.Errors = append(op.Errors, 413, 415)
	}
	return op
}

// idPattern is the alphabet of ids, as the bodies' schemas have it too.
const idPattern = "^[A-Za-z0-9._:-]+$"

// parameterRules are what the parameters of this name must be.
var parameterRules = map[string]huma.Schema{
	"account": {Pattern: idPattern, MinLength: new(1), MaxLength: new(100)},
	"job":     {Pattern: idPattern, MinLength: new(1), MaxLength: new(100)},
	"order":   {Pattern: idPattern, MinLength: new(1), MaxLength: new(100)},
	"refund":  {Pattern: "^[A-Za-z0-9_-]+$", MinLength: new(1), MaxLength: new(64)},
	"after":   {Pattern: "^[0-9]+$", MaxLength: new(18)},
	"limit":   {Pattern: "^[0-9]+$", MaxLength: new(18)},
	"key":     {Pattern: notBlank, MaxLength: new(200)},
	keyHeader: {Pattern: notBlank, MaxLength: new(200)},
	"Prefer":  {Examples: []any{"wait=30"}},
}

// notBlank is what a text that must be given holds.
const notBlank = `\S`

// describe writes the description of the routes, once all of them are there.
func describe(routes huma.API) ([]byte, error) {
	text, err := json.Marshal(routes.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("write the description of the routes: %w", err)
	}
	return text, nil
}

// describeMore adds what the router does not see in the operation's types: the request's body, which the door reads itself,
// and other successes with the same body as the first.
func (r route) describeMore(text *huma.OpenAPI) {
	item := text.Paths[r.path]
	op := item.Get
	if r.method == http.MethodPost {
		op = item.Post
	}
	for _, parameter := range op.Parameters {
		// The door checks these itself, in its own words: here they are only said.
		if rules, ok := parameterRules[parameter.Name]; ok {
			rules.Type, rules.Description = parameter.Schema.Type, parameter.Schema.Description
			parameter.Schema = &rules
		}
		if parameter.Name == keyHeader || r.id == "find-refund" {
			parameter.Required = true
		}
	}
	// What the router calls unprocessable is answered as a bad request.
	delete(op.Responses, strconv.Itoa(http.StatusUnprocessableEntity))
	if r.body != nil {
		kind := reflect.TypeOf(r.body)
		schema := text.Components.Schemas.Schema(kind, true, kind.Name())
		op.RequestBody = &huma.RequestBody{
			Required: !r.bodyOptional, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}},
		}
	}
	first := op.Responses[strconv.Itoa(r.status)]
	if r.content != nil {
		first.Content = r.content
	}
	for status, words := range map[int]string{http.StatusOK: r.again, http.StatusAccepted: r.pending} {
		if words != "" {
			op.Responses[strconv.Itoa(status)] = &huma.Response{Description: words, Content: first.Content, Headers: first.Headers}
		}
	}
}
