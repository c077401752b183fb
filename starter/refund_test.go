package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// addOrder registers an order of 10,000 eur for 100 credits.
func (c *terminal) addOrder(id string, flags ...string) []string {
	return append([]string{"order", "add", id, "--account", "team-7", "--channel", "sim", "--payment", "pi_" + id,
		"--currency", "EUR", "--paid", "10000", "--credits", "100", "--key", "order " + id}, flags...)
}

func refundRequest(amount, key string, flags ...string) []string {
	return append([]string{"refund", "request", "--order", "o-1", "--amount", amount, "--key", key, "--reason", "asked for"}, flags...)
}

func TestOrderVerbs(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.refused("NotFound", "order", "show", "o-1")
	status, added := c.json(c.addOrder("o-1")...)
	assert.Equal(t, statusDone, status)
	assert.Equal(t, map[string]any{"already": false, "orderId": "o-1", "balance": 100.0}, added)
	assert.Equal(t, "Answer   already there: nothing moved now\nOrder    o-1\nAccount  team-7\nBalance  100\n",
		c.ok(c.addOrder("o-1")...))
	c.refused("Conflict", c.addOrder("o-2", "--key", "order o-1")...)
	message := c.refused("Conflict", c.addOrder("o-1", "--paid", "9000", "--currency", "usd")...)["message"]
	assert.Contains(t, message, `the key "order o-1" stands for another order (currency is eur, not usd, paid is 10000, not 9000)`)
	message = c.refused("Conflict", c.addOrder("o-1", "--credits", "1", "--key", "k")...)["message"]
	assert.Contains(t, message, "the order is there with other parameters (credits is 100, not 1): ")
	c.refused("Conflict", c.addOrder("o-2", "--payment", "pi_o-1")...)
	c.refused("BadInput", c.addOrder("o-2", "--asset", "TOKEN")...)
	refused := c.refused("BadInput", c.addOrder("o-2", "--paid", "0", "--currency", "euro")...)
	assert.Len(t, refused["fields"], 2)

	_, shown := c.json("order", "show", "o-1")
	assert.NotEmpty(t, shown["createdAt"])
	delete(shown, "createdAt")
	assert.Equal(t, map[string]any{
		"tenant": "acme", "orderId": "o-1", "account": "team-7", "channel": "sim", "payment": "pi_o-1", "currency": "eur",
		"paid": 10000.0, "reserved": 0.0, "refunded": 0.0, "left": 10000.0,
		"credits": 100.0, "reservedCredits": 0.0, "refundedCredits": 0.0, "leftCredits": 100.0, "refunds": []any{},
	}, shown)
	table := c.ok("order", "show", "o-1")
	assert.Regexp(t, `(?m)^Money +10000 paid, 0 refunded, 0 on its way back, 10000 left, in eur$`, table)
	assert.NotContains(t, table, "REFUND")
	c.refused("NotFound", "order", "show", "o-1", "--tenant", "globex")
}

func TestRefundVerbsWithoutTemporal(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.ok(c.addOrder("o-1")...)
	status, refund := c.json(refundRequest("2550", "k")...)
	assert.Equal(t, statusDone, status, "accepted while Temporal is away")
	id := contract.RefundNumber("acme", "cli:test", "k")
	assert.Equal(t, map[string]any{
		"refundId": id, "state": "accepted", "amount": 2550.0, "currency": "eur", "credits": 26.0, "created": true,
	}, refund)
	again := c.ok(refundRequest("2550", "k", "--currency", "eur")...)
	assert.Regexp(t, `(?m)^Answer +accepted before under this key: nothing moved now$`, again)
	assert.Regexp(t, `(?m)^Amount +2550 eur and 26 credits$`, again)
	assert.Contains(t, again, "refund status "+id+" --tenant acme")
	conflict := c.refused("Conflict", refundRequest("2551", "k")...)
	assert.Equal(t, "new_key", conflict["retry"])
	assert.Contains(t, conflict["message"], "repeat it with the first parameters; a new key makes another refund")
	assert.Equal(t, "new_key", c.refused("Conflict", refundRequest("2550", "k", "--credits", "0")...)["retry"])
	c.refused("CapacityExceeded", refundRequest("7451", "k2")...)
	c.refused("NotFound", "refund", "request", "--order", "o-2", "--amount", "1", "--key", "k2", "--reason", "r")
	c.refused("BadInput", refundRequest("0", "k2")...)
	c.refused("BadInput", refundRequest("1", "k2", "--currency", "usd")...)
	c.ok("account", "adjust", "team-7", "--amount", "-74", "--key", "t", "--operator", "ann", "--reason", "why")
	assert.Equal(t, "same_key", c.refused("InsufficientCredits", refundRequest("1", "k2")...)["retry"])
	_, goodwill := c.json(refundRequest("1", "k2", "--credits", "0")...)
	assert.Equal(t, 0.0, goodwill["credits"])

	shown := c.ok("refund", "status", id)
	assert.Regexp(t, `(?m)^Did it happen +No: it is accepted here and not sent yet\.$`, shown)
	assert.Regexp(t, `(?m)^Next look +-$`, shown)
	assert.Regexp(t, `(?m)^You can +go run ./starter refund resolve `+id+` --tenant acme --id cancel-0\.0 --action cancel `, shown)
	assert.Regexp(t, `(?m)^ +\(add --approver 'SECOND PERSON' if the channel asks for a second person\)$`, shown)
	assert.Regexp(t, `(?m)^TIME +WHAT +AMOUNT +BALANCE +IN WORDS$`, shown)
	assert.Regexp(t, `(?m)^\S+ +payout +-26 +74 +26 credits left account team-7 with the money$`, shown)
	assert.Equal(t, shown, c.ok("refund", "status", "--key", "k"))
	_, found := c.json("refund", "status", "--key", "k")
	for name, value := range map[string]any{
		"refundId": id, "state": "accepted", "orderId": "o-1", "needsReview": false, "actions": []any{"cancel"}, "issues": []any{},
	} {
		assert.Equal(t, value, found[name], name)
	}
	assert.Len(t, found["story"], 2)
	c.refused("NotFound", "refund", "status", "--key", "k", "--actor", "somebody else")
	c.refused("NotFound", "refund", "status", id, "--tenant", "globex")
	c.refused("BadInput", "refund", "status", "rf:1")
	c.sql("DELETE FROM reclaim.operations WHERE kind = 'refund'")
	assert.Equal(t, "never", c.refused("Expired", "refund", "status", "--key", "k")["retry"])

	resolve := []string{"refund", "resolve", id, "--id", "1", "--operator", "ann", "--reason", "why", "--action"}
	c.refused("BadResolution", append(resolve, "extend")...)
	refused := c.refused("BadResolution", append(resolve, "settle")...)
	assert.Len(t, refused["fields"], 3)
	c.refused("Unavailable", append(resolve, "cancel", "--timeout", "1s")...)

	order := c.ok("order", "show", "o-1")
	assert.Regexp(t, `(?m)^Money +10000 paid, 0 refunded, 2551 on its way back, 7449 left, in eur$`, order)
	assert.Regexp(t, `(?m)^REFUND +STATE +AMOUNT +CREDITS +ACCEPTED +REASON\n`+id+` +accepted +2550 +26 +\S+Z +asked for$`, order)
	assert.Contains(t, c.ok("account", "statement", "team-7"), "refund "+id)
	assert.Contains(t, c.ok("audit"), "1 order, 2 refunds")
}

func TestIssueVerbs(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	assert.Equal(t, "No issues (jobs that wait for a person are in the Web UI: ReclaimAttention = \"dead_letter\")\n", c.ok("issue", "list"))
	c.sql(`INSERT INTO reclaim.issues (tenant_id, issue_id, kind, subject_kind, subject_id, evidence, opened_at)
		VALUES ('acme', 'unknown_refund:re_1', 'unknown_refund', 'channel', 'sim', 'nobody asked for it', '2026-01-02T03:04:05Z'),
			('globex', 'other', 'k', 'channel', 'sim', 'e', now())`)
	assert.Equal(t, ""+
		"Issue     unknown_refund:re_1\n"+
		"State     open since 2026-01-02T03:04:05Z\n"+
		"Kind      unknown_refund\n"+
		"Subject   channel sim\n"+
		"Evidence  nobody asked for it\n"+
		"You can   go run ./starter issue resolve unknown_refund:re_1 --tenant acme --id resolve-1 --operator \"$USER\" --reason 'WHY'\n",
		c.ok("issue", "list"))
	_, listed := c.json("issue", "list")
	assert.Equal(t, []any{map[string]any{
		"issueId": "unknown_refund:re_1", "kind": "unknown_refund", "subjectKind": "channel", "subjectId": "sim",
		"evidence": "nobody asked for it", "state": "open", "openedAt": "2026-01-02T03:04:05Z",
	}}, listed["issues"])

	assert.Equal(t, []any{}, listed["refunds"])

	resolve := []string{"issue", "resolve", "unknown_refund:re_1", "--id", "t-1", "--operator", "ann", "--reason", "made by hand"}
	for range 2 {
		status, resolved := c.json(resolve...)
		assert.Equal(t, statusDone, status)
		assert.Equal(t, map[string]any{
			"id": "t-1", "issueId": "unknown_refund:re_1", "outcome": "applied", "state": "resolved",
		}, resolved)
	}
	c.refused("BadResolution", append(resolve, "--id", "t-2")...)
	c.refused("NotFound", append(resolve, "--tenant", "globex")...)
	_, listed = c.json("issue", "list")
	assert.Equal(t, []any{}, listed["issues"])
	all := c.ok("issue", "list", "--all")
	assert.Regexp(t, `(?m)^State +resolved at \S+, opened at 2026-01-02T03:04:05Z$`, all)
	assert.NotContains(t, all, "You can")
}

func TestIssueListNamesTheRefundsThatWaitForAPerson(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.ok(c.addOrder("o-1")...)
	ids := map[string]string{}
	for _, key := range []string{"quiet", "given up", "stuck", "done"} {
		_, refund := c.json(refundRequest("100", key)...)
		ids[key] = refund["refundId"].(string)
	}
	assert.Equal(t, "No issues (jobs that wait for a person are in the Web UI: ReclaimAttention = \"dead_letter\")\n", c.ok("issue", "list"))
	c.sql(`UPDATE reclaim.refunds SET needs_review = true, updated_at = '2026-01-02T03:04:05Z', first_sent_at = created_at,
			send_count = 1, look_until = created_at, state = 'unknown' WHERE refund_id = '` + ids["given up"] + `';
		UPDATE reclaim.refunds SET needs_review = true, updated_at = '2026-01-02T03:04:06Z'
			WHERE refund_id = '` + ids["stuck"] + `';
		UPDATE reclaim.refunds SET needs_review = true, first_sent_at = created_at, send_count = 1, state = 'failed',
			returned_at = created_at WHERE refund_id = '` + ids["done"] + `'`)
	_, listed := c.json("issue", "list")
	assert.Equal(t, []any{}, listed["issues"])
	refunds := listed["refunds"].([]any)
	require.Len(t, refunds, 2, "%v", refunds)
	assert.Equal(t, ids["stuck"], refunds[0].(map[string]any)["refundId"], "the newest first")
	assert.Contains(t, refunds[0].(map[string]any)["waitsFor"], "whether the worker's configuration has channel sim")
	assert.Equal(t, map[string]any{
		"refundId": ids["given up"], "orderId": "o-1", "state": "unknown", "since": "2026-01-02T03:04:05Z",
		"waitsFor": "a person's decision: resolve with settle, release, resend or extend",
	}, refunds[1])
	table := c.ok("issue", "list")
	assert.Contains(t, table, ""+
		"Refund     "+ids["given up"]+"\n"+
		"State      unknown since 2026-01-02T03:04:05Z\n"+
		"Order      o-1\n"+
		"Waits for  a person's decision: resolve with settle, release, resend or extend\n"+
		"You can    go run ./starter refund status "+ids["given up"]+" --tenant acme\n")
	_, listed = c.json("issue", "list", "--tenant", "globex")
	assert.Equal(t, []any{}, listed["refunds"])

	c.sql(`INSERT INTO reclaim.issues (tenant_id, issue_id, kind, subject_kind, subject_id, evidence, opened_at)
		VALUES ('acme', 'it''s odd', 'evidence_mismatch', 'refund', '` + ids["stuck"] + `', repeat('a word ', 30), now())`)
	table = c.ok("issue", "list")
	assert.Contains(t, table, ` issue resolve 'it'\''s odd' --tenant acme `)
	assert.Contains(t, table, "; and a person must look at its open issues")
	for row := range strings.Lines(table) {
		if !strings.HasPrefix(row, "You can") {
			assert.Less(t, len(row), 130, "%s", row)
		}
	}
	assert.Regexp(t, `(?m)^Evidence +a word .*\n +(a )?word `, table)
	assert.Contains(t, c.ok("refund", "status", ids["stuck"]), ` issue resolve 'it'\''s odd' --tenant acme `)
}

func TestTheOperatorIsWhoAsksUnlessNamed(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.sql(`INSERT INTO reclaim.issues (tenant_id, issue_id, kind, subject_kind, subject_id, evidence)
		VALUES ('acme', 'i-1', 'k', 'channel', 'sim', 'e')`)
	c.ok("issue", "resolve", "i-1", "--id", "1", "--operator", "", "--reason", "why")
	c.ok("issue", "resolve", "i-1", "--id", "1", "--operator", "cli:test", "--reason", "why")
	c.refused("BadResolution", "issue", "resolve", "i-1", "--id", "1", "--operator", "ann", "--reason", "why")
}

func TestAPayoutOfAJobNamesItsRefund(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.ok(c.addOrder("o-1")...)
	_, refund := c.json(refundRequest("100", "k")...)
	c.sql(`UPDATE reclaim.ledger_entries SET job_id = 'job-1' WHERE type = 'payout'`)
	assert.Contains(t, c.ok("account", "statement", "team-7"), "refund "+refund["refundId"].(string)+" of job job-1")
}

func TestJobStatusTellsWhatBecameOfARefundToItsSource(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	c.ok(c.addOrder("o-1")...)
	_, refund := c.json(refundRequest("100", "k")...)
	c.sql(`INSERT INTO reclaim.jobs (tenant_id, job_id, account_id, cost, fingerprint, state, spec, is_refunded, refunded_at)
			VALUES ('acme', 'stays', 'team-7', 1, 'v1:x', 'failed', '{}', true, now()),
				('acme', 'left', 'team-7', 1, 'v1:x', 'failed', '{}', true, now());
		INSERT INTO reclaim.job_events (tenant_id, job_id, kind, detail)
			VALUES ('acme', 'stays', 'source_refused', 'the credits stay on the account: it owes 3');
		UPDATE reclaim.refunds SET job_id = 'left'`)
	assert.Regexp(t, `(?m)^Refund +not sent to its source: the credits stay on the account: it owes 3$`, c.ok("job", "status", "stays"))
	_, status := c.json("job", "status", "stays")
	assert.Equal(t, "the credits stay on the account: it owes 3", status["note"])
	id := refund["refundId"].(string)
	assert.Regexp(t, `(?m)^Refund +`+id+`: go run ./starter refund status `+id+` --tenant acme$`, c.ok("job", "status", "left"))
	_, status = c.json("job", "status", "left")
	assert.Equal(t, id, status["refundId"])
}

func TestRefundVerbs(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Temporal server")
	}
	t.Parallel()
	s := newSystem(t)
	require.NoError(t, s.channel.AddPayment(simulator.Payment{Intent: "pi_o-1", Amount: 10_000, Currency: "eur"}))
	s.ok(s.addOrder("o-1")...)
	becomes := func(key, field string, value any) map[string]any {
		t.Helper()
		var refund map[string]any
		require.Eventually(t, func() bool {
			_, refund = s.json("refund", "status", "--key", key)
			return refund[field] == value
		}, 3*time.Minute, 100*time.Millisecond, "%s", key)
		return refund
	}

	s.ok(refundRequest("1000", "good")...)
	good := becomes("good", "state", "succeeded")
	assert.Equal(t, "Yes: the channel confirmed it.", good["didItHappen"])
	assert.NotEmpty(t, good["channelRef"])
	assert.Equal(t, 1, s.channel.Applied(good["refundId"].(string)))

	// The channel says nothing of these.
	s.channel.ScriptDefault(simulator.Script{
		Create: []simulator.Fault{{Kind: simulator.FaultLost, Times: -1}},
		Lookup: []simulator.Fault{{Kind: simulator.FaultError, Times: -1}},
	})
	s.ok(refundRequest("1000", "stuck")...)
	stuck := becomes("stuck", "needsReview", true)
	id := stuck["refundId"].(string)
	shown := s.ok("refund", "status", id)
	assert.Regexp(t, `(?m)^Did it happen +Unknown: `, shown)
	assert.Regexp(t, `(?m)^Waits for +a person's decision`, shown)
	assert.Regexp(t, `(?m)^Needs a person +yes$`, shown)
	_, paste, ok := strings.Cut(shown, " --action release ")
	require.True(t, ok, shown)
	paste, _, _ = strings.Cut(paste, "\n")
	assert.Equal(t, `--operator "$USER" --reason 'WHY' --amount AMOUNT --evidence 'HOW IT IS KNOWN'`, paste)

	many := []string{"refund", "resolve", "--query", `ReclaimAttention = "refund_unconfirmed"`, "--id", "bulk-1", "--action", "extend",
		"--operator", "ann", "--reason", "the channel is slow today"}
	require.Eventually(t, func() bool {
		_, found := s.json(append(many, "--dry-run")...)
		return found["decided"] == 1.0
	}, 30*time.Second, 100*time.Millisecond, "the server lists runs a moment later")
	assert.Regexp(t, `(?m)^`+id+` +applied +unknown$`, s.ok(many...))
	assert.Contains(t, s.ok("refund", "status", id, "--output", "json"), `"state":"unknown"`)
	becomes("stuck", "needsReview", true)
	many[7] = "settle"
	assert.Contains(t, s.refused("BadInput", many...)["message"], "decide each by itself")

	release := []string{"refund", "resolve", id, "--id", "r-1", "--action", "release", "--operator", "ann", "--reason", "asked them",
		"--evidence", "their mail", "--amount"}
	assert.Contains(t, s.refused("BadResolution", append(release, "999")...)["message"], "999 is not this refund's")
	for range 2 {
		status, answer := s.json(append(release, "1000")...)
		assert.Equal(t, statusDone, status)
		assert.Equal(t, map[string]any{"id": "r-1", "outcome": "applied", "state": "failed"}, answer)
	}
	s.refused("BadResolution", append(release, "1000", "--approver", "bob")...)
	assert.Contains(t, s.ok("refund", "status", id), "ann decided: no money moved and none will")
	status, report := s.json("audit")
	assert.Equal(t, statusDone, status, "%v", report)
	assert.Equal(t, 0.0, report["runs"].(map[string]any)["refundCount"], "%v", report["runs"])
}
