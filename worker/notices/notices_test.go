package notices_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/worker/notices"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// taker answers every notice so, and keeps the last.
type taker struct {
	taken activities.TakenNotice
	err   error
	name  string
	body  string
}

func (k *taker) TakeNotice(
	_ context.Context, name string, _ http.Header, body []byte, _ time.Time,
) (activities.TakenNotice, error) {
	k.name, k.body = name, string(body)
	return k.taken, k.err
}

func TestANoticeIsAcknowledgedOnlyOnceItIsRecordedAndTold(t *testing.T) {
	t.Parallel()
	ours := contract.RefundKey{Tenant: "acme", RefundID: "rf_1"}
	applied := activities.TakenNotice{Refund: ours, Applied: activities.AppliedEvidence{Verdict: activities.Applied}}
	repeated := activities.TakenNotice{Refund: ours, Applied: activities.AppliedEvidence{Verdict: activities.Already}}
	review := activities.TakenNotice{Refund: ours, Applied: activities.AppliedEvidence{Verdict: activities.Already, NeedsReview: true}}
	for name, test := range map[string]struct {
		taken   activities.TakenNotice
		err     error
		tellErr error
		status  int
		code    string
		told    string
	}{
		"applied":                 {taken: applied, status: 200, told: "rf_1 news"},
		"repeated":                {taken: repeated, status: 200, told: "rf_1 again"},
		"a reversal, repeated":    {taken: review, status: 200, told: "rf_1 news"},
		"that cannot be told":     {taken: applied, tellErr: serviceerror.NewPermissionDenied("no", ""), status: 200, told: "rf_1 news"},
		"about something else":    {status: 200},
		"of an unknown refund":    {taken: activities.TakenNotice{IssueID: "unknown_refund:1"}, status: 202},
		"applied and not told":    {taken: applied, tellErr: errors.New("Temporal is away"), status: 503, code: "Unavailable", told: "rf_1 news"},
		"the database is away":    {err: errors.New("connection refused"), status: 503, code: "Unavailable"},
		"and about nobody's then": {taken: activities.TakenNotice{IssueID: "x"}, err: errors.New("lost"), status: 503, code: "Unavailable"},
		"another's signature":     {err: &channel.NoticeError{Code: channel.NoticeBadSignature, Reason: "not its body's"}, status: 400, code: "bad_signature"},
		"too large for it":        {err: &channel.NoticeError{Code: channel.NoticeTooLarge, Reason: "over 256 KiB"}, status: 413, code: "too_large"},
		"no such channel":         {err: fmt.Errorf("channel: %w", channel.ErrUnknownChannel), status: 404, code: "unknown_channel"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := ""
			tell := func(_ context.Context, key contract.RefundKey, _ contract.ChannelNotice, news bool) error {
				told = key.RefundID + map[bool]string{true: " news", false: " again"}[news]
				return test.tellErr
			}
			k := &taker{taken: test.taken, err: test.err}
			answer := httptest.NewRecorder()
			notices.Handler(k, tell, zap.NewNop()).ServeHTTP(answer,
				httptest.NewRequest(http.MethodPost, "/v1/channels/bank/notices", strings.NewReader(`{"id":"evt_1"}`)))
			assert.Equal(t, test.status, answer.Code)
			assert.Equal(t, test.told, told)
			assert.Equal(t, [2]string{"bank", `{"id":"evt_1"}`}, [2]string{k.name, k.body}, "as it came, to the letter")
			if test.code == "" {
				return
			}
			assert.Equal(t, "application/problem+json", answer.Header().Get("Content-Type"))
			var problem struct{ Code, Detail string }
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &problem))
			assert.Equal(t, test.code, problem.Code)
			assert.NotContains(t, problem.Detail, "connection", "what is wrong here is not the channel's to know")
		})
	}
}

func TestABodyOverTheLimitIsNotRead(t *testing.T) {
	t.Parallel()
	k := &taker{}
	answer := httptest.NewRecorder()
	notices.Handler(k, nil, zap.NewNop()).ServeHTTP(answer,
		httptest.NewRequest(http.MethodPost, "/v1/channels/bank/notices", strings.NewReader(strings.Repeat("x", 5<<20))))
	assert.Equal(t, http.StatusRequestEntityTooLarge, answer.Code)
	assert.Empty(t, k.name, "nobody verifies it")
}
