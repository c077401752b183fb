package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// ChannelConfig is one [[channel]] of the file that RECLAIM_CHANNELS names.
type ChannelConfig struct {
	// Name is what orders refer to, Kind the adapter.
	Name, Kind string
	// Tenants are those who may use it. None named: every tenant.
	Tenants []string
	// APIKey signs what is asked of the channel, and the channel signs its webhooks with WebhookSecret.
	APIKey, WebhookSecret Secret
	// BaseURL is where the channel is asked, empty for its own address.
	BaseURL string
	// Overrides is what the file declares otherwise than the adapter.
	channel.Overrides

	opened channel.Channel
}

// longestGiveUp bounds give_up: until then a refund that nobody confirms holds an order's capacity unseen.
const longestGiveUp = 30 * 24 * time.Hour

// channelsFile reads one file and gathers what is wrong with it.
type channelsFile struct {
	path     string
	getenv   func(string) string
	mistakes []error
}

// loadChannels reads the file that RECLAIM_CHANNELS names. The error joins every mistake, each naming the file, the
// channel and the key, and none of them a secret.
func loadChannels(path string, getenv func(string) string) ([]ChannelConfig, error) {
	f := &channelsFile{path: path, getenv: getenv}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("RECLAIM_CHANNELS: %s: cannot be read: %w", path, systemError(err))
	}
	var file map[string]any
	if err := toml.Unmarshal(text, &file); err != nil {
		f.mistake("", "%s", syntaxMistake(err))
		return nil, errors.Join(f.mistakes...)
	}
	// Each key is taken out of its table when it is read; what is left over is unknown.
	root := table{f, "", file}
	_, given := file["channel"]
	tables, ok := takeAll[map[string]any](root, "channel", "written as [[channel]]")
	if !given || ok && len(tables) == 0 {
		root.mistake("[[channel]]", "is missing: write one, or unset RECLAIM_CHANNELS")
	}
	root.refuseRest()
	var channels []ChannelConfig
	first := map[string]int{}
	for i, keys := range tables {
		c := f.channel(i+1, keys)
		if n, known := first[c.Name]; !known {
			first[c.Name] = i + 1
		} else if c.Name != "" {
			f.mistake(fmt.Sprintf("channel %q", c.Name), "name is that of channel %d, too", n)
		}
		channels = append(channels, c)
	}
	if len(f.mistakes) > 0 {
		return nil, errors.Join(f.mistakes...)
	}
	return channels, nil
}

// ChannelSet gives the activities the channels that Load returned, with their overrides.
func ChannelSet(loaded []ChannelConfig) channel.Set {
	members := map[string]channel.Member{}
	for _, c := range loaded {
		members[c.Name] = channel.Member{Channel: channel.Override(c.opened, c.Overrides), Tenants: c.Tenants}
	}
	return channel.NewSet(members)
}

func (f *channelsFile) mistake(where, format string, args ...any) {
	if where != "" {
		where += ": "
	}
	f.mistakes = append(f.mistakes, fmt.Errorf("RECLAIM_CHANNELS: %s: %s%s", f.path, where, fmt.Sprintf(format, args...)))
}

// channel reads one [[channel]].
func (f *channelsFile) channel(number int, keys map[string]any) ChannelConfig {
	t, before := table{f, fmt.Sprintf("channel %d", number), keys}, len(f.mistakes)
	c := ChannelConfig{Name: t.required("name")}
	if contract.ValidID(c.Name) {
		t.where = fmt.Sprintf("channel %q", c.Name)
	} else if c.Name != "" {
		t.mistake("name", notID, c.Name)
	}
	c.Kind = t.required("kind")
	c.Tenants, _ = takeAll[string](t, "tenants", "an array of texts")
	for i, tenant := range c.Tenants {
		if !contract.ValidID(tenant) {
			t.mistake(fmt.Sprintf("tenants[%d]", i), notID, tenant)
		}
	}
	c.APIKey = t.secret("api_key")
	c.WebhookSecret = t.secret("webhook_secret")
	adapter, known := adapters[c.Kind]
	c.BaseURL = t.url("base_url", adapter.isPlay)
	c.FirstQuery = t.duration("first_query")
	c.Poll = t.durations("poll")
	c.GiveUp = t.duration("give_up")
	if n, ok := take[int64](t, "second_person_from", "a whole number"); ok {
		c.SecondPersonFrom = &n
		if n < 0 {
			t.mistake("second_person_from", "must not be negative; 0 means never")
		}
	}
	if known {
		t.checkBounds(c.Overrides, adapter.declares())
	} else if c.Kind != "" {
		t.mistake("kind", "is %q, but this release knows only: %s", c.Kind, strings.Join(slices.Sorted(maps.Keys(adapters)), ", "))
	}
	t.refuseRest()
	if known && len(f.mistakes) == before {
		var err error
		if c.opened, err = adapter.open(c); err != nil {
			t.mistake("kind", "refuses the rest: %v", err)
		}
	}
	return c
}

const notID = "must be 1 to 100 characters of A-Z a-z 0-9 . _ : -, not %.100q"

// checkBounds holds the overrides against what the adapter declares.
func (t table) checkBounds(o channel.Overrides, declared channel.Capabilities) {
	inForce := o.Apply(declared)
	checkPause := func(key string, pause time.Duration) {
		if pause > 0 && pause < declared.MinSpacing {
			t.mistake(key, "is %s, but look-ups of one refund must be %s apart at %s", pause, declared.MinSpacing, declared.Kind)
		}
	}
	checkPause("first_query", o.FirstQuery)
	for i, pause := range o.Poll {
		checkPause(fmt.Sprintf("poll[%d]", i), pause)
	}
	switch {
	case inForce.GiveUp > longestGiveUp:
		t.mistake("give_up", "is %s, over 30 days", inForce.GiveUp)
	case o.GiveUp > 0 && o.GiveUp < inForce.FirstQuery:
		t.mistake("give_up", "is %s, before the first look-up: first_query is %s", o.GiveUp, inForce.FirstQuery)
	case o.FirstQuery > inForce.GiveUp:
		t.mistake("first_query", "is %s, after the refund is given up: give_up is %s", o.FirstQuery, inForce.GiveUp)
	}
}

// table is the keys of one TOML table that have not been taken yet.
type table struct {
	file  *channelsFile
	where string
	keys  map[string]any
}

func (t table) mistake(key, format string, args ...any) {
	t.file.mistake(t.where, "%s %s", key, fmt.Sprintf(format, args...))
}

// take removes the key from the table and returns its value. ok is false where the key is not there, or is of another
// type, which is then reported.
func take[T any](t table, key, what string) (value T, ok bool) {
	found, given := t.keys[key]
	delete(t.keys, key)
	if value, ok = found.(T); given && !ok {
		t.mistake(key, "must be %s", what)
	}
	return value, ok
}

// takeAll is take for an array.
func takeAll[T any](t table, key, what string) ([]T, bool) {
	found, given := t.keys[key]
	delete(t.keys, key)
	if values, ok := found.([]T); ok || !given {
		return values, ok
	}
	all, ok := found.([]any)
	var values []T
	for _, one := range all {
		value, right := one.(T)
		ok = ok && right
		values = append(values, value)
	}
	if !ok {
		t.mistake(key, "must be %s", what)
		return nil, false
	}
	return values, true
}

// refuseRest reports every key that nothing has taken.
func (t table) refuseRest() {
	for _, key := range slices.Sorted(maps.Keys(t.keys)) {
		t.file.mistake(t.where, "unknown key %q", key)
	}
}

func (t table) required(key string) string {
	_, given := t.keys[key]
	text, ok := take[string](t, key, "a text")
	if !given || ok && text == "" {
		t.mistake(key, "is missing")
	}
	return text
}

func (t table) duration(key string) time.Duration {
	text, ok := take[string](t, key, `a duration in quotes, such as "90s" or "72h"`)
	if !ok {
		return 0
	}
	return t.parseDuration(key, text)
}

func (t table) durations(key string) []time.Duration {
	texts, ok := takeAll[string](t, key, `an array of durations in quotes, such as ["1m", "1h"]`)
	if !ok {
		return nil
	}
	if len(texts) == 0 {
		t.mistake(key, "is empty: name a pause, or leave the key out")
	}
	pauses := make([]time.Duration, len(texts))
	for i, text := range texts {
		pauses[i] = t.parseDuration(fmt.Sprintf("%s[%d]", key, i), text)
	}
	return pauses
}

func (t table) parseDuration(key, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.mistake(key, `must be a duration over 0, such as "90s" or "72h", not %.40q`, text)
		return 0
	}
	return d
}

// url reads where the channel is asked. No message has its value: a password may be in it.
func (t table) url(key string, plainText bool) string {
	text, _ := take[string](t, key, "a text")
	if text == "" {
		return ""
	}
	parsed, err := url.Parse(text)
	switch {
	case err != nil || parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Hostname() == "":
		t.mistake(key, "must be a URL such as https://host")
	case parsed.User != nil || parsed.RawQuery != "" || parsed.ForceQuery || parsed.Fragment != "":
		t.mistake(key, "must have no user, query or fragment")
	case parsed.Scheme == "http" && !plainText && parsed.Hostname() != "localhost" && !net.ParseIP(parsed.Hostname()).IsLoopback():
		t.mistake(key, "must begin with https://, except for this machine itself: the API key goes there")
	}
	return text
}

// secret reads the secret from the environment variable or the file that the table names.
func (t table) secret(key string) Secret {
	envKey, fileKey := key+"_env", key+"_file"
	_, inEnv := t.keys[envKey]
	_, inFile := t.keys[fileKey]
	variable, envOK := take[string](t, envKey, "the name of an environment variable")
	path, fileOK := take[string](t, fileKey, "the path of a file")
	switch {
	case inEnv && inFile:
		t.mistake(envKey, "and %s are both given: keep one", fileKey)
	case !inEnv && !inFile:
		t.mistake(envKey, "is missing (or %s)", fileKey)
	case envOK:
		return t.checkSecret(envKey, named(variable, variableName, "a variable"), t.file.getenv(variable))
	case fileOK:
		name := named(path, fileName, "a file")
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(t.file.path), path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.mistake(fileKey, "names %s, which cannot be read: %v", name, systemError(err))
			return Secret{}
		}
		return t.checkSecret(fileKey, name, strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"))
	}
	return Secret{}
}

// systemError is the system's own word, without the path that it is about.
func systemError(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

func (t table) checkSecret(key, name, text string) Secret {
	if text == "" {
		t.mistake(key, "names %s, which is empty or not set", name)
	} else if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		t.mistake(key, "names %s, in which there is a blank, a line break or a character outside ASCII", name)
	}
	return NewSecret(text)
}

var (
	variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)
	fileName     = regexp.MustCompile(`[./\\]`)
)

// named returns the name of what holds a secret, or no name where it does not look like one: people paste the secret
// itself there.
func named(name string, looksRight *regexp.Regexp, otherwise string) string {
	if looksRight.MatchString(name) {
		return name
	}
	return otherwise
}

// quoted is what the TOML parser quotes of the file: it may be a secret that was written without quotes.
var quoted = regexp.MustCompile(`"(\\.|[^"\\]){2,}"|'[^']{2,}'`)

// syntaxMistake tells where a file is not TOML, without its values.
func syntaxMistake(err error) string {
	parse, ok := errors.AsType[toml.ParseError](err)
	if !ok {
		return "is not TOML"
	}
	message := parse.Message
	if !strings.HasPrefix(message, "Key ") {
		message = quoted.ReplaceAllString(message, "…")
	}
	return fmt.Sprintf("line %d: is not TOML: %s", parse.Position.Line, message)
}
