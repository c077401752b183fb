package faults_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// guarded is a route that needs a key, with a request that its own tenant's key is let through with.
type guarded struct {
	scope contract.Scope
	call  httpCall
	// ours is the status for the tenant's own key, theirs for another tenant's key with every right.
	ours, theirs int
}

// guardedRoutes lists a request for every route that needs a key, by its place in the description. The job dead waits in a
// dead letter, and open is a refund that is under way.
func guardedRoutes(s *refundStage, dead, open string) map[string]guarded {
	get := func(path string) httpCall { return httpCall{method: http.MethodGet, path: path} }
	post := func(path string, body any) httpCall {
		return httpCall{method: http.MethodPost, path: path, body: body, header: headers("Idempotency-Key", "matrix")}
	}
	// The name would be of another tenant's own account: it sees that, and ours stays as it is.
	own, fresh := "matrix", "matrix-job"
	decision := map[string]any{"id": "m1", "action": "deliver", "operator": "ann", "reason": "seen", "evidence": "the file"}
	work := map[string]any{"activity": workActivity, "taskQueue": s.crew.queue, "timeout": "5m"}
	return map[string]guarded{
		"POST /v1/accounts/{account}/topups": {contract.ScopeAccountsWrite, post("/v1/accounts/"+own+"/topups", map[string]any{"amount": 5}), 201, 201},
		"GET /v1/accounts/{account}":         {contract.ScopeAccountsRead, get("/v1/accounts/" + account), 200, 404},
		"GET /v1/accounts/{account}/statement": {
			contract.ScopeAccountsRead, get("/v1/accounts/" + account + "/statement"), 200, 404,
		},
		"POST /v1/orders": {contract.ScopeAccountsWrite, post("/v1/orders", map[string]any{
			"orderId": "matrix", "account": own, "channel": s.channel, "payment": "pi_matrix", "currency": currency, "paid": 100, "credits": 10,
		}), 201, 201},
		"GET /v1/orders/{order}": {contract.ScopeAccountsRead, get("/v1/orders/" + order), 200, 404},
		"POST /v1/jobs": {contract.ScopeJobsWrite, post("/v1/jobs", map[string]any{
			"jobId": fresh, "account": account, "cost": 1, "work": work, "promise": "5m",
		}), 201, 402},
		"GET /v1/jobs/{job}":                   {contract.ScopeJobsRead, get("/v1/jobs/" + dead), 200, 404},
		"GET /v1/jobs/{job}/timeline":          {contract.ScopeJobsRead, get("/v1/jobs/" + dead + "/timeline"), 200, 404},
		"POST /v1/jobs/{job}/outcome":          {contract.ScopeJobsWrite, post("/v1/jobs/"+dead+"/outcome", map[string]any{"state": "failed", "error": "no"}), 202, 404},
		"POST /v1/jobs/{job}/resolution":       {contract.ScopeResolve, post("/v1/jobs/"+dead+"/resolution", decision), 200, 404},
		"POST /v1/jobs/{job}/cancellation":     {contract.ScopeJobsWrite, post("/v1/jobs/"+dead+"/cancellation", nil), 202, 404},
		"POST /v1/refunds":                     {contract.ScopeRefundsWrite, post("/v1/refunds", map[string]any{"orderId": order, "amount": 10, "reason": "matrix"}), 201, 404},
		"GET /v1/refunds/{refund}":             {contract.ScopeRefundsRead, get("/v1/refunds/" + open), 200, 404},
		"GET /v1/refunds":                      {contract.ScopeRefundsRead, get("/v1/refunds?key=refund%200"), 200, 404},
		"POST /v1/refunds/{refund}/resolution": {contract.ScopeResolve, post("/v1/refunds/"+open+"/resolution", map[string]any{"id": "m1", "action": "extend", "operator": "ann", "reason": "busy"}), 200, 404},
		"GET /v1/issues":                       {contract.ScopeRefundsRead, get("/v1/issues"), 200, 200},
	}
}

func TestEveryRouteAsksForAKeyThatHasTheRight(t *testing.T) {
	s := newRefundStage(t, silent)
	door := openHTTP(t, s.client)
	s.deadLetter("dead")
	open := s.refund(500, life(step(0, "pending")))
	s.refundReaches(open, contract.RefundPending)
	s.job("matrix-job")
	s.refunds = append(s.refunds, contract.RefundNumber(s.tenant, "test", "matrix"))
	routes := guardedRoutes(s, "dead", open)

	described := into[struct {
		Paths map[string]map[string]struct {
			Security []map[string][]string
		}
	}](door.get("/openapi.json", ""), http.StatusOK)
	var names []string
	for path, operations := range described.Paths {
		for method, operation := range operations {
			name := strings.ToUpper(method) + " " + path
			names = append(names, name)
			assert.Contains(t, routes, name, "a route that this test does not know")
			assert.Equal(t, []map[string][]string{{"key": {}}}, operation.Security, name)
		}
	}
	require.Len(t, names, len(routes))
	slices.Sort(names)

	ours, revoked := s.keyOf(s.tenant), s.keyOf(s.tenant)
	_, err := s.client.RevokeKey(s.ctx(), s.tenant, revoked.KeyID)
	require.NoError(t, err)
	stranger := s.keyOf("other-" + s.tenant)
	wrong := strings.ToLower(ours.Secret[:len(ours.Secret)-2]) + map[bool]string{true: "bb", false: "aa"}[strings.HasSuffix(ours.Secret, "aa")]
	before := s.everything()
	for _, name := range names {
		route := routes[name]
		for kind, bearer := range map[string]string{
			"no key": "", "a wrong secret": wrong, "a key that never was": contract.APIKey(strings.Repeat("a", 16), strings.Repeat("b", 52)),
			"a revoked key": revoked.Secret, "half a key": ours.Secret[:30], "no key's form": "secret",
		} {
			call := route.call
			call.bearer = bearer
			answer := door.do(call)
			problem := answer.refused(http.StatusUnauthorized, contract.CodeUnauthorized)
			assert.Equal(t, contract.RetryNever, problem.Retry, "%s with %s", name, kind)
			assert.Contains(t, answer.header.Get("Www-Authenticate"), "Bearer", "%s with %s", name, kind)
		}
		others := slices.DeleteFunc(contract.Scopes(), func(scope contract.Scope) bool { return scope == route.scope })
		call := route.call
		call.bearer = s.keyOf(s.tenant, others...).Secret
		problem := door.do(call).refused(http.StatusForbidden, contract.CodeForbidden)
		assert.Contains(t, problem.Detail, string(route.scope), name)
	}
	assert.Equal(t, before, s.everything(), "nothing was written for whom nothing is allowed")
	for _, name := range names {
		call := routes[name].call
		call.bearer = stranger.Secret
		answer := door.do(call)
		assert.Equal(t, routes[name].theirs, answer.status, "%s for another tenant: %s", name, answer.body)
		assert.NotContains(t, string(answer.body), `"tenant":"`+s.tenant, name)
	}
	assert.Equal(t, before, s.everything(), "another tenant's key touches nothing of ours")
	for _, name := range names {
		call := routes[name].call
		call.bearer = s.keyOf(s.tenant, routes[name].scope).Secret
		answer := door.do(call)
		assert.Equal(t, routes[name].ours, answer.status, "%s for its own tenant: %s", name, answer.body)
	}
	for _, line := range door.log.All() {
		text, err := json.Marshal(line.ContextMap())
		require.NoError(t, err)
		for _, key := range []reclaim.CreatedKey{ours, stranger, revoked} {
			_, secret, _ := contract.ParseAPIKey(key.Secret)
			assert.NotContains(t, line.Message+string(text), secret[:20], "a secret was logged")
		}
	}
}

// everything is all that is written of the tenant, but for its keys.
func (s *refundStage) everything() string {
	s.t.Helper()
	return value[string](s.stage, `SELECT concat_ws(' ',
		(SELECT count(*) || '/' || coalesce(sum(amount), 0) FROM reclaim.ledger_entries WHERE tenant_id = $1),
		(SELECT count(*) || '/' || string_agg(job_id || state, ',' ORDER BY job_id) FROM reclaim.jobs WHERE tenant_id = $1),
		(SELECT count(*) FROM reclaim.job_events WHERE tenant_id = $1), (SELECT count(*) FROM reclaim.orders WHERE tenant_id = $1),
		(SELECT count(*) || '/' || sum(event_seq) FROM reclaim.refunds WHERE tenant_id = $1),
		(SELECT count(*) FROM reclaim.operations WHERE tenant_id = $1), (SELECT count(*) FROM reclaim.resolutions WHERE tenant_id = $1))`, s.tenant)
}

func TestARevokedKeyGetsNoAnswerThatItWaitedFor(t *testing.T) {
	s := newStage(t)
	door := openHTTP(t, s.client)
	key := s.keyOf(s.tenant)
	s.startCharged(s.job("j1"))
	waiting := make(chan httpAnswer, 1)
	go func() { waiting <- door.get("/v1/jobs/j1", key.Secret, "Prefer", "wait=60") }()
	call := s.next("j1")
	// The first look of the request has found the key valid.
	eventually(t, "the request waits", func() bool { return door.waits() > 0 })
	_, err := s.client.RevokeKey(s.ctx(), s.tenant, key.KeyID)
	require.NoError(t, err)
	call.deliver("done")
	(<-waiting).refused(http.StatusUnauthorized, contract.CodeUnauthorized)
	door.get("/v1/jobs/j1", key.Secret).refused(http.StatusUnauthorized, contract.CodeUnauthorized)
	door.post("/v1/jobs", key.Secret, json.RawMessage(`{}`)).refused(http.StatusUnauthorized, contract.CodeUnauthorized)
	_, err = s.client.RevokeKey(s.ctx(), "other-"+s.tenant, key.KeyID)
	assert.Equal(t, contract.CodeNotFound, contract.CodeOf(err), "another tenant's key cannot be revoked")
	again, err := s.client.RevokeKey(s.ctx(), s.tenant, key.KeyID)
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), again, time.Minute, "it stays revoked since when it was")
}

func TestAnotherTenantsLongPollIsAnsweredAtOnce(t *testing.T) {
	s := newStage(t)
	door := openHTTP(t, s.client)
	s.startCharged(s.job("j1"))
	began := time.Now()
	door.get("/v1/jobs/j1", s.keyOf("other-"+s.tenant).Secret, "Prefer", "wait=60").refused(http.StatusNotFound, contract.CodeNotFound)
	assert.Less(t, time.Since(began), 30*time.Second, "how long it takes must not tell that there is such a job")
}
