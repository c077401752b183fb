package stripe_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/activities/channel/conformance"
	"github.com/reclaimhq/reclaim/activities/channel/simulator"
)

func TestConformanceWithTheSimulator(t *testing.T) {
	t.Parallel()
	for name, payment := range map[string]func() simulator.Payment{
		"by intent": func() simulator.Payment { return simulator.Payment{Intent: "pi_" + rand.Text()} },
		"by charge": func() simulator.Payment { return simulator.Payment{Charge: "ch_" + rand.Text()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim, received := startSimulator(t)
			s := openDoor(t, sim.URL(), nil).subject(t)
			s.Remembers, s.Idempotent, s.Caps, s.Refuses, s.PageSize = true, true, true, true, 100
			s.Notices = received.notices
			if name == "by intent" { // once is enough
				s.Elsewhere = func(t *testing.T, url string) channel.Channel { return open(t, url) }
			}
			s.Payment = func(t *testing.T, amount int64) string {
				p := payment()
				p.Amount, p.Currency = amount, s.Currency
				require.NoError(t, sim.AddPayment(p))
				return p.Intent + p.Charge // of which one is empty
			}
			conformance.Run(t, s)
		})
	}
}

func TestConformanceWithStripeMock(t *testing.T) {
	t.Parallel()
	s := startStripeMock(t).subject(t)
	s.Payment = func(*testing.T, int64) string { return "pi_" + rand.Text() }
	conformance.Run(t, s)
}

func TestConformanceWithStatefulMock(t *testing.T) {
	t.Parallel()
	door := startStatefulMock(t)
	s := door.subject(t)
	// Its refusals lack the code, or name another parameter than Stripe does.
	s.Remembers, s.Idempotent, s.Caps, s.Refuses, s.PageSize = true, true, true, false, 100
	s.Payment = func(t *testing.T, amount int64) string {
		return door.post(t, "/v1/charges", url.Values{
			"amount": {strconv.FormatInt(amount, 10)}, "currency": {s.Currency}, "source": {"tok_visa"},
		})
	}
	conformance.Run(t, s)
}

// debianPython is the one that sees Debian's python3-stripe, whatever else is called python3 on PATH.
const debianPython = "/usr/bin/python3"

// python verifies and signs webhooks with Stripe's own library: what it reads is {secret, verify: [{body, signature}],
// sign: [{body, time}]}, and what it prints {verified: [type of the event or of the error], signed: [v1]}.
const python = `
import json, sys, stripe
asked = json.load(sys.stdin)
def verify(one):
    try:
        event = stripe.Webhook.construct_event(one["body"], one["signature"], asked["secret"])
        return [event.type, event.data.object.id]
    except Exception as error:
        return [type(error).__name__]
def sign(one):
    return stripe.WebhookSignature._compute_signature("%d.%s" % (one["time"], one["body"]), asked["secret"])
json.dump({"verified": [verify(one) for one in asked["verify"]], "signed": [sign(one) for one in asked["sign"]]}, sys.stdout)
`

// pythonAsked and pythonSaid are what the program above reads and prints.
type (
	pythonAsked struct {
		Secret string       `json:"secret"`
		Verify []pythonBody `json:"verify"`
		Sign   []pythonBody `json:"sign"`
	}
	pythonBody struct {
		Body      string `json:"body"`
		Signature string `json:"signature"`
		Time      int64  `json:"time"`
	}
	pythonSaid struct {
		Verified [][]string `json:"verified"`
		Signed   []string   `json:"signed"`
	}
)

func askPython(t *testing.T, asked pythonAsked) (said pythonSaid) {
	t.Helper()
	if exec.Command(debianPython, "-I", "-c", "import stripe").Run() != nil {
		t.Skipf("%s has no Debian package python3-stripe: make prepare", debianPython)
	}
	input, err := json.Marshal(asked)
	require.NoError(t, err)
	var output, complaints bytes.Buffer
	command := exec.CommandContext(t.Context(), debianPython, "-I", "-c", python)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), &output, &complaints
	require.NoError(t, command.Run(), "%s", &complaints)
	require.NoError(t, json.Unmarshal(output.Bytes(), &said), "%s", &output)
	return said
}

func TestWebhooksAgreeWithStripesPython(t *testing.T) {
	t.Parallel()
	sim, received := startSimulator(t)
	c := open(t, sim.URL())
	require.NoError(t, sim.AddPayment(simulator.Payment{Intent: "pi_1", Amount: 1000, Currency: "usd"}))
	sim.Script("n1", simulator.Script{Life: []simulator.Step{
		{Status: "pending"}, {Status: "succeeded", After: time.Hour}, {Status: "failed", After: 2 * time.Hour},
	}})
	made, err := c.Submit(t.Context(), channel.Refund{Number: "n1", Payment: "pi_1", Amount: 400, Currency: "usd"})
	require.NoError(t, err)
	sim.Advance(3 * time.Hour)

	asked := pythonAsked{Secret: webhookSecret}
	var types []string
	for _, sent := range received.notices(t) {
		notice, err := c.ParseNotice(sent.Header, sent.Body, time.Now())
		require.NoError(t, err)
		types = append(types, notice.Type)
		signature := sent.Header.Get("Stripe-Signature")
		asked.Verify = append(asked.Verify,
			pythonBody{Body: string(sent.Body), Signature: signature},
			pythonBody{Body: string(sent.Body) + " ", Signature: signature})
	}
	require.Subset(t, types, []string{"refund.created", "refund.updated", "refund.failed", "charge.refund.updated"})
	now := time.Now()
	for _, body := range []string{
		`{"id":"evt_1","object":"event","type":"refund.updated","data":{"object":{"id":"re_1","object":"refund","amount":400,` +
			`"currency":"usd","status":"succeeded","metadata":{"reclaim_refund":"n1","note":"Grüße, 你好 \"quoted\""}}}}`,
		"{\n  \"id\": \"evt_2\",\n  \"object\": \"event\",\n  \"type\": \"payout.paid\",\n  \"data\": {\"object\": {}}\n}\n",
	} {
		asked.Sign = append(asked.Sign, pythonBody{Body: body, Time: now.Unix()})
	}

	said := askPython(t, asked)
	require.Len(t, said.Verified, 2*len(types))
	for i, kind := range types {
		assert.Equal(t, []string{kind, made.Reference}, said.Verified[2*i], "Python accepts what the simulator signs")
		assert.Equal(t, []string{"SignatureVerificationError"}, said.Verified[2*i+1])
	}
	require.Len(t, said.Signed, len(asked.Sign))
	for i, signed := range asked.Sign {
		stamp := "t=" + strconv.FormatInt(signed.Time, 10)
		for _, header := range []string{
			stamp + ",v1=" + said.Signed[i],
			stamp + ",v1=" + said.Signed[i] + ",v0=" + said.Signed[i],
			stamp + ",v1=00" + said.Signed[i][2:] + ",v1=" + said.Signed[i], // while a secret is rolled
		} {
			notice, err := c.ParseNotice(http.Header{"Stripe-Signature": {header}}, []byte(signed.Body), now)
			require.NoError(t, err, header)
			assert.NotEmpty(t, notice.ID)
			assert.Equal(t, i == 0, notice.Evidence != nil)
		}
		_, err := c.ParseNotice(http.Header{"Stripe-Signature": {stamp + ",v1=" + said.Signed[(i+1)%2]}}, []byte(signed.Body), now)
		var refused *channel.NoticeError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, channel.NoticeBadSignature, refused.Code)
	}
}
