package conformance

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

func requireRefused(t *testing.T, err error, codes ...string) {
	t.Helper()
	var refused *channel.NoticeError
	require.ErrorAs(t, err, &refused)
	assert.NotEmpty(t, refused.Reason)
	assert.Contains(t, codes, refused.Code)
}

func foreignNotices(t *testing.T, s Subject) {
	junk := http.Header{}
	for name := range s.signed([]byte("{}"), time.Now()) {
		junk.Set(name, "junk")
	}
	for name, body := range map[string]string{
		"no body": "", "rubbish": "rubbish", "JSON": `{}`, "null": `null`, "binary": "\x00\xff\xfe",
		"event": `{"id":"evt_1","object":"event","type":"refund.updated","data":{"object":{}}}`,
	} {
		for _, header := range []http.Header{nil, {}, junk} {
			notice, err := s.Channel.ParseNotice(header, []byte(body), time.Now())
			requireRefused(t, err, channel.NoticeBadSignature)
			assert.Zero(t, notice, name)
		}
	}
	_, err := s.Channel.ParseNotice(junk, make([]byte, s.Channel.Capabilities().MaxNotice+1), time.Now())
	requireRefused(t, err, channel.NoticeTooLarge)
}

// signed is a signed header, or an empty one where nobody can sign.
func (s Subject) signed(body []byte, at time.Time) http.Header {
	if s.Sign == nil {
		return http.Header{}
	}
	return s.Sign(body, at)
}

func notices(t *testing.T, s Subject) {
	before := len(s.Notices(t))
	r := s.refund(s.Payment(t, 1000), 400)
	r.Reference = s.submit(t, r).Reference
	told := s.Notices(t)[before:]
	require.NotEmpty(t, told)
	tolerance := s.Channel.Capabilities().NoticeTolerance
	about := 0
	for _, sent := range told {
		now := time.Now()
		notice, err := s.Channel.ParseNotice(sent.Header, sent.Body, now)
		require.NoError(t, err)
		assert.NotEmpty(t, notice.ID)
		assert.NotEmpty(t, notice.Type)
		again, err := s.Channel.ParseNotice(sent.Header, sent.Body, now)
		require.NoError(t, err)
		assert.Equal(t, notice, again)
		if notice.Evidence != nil {
			s.check(t, *notice.Evidence)
			s.acknowledged(t, *notice.Evidence, r)
			about++
		}

		_, err = s.Channel.ParseNotice(sent.Header, append([]byte(" "), sent.Body...), now)
		requireRefused(t, err, channel.NoticeBadSignature)
		_, err = s.Channel.ParseNotice(sent.Header, []byte(strings.Replace(string(sent.Body), "400", "900", 1)), now)
		requireRefused(t, err, channel.NoticeBadSignature)
		for _, late := range []time.Duration{tolerance + time.Minute, -tolerance - time.Minute} {
			_, err = s.Channel.ParseNotice(sent.Header, sent.Body, now.Add(late))
			requireRefused(t, err, channel.NoticeStale)
		}
	}
	assert.Positive(t, about, "no notice is about the refund")
}

func signedRubbish(t *testing.T, s Subject) {
	now := time.Now()
	for name, body := range map[string]string{
		"no body": "", "rubbish": "rubbish", "empty": `{}`, "null": `null`, "list": `[]`, "text": `"event"`, "binary": "\x00\xff\xfe",
		"cut": `{"id":"evt_1","object":"event","type":"refund.upd`,
	} {
		notice, err := s.Channel.ParseNotice(s.Sign([]byte(body), now), []byte(body), now)
		requireRefused(t, err, channel.NoticeMalformed)
		assert.Zero(t, notice, name)
	}
	large := []byte("{" + strings.Repeat(" ", s.Channel.Capabilities().MaxNotice) + "}")
	_, err := s.Channel.ParseNotice(s.Sign(large, now), large, now)
	requireRefused(t, err, channel.NoticeTooLarge)
}

func settlement(t *testing.T, s Subject) {
	for name, file := range map[string]string{
		"empty": "", "newlines": "\n\n\n", "binary": "\x00\xff\xfe\n\x00", "no heading": "1,2,3\n4,5,6\n", "quotes": "\"a\n\"b\",\"\n",
		"long line": strings.Repeat("a,", 100_000),
	} {
		for line, err := range s.Channel.Settlement(strings.NewReader(file)) {
			if err == nil {
				assert.Fail(t, "rubbish is read as a line", "%s: %+v", name, line)
			}
			assert.GreaterOrEqual(t, line.Line, 0)
		}
		enough := func(channel.SettlementLine, error) bool { return false }
		s.Channel.Settlement(strings.NewReader(file))(enough)
	}
}
