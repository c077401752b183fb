package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reclaimhq/reclaim/workflows/contract/codec"
)

const webUI = "http://localhost:8233"

func codecKeyFile(t *testing.T, id string, n byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	text := id + " " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)) + "\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// codecServer is a running `starter codec`.
type codecServer struct {
	t        *testing.T
	endpoint string
	payloads converter.PayloadCodec
}

// startCodec runs the command until the test ends. It needs neither a database nor Temporal.
func startCodec(t *testing.T, args ...string) *codecServer {
	t.Helper()
	path := codecKeyFile(t, "k1", 1)
	ctx, stop := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"codec", "--listen", "127.0.0.1:0", "--output", "json"}, args...), nil, writer, &stderr,
			func(name string) string { return map[string]string{"RECLAIM_CODEC_KEYS": path}[name] })
		_ = writer.Close()
	}()
	var told struct{ Endpoint string }
	require.NoError(t, json.NewDecoder(reader).Decode(&told), "%s", &stderr)
	t.Cleanup(func() {
		stop()
		select {
		case status := <-ended:
			assert.Equal(t, statusDone, status, "%s", &stderr)
		case <-time.After(time.Minute):
			t.Error("it does not stop")
		}
	})
	keys, err := codec.LoadKeys(path)
	require.NoError(t, err)
	return &codecServer{t, told.Endpoint, codec.New(keys)}
}

// codecAnswer is what the server answered.
type codecAnswer struct {
	status int
	header http.Header
	body   string
}

// call sends a request with these headers, "Host" among them.
func (s *codecServer) call(method, path string, body []byte, headers ...string) codecAnswer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.endpoint+path, bytes.NewReader(body))
	require.NoError(s.t, err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		} else {
			request.Header.Add(headers[i], headers[i+1])
		}
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return codecAnswer{response.StatusCode, response.Header, string(text)}
}

func (s *codecServer) sealed() []byte {
	s.t.Helper()
	payloads, err := s.payloads.Encode([]*commonpb.Payload{
		{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(`"s3cret"`)},
	})
	require.NoError(s.t, err)
	body, err := protojson.Marshal(&commonpb.Payloads{Payloads: payloads})
	require.NoError(s.t, err)
	return body
}

const isJSON = "Content-Type"

func TestTheCodecServesAnAllowedPageAsABrowserAsks(t *testing.T) {
	t.Parallel()
	s := startCodec(t, "--origin", "https://ui.example", "--origin", webUI)
	for _, path := range []string{"/decode", "/encode"} {
		asked := s.call(http.MethodOptions, path, nil, "Origin", webUI, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "content-type,x-namespace", "Access-Control-Request-Private-Network", "true")
		assert.Equal(t, http.StatusNoContent, asked.status)
		assert.Equal(t, webUI, asked.header.Get("Access-Control-Allow-Origin"))
		assert.Equal(t, "POST", asked.header.Get("Access-Control-Allow-Methods"))
		assert.Equal(t, "Content-Type, X-Namespace", asked.header.Get("Access-Control-Allow-Headers"))
		assert.Equal(t, "true", asked.header.Get("Access-Control-Allow-Private-Network"))
		assert.Equal(t, "Origin", asked.header.Get("Vary"))
		assert.Empty(t, asked.header.Get("Access-Control-Allow-Credentials"))
	}
	answer := s.call(http.MethodPost, "/decode", s.sealed(), "Origin", webUI, isJSON, "application/json", "X-Namespace", "default")
	require.Equal(t, http.StatusOK, answer.status, answer.body)
	assert.Equal(t, []string{webUI}, answer.header.Values("Access-Control-Allow-Origin"))
	assert.Equal(t, "no-store", answer.header.Get("Cache-Control"))
	var payloads commonpb.Payloads
	require.NoError(t, protojson.Unmarshal([]byte(answer.body), &payloads))
	assert.Equal(t, `"s3cret"`, string(payloads.GetPayloads()[0].GetData()))
}

// The Temporal SDK's own client of the protocol stands for the Temporal command line, which sends no origin.
func TestTheCodecServesProgramsInBothDirections(t *testing.T) {
	t.Parallel()
	s := startCodec(t)
	remote := converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{Endpoint: s.endpoint})
	plain := []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(`"s3cret"`)}}
	sealed, err := remote.Encode(plain)
	require.NoError(t, err)
	assert.Equal(t, codec.Encoding, string(sealed[0].GetMetadata()["encoding"]))
	decoded, err := s.payloads.Decode(sealed)
	require.NoError(t, err)
	assert.Equal(t, `"s3cret"`, string(decoded[0].GetData()))
	decoded, err = remote.Decode(append(sealed, plain...))
	require.NoError(t, err)
	assert.Equal(t, `"s3cret"`, string(decoded[0].GetData()))
	assert.Equal(t, `"s3cret"`, string(decoded[1].GetData()), "what is not encrypted passes")
}

func TestTheCodecRefusesWhoIsNotMeant(t *testing.T) {
	t.Parallel()
	s := startCodec(t, "--origin", webUI)
	for name, tc := range map[string]struct {
		method, path string
		headers      []string
		status       int
	}{
		"another origin":          {"POST", "/decode", []string{"Origin", "http://evil.example", isJSON, "application/json"}, 403},
		"another port":            {"POST", "/decode", []string{"Origin", "http://localhost:8234", isJSON, "application/json"}, 403},
		"a longer origin":         {"POST", "/decode", []string{"Origin", webUI + ".evil.example", isJSON, "application/json"}, 403},
		"no origin's page":        {"POST", "/decode", []string{"Origin", "null", isJSON, "application/json"}, 403},
		"two origins":             {"POST", "/decode", []string{"Origin", webUI, "Origin", "http://evil.example", isJSON, "application/json"}, 403},
		"asked by another origin": {"OPTIONS", "/decode", []string{"Origin", "http://evil.example"}, 403},
		"another host's name":     {"POST", "/decode", []string{"Host", "evil.example", isJSON, "application/json"}, 403},
		"and with a port":         {"POST", "/decode", []string{"Host", "evil.example:8234", isJSON, "application/json"}, 403},
		"a form":                  {"POST", "/decode", []string{"Origin", webUI, isJSON, "text/plain"}, 415},
		"no type":                 {"POST", "/decode", nil, 415},
		"another method":          {"GET", "/decode", nil, 405},
		"another path":            {"POST", "/", []string{isJSON, "application/json"}, 404},
		"a longer path":           {"POST", "/x/decode", []string{isJSON, "application/json"}, 404},
	} {
		answer := s.call(tc.method, tc.path, s.sealed(), tc.headers...)
		assert.Equal(t, tc.status, answer.status, name)
		assert.NotContains(t, answer.body, base64.StdEncoding.EncodeToString([]byte(`"s3cret"`)), name)
		if tc.status == http.StatusForbidden {
			assert.Empty(t, answer.header.Get("Access-Control-Allow-Origin"), name)
		}
	}
	for _, host := range []string{"localhost", "localhost:1", "127.0.0.1:8234", "[::1]:8234", "127.1.2.3"} {
		answer := s.call("POST", "/decode", s.sealed(), "Host", host, isJSON, "application/json; charset=utf-8")
		assert.Equal(t, http.StatusOK, answer.status, host)
	}
}

func TestTheCodecSaysWhatItCannotDecode(t *testing.T) {
	t.Parallel()
	s := startCodec(t)
	answer := s.call("POST", "/decode", []byte("{"), isJSON, "application/json")
	assert.Equal(t, http.StatusBadRequest, answer.status, answer.body)
	strange := strings.ReplaceAll(string(s.sealed()), base64.StdEncoding.EncodeToString([]byte("k1")),
		base64.StdEncoding.EncodeToString([]byte("k9")))
	answer = s.call("POST", "/decode", []byte(strange), isJSON, "application/json")
	assert.Equal(t, http.StatusBadRequest, answer.status)
	assert.Contains(t, answer.body, `the key "k9"`)
	large := fmt.Sprintf(`{"payloads":[{"data":%q}]}`, strings.Repeat("A", 16<<20))
	answer = s.call("POST", "/decode", []byte(large), isJSON, "application/json")
	assert.Equal(t, http.StatusBadRequest, answer.status)
	assert.Contains(t, answer.body, "too large")
}

func TestCodecMistakes(t *testing.T) {
	t.Parallel()
	path := codecKeyFile(t, "k1", 1)
	for _, mistake := range []struct {
		keys string
		args []string
		says string
	}{
		{"", nil, "RECLAIM_CODEC_KEYS is missing"},
		{"/none/keys", nil, "RECLAIM_CODEC_KEYS: /none/keys: cannot be read"},
		{path, []string{"all"}, `"all" is too much`},
		{path, []string{"--listen", "8234"}, "--listen must be host:port"},
		{path, []string{"--listen", "0.0.0.0:0"}, "add --allow-remote"},
		{path, []string{"--listen", ":0"}, "add --allow-remote"},
		{path, []string{"--listen", "[::]:0"}, "add --allow-remote"},
		{path, []string{"--listen", "127.0.0.1:http-but-wrong"}, "--listen: "},
		{path, []string{"--origin", "*"}, "--origin must be"},
		{path, []string{"--origin", "null"}, "--origin must be"},
		{path, []string{"--origin", webUI + "/"}, "--origin must be"},
		{path, []string{"--origin", webUI + "/namespaces"}, "--origin must be"},
		{path, []string{"--origin", "http://me:pw@localhost"}, "--origin must be"},
		{path, []string{"--origin", "ftp://localhost"}, "--origin must be"},
		{path, []string{"--origin", "localhost:8233"}, "--origin must be"},
	} {
		var stdout, stderr bytes.Buffer
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		status := run(ctx, append([]string{"codec"}, mistake.args...), nil, &stdout, &stderr,
			func(name string) string { return map[string]string{"RECLAIM_CODEC_KEYS": mistake.keys}[name] })
		cancel()
		assert.Equal(t, statusUsage, status, "%q", mistake.args)
		assert.Contains(t, stderr.String(), mistake.says, "%q", mistake.args)
		assert.Empty(t, stdout.String(), "%q", mistake.args)
	}
	var stdout, stderr bytes.Buffer
	run(context.Background(), []string{"codec", "--listen", "x", "--origin", "*"}, nil, &stdout, &stderr, func(string) string { return "" })
	for _, name := range []string{"--listen", "--origin", "RECLAIM_CODEC_KEYS"} {
		assert.Contains(t, stderr.String(), name, "every mistake at once")
	}
}

func TestTheCodecListensBeyondThisMachineOnlyWhenToldTo(t *testing.T) {
	t.Parallel()
	s := startCodec(t, "--listen", "0.0.0.0:0", "--allow-remote")
	answer := s.call("POST", "/decode", s.sealed(), "Host", "codec.example", isJSON, "application/json")
	assert.Equal(t, http.StatusOK, answer.status, answer.body)
	answer = s.call("POST", "/decode", s.sealed(), "Host", "codec.example", "Origin", webUI, isJSON, "application/json")
	assert.Equal(t, http.StatusForbidden, answer.status)
}

func TestTheEnvironmentsKeysEncryptWhatTheVerbsSend(t *testing.T) {
	t.Parallel()
	environment := map[string]string{
		"DATABASE_URL": "postgres://user@db/app", "RECLAIM_CODEC_KEYS": codecKeyFile(t, "k1", 1),
		"TEMPORAL_CONFIG_FILE": filepath.Join(t.TempDir(), "none.toml"),
	}
	e, err := readEnvironment(func(name string) string { return environment[name] })
	require.NoError(t, err)
	payload, err := e.temporal.DataConverter.ToPayload("s3cret")
	require.NoError(t, err)
	assert.Equal(t, codec.Encoding, string(payload.GetMetadata()["encoding"]))
	assert.NotNil(t, e.temporal.FailureConverter)
	environment["RECLAIM_CODEC_KEYS"] = "/none/keys"
	_, err = readEnvironment(func(name string) string { return environment[name] })
	assert.ErrorContains(t, err, "RECLAIM_CODEC_KEYS: /none/keys: cannot be read")
}
