package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

// loadFile reads a channels file of this text in an environment of these variables, and gives the folder it is in.
func loadFile(t *testing.T, text string, variables map[string]string) ([]ChannelConfig, error) {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, "channels.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "key.txt"), []byte("sk_file\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "windows.txt"), []byte("whsec_file\r\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "empty.txt"), []byte("\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "twice.txt"), []byte("sk_s3cret\n\n"), 0o600))
	all := map[string]string{"DATABASE_URL": goodURL, "RECLAIM_CHANNELS": path, "KEY": "sk_s3cret", "HOOK": "whsec_s3cret"}
	for name, value := range variables {
		all[name] = value
	}
	c, err := load(t, all)
	if err != nil {
		assert.NotContains(t, err.Error(), "s3cret")
		assert.Empty(t, c.Channels)
	}
	return c.Channels, err
}

func TestChannels(t *testing.T) {
	channels, err := loadFile(t, `
[[channel]]
name = "stripe-main"
kind = "stripe"
tenants = ["acme", "umbrella"]
api_key_env = "KEY"
webhook_secret_env = "HOOK"
base_url = ""
first_query = "1m"
poll = ["1m", "5m", "30m", "6h"]
give_up = "72h"
second_person_from = 50000

[[channel]]
name = "stripe:2"
kind = "stripe"
api_key_file = "key.txt"
webhook_secret_file = "windows.txt"
base_url = "http://127.0.0.1:12111"
second_person_from = 0
`, nil)
	require.NoError(t, err)
	set := ChannelSet(channels)
	for i := range channels {
		require.NotNil(t, channels[i].opened)
		channels[i].opened = nil
	}
	some, never := int64(50000), int64(0)
	assert.Equal(t, []ChannelConfig{
		{
			Name: "stripe-main", Kind: "stripe", Tenants: []string{"acme", "umbrella"},
			APIKey: NewSecret("sk_s3cret"), WebhookSecret: NewSecret("whsec_s3cret"),
			Overrides: channel.Overrides{
				FirstQuery: time.Minute, Poll: []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 6 * time.Hour},
				GiveUp: 72 * time.Hour, SecondPersonFrom: &some,
			},
		}, {
			Name: "stripe:2", Kind: "stripe", APIKey: NewSecret("sk_file"), WebhookSecret: NewSecret("whsec_file"),
			BaseURL: "http://127.0.0.1:12111", Overrides: channel.Overrides{SecondPersonFrom: &never},
		},
	}, channels)

	assert.Equal(t, []string{"stripe-main", "stripe:2"}, set.Names())
	main, err := set.Get("stripe-main", "acme")
	require.NoError(t, err)
	assert.Equal(t, 6*time.Hour, main.Capabilities().Poll[3])
	assert.Equal(t, "stripe", main.Capabilities().Kind)
	_, err = set.Get("stripe-main", "other")
	require.ErrorIs(t, err, channel.ErrNotForTenant)
	second, err := set.Get("stripe:2", "other")
	require.NoError(t, err)
	assert.Equal(t, adapters["stripe"].declares().Poll, second.Capabilities().Poll)
}

func TestNoChannels(t *testing.T) {
	c, err := load(t, map[string]string{"DATABASE_URL": goodURL})
	require.NoError(t, err)
	assert.Empty(t, c.Channels)
}

// channelText is a [[channel]] without a mistake, changed as the replacements say: a key and its new line, "" for none.
func channelText(replace map[string]string) string {
	keys := []string{"name", "kind", "api_key_env", "webhook_secret_env"}
	lines := map[string]string{
		"name": `name = "main"`, "kind": `kind = "stripe"`,
		"api_key_env": `api_key_env = "KEY"`, "webhook_secret_env": `webhook_secret_env = "HOOK"`,
	}
	for key, line := range replace {
		if _, ok := lines[key]; !ok {
			keys = append(keys, key)
		}
		lines[key] = line
	}
	text := "[[channel]]\n"
	for _, key := range keys {
		text += lines[key] + "\n"
	}
	return text
}

func TestChannelMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		key, line string
		says      string
	}{
		"no name":                {"name", ``, `channel 1: name is missing`},
		"empty name":             {"name", `name = ""`, `channel 1: name is missing`},
		"name of another type":   {"name", `name = 7`, `channel 1: name must be a text`},
		"name that is no id":     {"name", `name = "a b%d"`, `channel 1: name must be 1 to 100 characters of A-Z a-z 0-9 . _ : -, not "a b%d"`},
		"no kind":                {"kind", ``, `channel "main": kind is missing`},
		"unknown kind":           {"kind", `kind = "paypal"`, `channel "main": kind is "paypal", but this release knows only: simulator, stripe`},
		"adapter's own rule":     {"kind", `kind = "simulator"`, `channel "main": kind refuses the rest: base_url is missing`},
		"tenants as a text":      {"tenants", `tenants = "acme"`, `channel "main": tenants must be an array of texts`},
		"tenants of two types":   {"tenants", `tenants = ["acme", 7]`, `tenants must be an array of texts`},
		"tenant that is no id":   {"tenants", `tenants = ["acme", "b/c"]`, `tenants[1] must be 1 to 100 characters of A-Z a-z 0-9 . _ : -, not "b/c"`},
		"no key":                 {"api_key_env", ``, `api_key_env is missing (or api_key_file)`},
		"no webhook secret":      {"webhook_secret_env", ``, `webhook_secret_env is missing (or webhook_secret_file)`},
		"key twice":              {"api_key_file", `api_key_file = "key.txt"`, `api_key_env and api_key_file are both given: keep one`},
		"key not set":            {"api_key_env", `api_key_env = "NONE"`, `api_key_env names NONE, which is empty or not set`},
		"no variable's name":     {"api_key_env", `api_key_env = ""`, `api_key_env names a variable, which is empty or not set`},
		"key instead of name":    {"api_key_env", `api_key_env = "sk_s3cret"`, `api_key_env names a variable, which is empty or not set`},
		"name of another kind":   {"api_key_env", `api_key_env = ["KEY"]`, `api_key_env must be the name of an environment variable`},
		"key with a blank":       {"api_key_env", `api_key_env = "BLANK"`, `api_key_env names BLANK, in which there is a blank, a line break or`},
		"no such file":           {"api_key_env", `api_key_file = "none.txt"`, `api_key_file names none.txt, which cannot be read: no such file or directory`},
		"key instead of file":    {"webhook_secret_env", `webhook_secret_file = "whsec_s3cret"`, `webhook_secret_file names a file, which cannot be read`},
		"no file's name":         {"api_key_env", `api_key_file = ""`, `api_key_file names a file, which cannot be read`},
		"empty file":             {"api_key_env", `api_key_file = "empty.txt"`, `api_key_file names empty.txt, which is empty or not set`},
		"only one newline":       {"api_key_env", `api_key_file = "twice.txt"`, `api_key_file names twice.txt, in which there is a blank`},
		"key itself":             {"api_key", `api_key = "sk_s3cret"`, `unknown key "api_key"`},
		"misspelt key":           {"giveup", `giveup = "72h"`, `channel "main": unknown key "giveup"`},
		"table inside":           {"poll", "[channel.poll]\nfirst = \"1m\"", `poll must be an array of durations`},
		"relative address":       {"base_url", `base_url = "api.stripe.com"`, `base_url must be a URL such as https://host`},
		"no host":                {"base_url", `base_url = "https:///v1"`, `base_url must be a URL`},
		"other scheme":           {"base_url", `base_url = "ftp://localhost"`, `base_url must be a URL`},
		"no URL":                 {"base_url", `base_url = "https://a b"`, `base_url must be a URL`},
		"plain text":             {"base_url", `base_url = "http://stripe.example"`, `base_url must begin with https://`},
		"plain text nearby":      {"base_url", `base_url = "http://127.0.0.1.example:80"`, `base_url must begin with https://`},
		"user":                   {"base_url", `base_url = "https://user:s3cret@host"`, `base_url must have no user`},
		"query":                  {"base_url", `base_url = "https://host/?key=s3cret"`, `base_url must have no user, query or fragment`},
		"no duration":            {"first_query", `first_query = "soon"`, `first_query must be a duration over 0, such as "90s" or "72h", not "soon"`},
		"duration without quote": {"first_query", `first_query = 60`, `first_query must be a duration in quotes`},
		"no time":                {"first_query", `first_query = "0s"`, `first_query must be a duration over 0`},
		"negative":               {"give_up", `give_up = "-1h"`, `give_up must be a duration over 0`},
		"first look-up too soon": {"first_query", `first_query = "1ms"`, `first_query is 1ms, but look-ups of one refund must be`},
		"first look-up too late": {"first_query", `first_query = "2000h"`, `first_query is 2000h0m0s, after the refund is given up: give_up is`},
		"give up too soon":       {"give_up", `give_up = "1ms"`, `give_up is 1ms, before the first look-up: first_query is`},
		"give up too late":       {"give_up", `give_up = "721h"`, `give_up is 721h0m0s, over 30 days`},
		"no pauses":              {"poll", `poll = []`, `poll is empty: name a pause, or leave the key out`},
		"pause that is none":     {"poll", `poll = ["1h", "x"]`, `poll[1] must be a duration over 0`},
		"pause too short":        {"poll", `poll = ["1h", "1ms"]`, `poll[1] is 1ms, but look-ups of one refund must be`},
		"pauses as a text":       {"poll", `poll = "1m"`, `poll must be an array of durations in quotes`},
		"negative amount":        {"second_person_from", `second_person_from = -1`, `second_person_from must not be negative; 0 means never`},
		"amount with a point":    {"second_person_from", `second_person_from = 1.5`, `second_person_from must be a whole number`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadFile(t, channelText(map[string]string{tc.key: tc.line}), map[string]string{"BLANK": "sk_s3cret\n"})
			require.ErrorContains(t, err, tc.says)
			assert.Regexp(t, `^RECLAIM_CHANNELS: /\S*/channels\.toml: `, err.Error())
			assert.NotContains(t, err.Error(), "%!")
			assert.Len(t, mistakesIn(err), 1, err.Error())
		})
	}
}

// mistakesIn gives the single errors that are joined in one.
func mistakesIn(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, one := range joined.Unwrap() {
		all = append(all, mistakesIn(one)...)
	}
	return all
}

func TestChannelsFileMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ text, says string }{
		"empty":              {``, `channels.toml: [[channel]] is missing: write one, or unset RECLAIM_CHANNELS`},
		"empty array":        {`channel = []`, `[[channel]] is missing`},
		"one table":          {`[channel]`, `channel must be written as [[channel]]`},
		"array of texts":     {`channel = ["main"]`, `channel must be written as [[channel]]`},
		"two names":          {channelText(nil) + channelText(nil), `channel "main": name is that of channel 1, too`},
		"not TOML":           {"[[channel]]\nname = main", `channels.toml: line 2: is not TOML: expected value but found … instead`},
		"key twice":          {"a = 1\na = 2", `is not TOML: Key 'a' has already been defined`},
		"secret unquoted":    {"[[channel]]\napi_key = 1.s3cret", `line 2: is not TOML`},
		"number unquoted":    {"[[channel]]\napi_key = 12_s3cret", `line 2: is not TOML`},
		"secret in a date":   {"[[channel]]\napi_key = 2026-13-01", `line 2: is not TOML`},
		"escape in secret":   {"[[channel]]\napi_key = \"s3cret\\xZZ\"", `line 2: is not TOML`},
		"not closed":         {"[[channel]]\napi_key = \"s3cret", `line 2: is not TOML`},
		"invalid UTF-8":      {"[[channel]]\napi_key = \"s3cret\xff\"", `is not TOML`},
		"unknown in the top": {"channels = 1\n" + channelText(nil), `channels.toml: unknown key "channels"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadFile(t, tc.text, nil)
			require.ErrorContains(t, err, tc.says)
			assert.NotContains(t, err.Error(), "2026-13")
			assert.Len(t, mistakesIn(err), 1, err.Error())
		})
	}
	_, err := load(t, map[string]string{"DATABASE_URL": goodURL, "RECLAIM_CHANNELS": "/none/channels.toml"})
	require.ErrorContains(t, err, "RECLAIM_CHANNELS: /none/channels.toml: cannot be read: no such file or directory")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestChannelsInOneLineEach(t *testing.T) {
	channels, err := loadFile(t, `channel = [
		{name = "a", kind = "stripe", api_key_env = "KEY", webhook_secret_env = "HOOK", poll = ["1m"]},
		{name = "b", kind = "stripe", api_key_env = "KEY", webhook_secret_env = "HOOK", base_url = "http://[::1]:1"},
	]`, nil)
	require.NoError(t, err)
	require.Len(t, channels, 2)
	assert.Equal(t, []time.Duration{time.Minute}, channels[0].Poll)
}

func TestEveryMistakeInTheChannelsIsReportedAtOnce(t *testing.T) {
	_, err := loadFile(t, `
top = 1
[[channel]]
name = "a"
kind = "stripe"
tenants = ["", "x y"]
api_key_env = "NONE"
base_url = "http://example"
first_query = "x"
poll = ["1ms", "y"]
give_up = "10000h"
second_person_from = -5
other = 1
[[channel]]
name = "b b"
kind = "other"
api_key_file = "none.txt"
webhook_secret_env = "HOOK"
webhook_secret_file = "key.txt"
`, map[string]string{"RECLAIM_CONNECTIONS": "0"})
	require.Error(t, err)
	said := []string{"RECLAIM_CONNECTIONS must", `unknown key "top"`}
	for _, key := range []string{
		"tenants[0]", "tenants[1]", "api_key_env", "webhook_secret_env", "base_url", "first_query", "poll[0]", "poll[1]",
		"give_up", "second_person_from",
	} {
		said = append(said, `channels.toml: channel "a": `+key)
	}
	said = append(said, `channel "a": unknown key "other"`, `channel 2: name`, `channel 2: kind`,
		`channel 2: api_key_file`, `channel 2: webhook_secret_env and`)
	for _, says := range said {
		assert.ErrorContains(t, err, says)
	}
	assert.Len(t, mistakesIn(err), len(said), err.Error())
}

func TestSecretIsNeverShown(t *testing.T) {
	secret := NewSecret("s3cret")
	assert.Equal(t, "s3cret", secret.Reveal())
	assert.Empty(t, Secret{}.Reveal())
	type hidden struct{ inner struct{ key Secret } }
	var deep hidden
	deep.inner.key = secret
	c := ChannelConfig{Name: "main", APIKey: secret, WebhookSecret: secret}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p", "%10s", "%w"} {
		for _, value := range []any{secret, &secret, c, &c, []Secret{secret}, map[string]Secret{"k": secret}, deep, &deep, errors.Join(fmt.Errorf("%v", c))} {
			text := fmt.Sprintf(verb, value)
			assert.NotContains(t, text, "s3cret", verb)
			assert.NotContains(t, strings.ToLower(text), "733363726574", verb)
		}
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "s3cret")
	assert.Contains(t, string(text), `"APIKey":"(secret)"`)
	text, err = json.Marshal(map[Secret]int{secret: 1})
	require.NoError(t, err)
	assert.JSONEq(t, `{"(secret)":1}`, string(text))
}
