package codec_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/reclaimhq/reclaim/workflows/contract/codec"
)

// secret is a key of 32 bytes that are all n.
func secret(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

func line(id string, n byte) string { return id + " " + base64.StdEncoding.EncodeToString(secret(n)) }

func keysOf(t testing.TB, lines ...string) *codec.Keys {
	t.Helper()
	keys, err := codec.ParseKeys([]byte(strings.Join(lines, "\n")))
	require.NoError(t, err)
	return keys
}

func codecOf(t testing.TB, lines ...string) converter.PayloadCodec {
	t.Helper()
	return codec.New(keysOf(t, lines...))
}

func plainPayloads() []*commonpb.Payload {
	return []*commonpb.Payload{
		{Metadata: map[string][]byte{"encoding": []byte("json/plain"), "own": {0, 1}}, Data: []byte(`{"secret":"s3cret"}`)},
		{Metadata: map[string][]byte{"encoding": []byte("binary/null")}},
		{},
	}
}

func equal(t testing.TB, want, got []*commonpb.Payload) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		assert.True(t, proto.Equal(want[i], got[i]), "payload %d: want %v, got %v", i, want[i], got[i])
	}
}

func encrypted(t testing.TB, c converter.PayloadCodec) *commonpb.Payload {
	t.Helper()
	payloads, err := c.Encode(plainPayloads()[:1])
	require.NoError(t, err)
	return payloads[0]
}

func TestPayloadsComeBackAsTheyWere(t *testing.T) {
	c := codecOf(t, line("k1", 1))
	sent := plainPayloads()
	encoded, err := c.Encode(sent)
	require.NoError(t, err)
	equal(t, plainPayloads(), sent)
	for _, payload := range encoded {
		assert.Equal(t, map[string][]byte{"encoding": []byte("binary/encrypted"), "encryption-key-id": []byte("k1")}, payload.Metadata)
		assert.NotContains(t, string(payload.Data), "s3cret")
		assert.NotContains(t, string(payload.Data), "json/plain")
	}
	decoded, err := c.Decode(encoded)
	require.NoError(t, err)
	equal(t, plainPayloads(), decoded)
}

// What docs/privacy.md tells implementers in other languages, done here without the codec.
func TestTheFormatIsTheOneThatIsDescribed(t *testing.T) {
	block, err := aes.NewCipher(secret(1))
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	aad := []byte("binary/encrypted\nk1")

	payload := encrypted(t, codecOf(t, line("k1", 1)))
	whole, err := gcm.Open(nil, payload.Data[:12], payload.Data[12:], aad)
	require.NoError(t, err)
	var opened commonpb.Payload
	require.NoError(t, proto.Unmarshal(whole, &opened))
	equal(t, plainPayloads()[:1], []*commonpb.Payload{&opened})

	nonce := []byte("twelve bytes")
	payload.Data = gcm.Seal(nonce, nonce, whole, aad)
	decoded, err := codecOf(t, line("k1", 1)).Decode([]*commonpb.Payload{payload})
	require.NoError(t, err)
	equal(t, plainPayloads()[:1], decoded)
}

func TestTheVectorOfTheGuideIsRead(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/privacy.md")
	require.NoError(t, err)
	parts := map[string][]byte{}
	for _, part := range regexp.MustCompile(`(?m)^(plaintext|aad|data) +([0-9a-f]+)$`).FindAllSubmatch(guide, -1) {
		parts[string(part[1])], err = hex.DecodeString(string(part[2]))
		require.NoError(t, err)
	}
	assert.Equal(t, "binary/encrypted\nk1", string(parts["aad"]))
	assert.Equal(t, "twelve bytes", string(parts["data"][:12]))
	var plain commonpb.Payload
	require.NoError(t, proto.Unmarshal(parts["plaintext"], &plain))
	decoded, err := codecOf(t, line("k1", 1)).Decode([]*commonpb.Payload{{
		Metadata: map[string][]byte{"encoding": []byte("binary/encrypted"), "encryption-key-id": []byte("k1")}, Data: parts["data"],
	}})
	require.NoError(t, err)
	equal(t, []*commonpb.Payload{&plain}, decoded)
	assert.Equal(t, `"hello"`, string(plain.Data))
}

func TestEveryPayloadHasANonceOfItsOwn(t *testing.T) {
	c := codecOf(t, line("k1", 1))
	seen := map[string]bool{}
	for range 1000 {
		payload := encrypted(t, c)
		nonce := string(payload.Data[:12])
		require.False(t, seen[nonce])
		seen[nonce] = true
	}
}

func TestTheFirstKeyEncryptsAndAllDecrypt(t *testing.T) {
	before := codecOf(t, line("old", 1))
	readers := codecOf(t, line("old", 1), line("new", 2))
	writers := codecOf(t, line("new", 2), line("old", 1))
	after := codecOf(t, line("new", 2))
	old, fresh := encrypted(t, before), encrypted(t, writers)
	assert.Equal(t, "old", string(encrypted(t, readers).Metadata["encryption-key-id"]))
	assert.Equal(t, "new", string(fresh.Metadata["encryption-key-id"]))
	for _, c := range []converter.PayloadCodec{readers, writers} {
		decoded, err := c.Decode([]*commonpb.Payload{old, fresh})
		require.NoError(t, err)
		equal(t, append(plainPayloads()[:1], plainPayloads()[0]), decoded)
	}
	for c, strange := range map[converter.PayloadCodec]*commonpb.Payload{before: fresh, after: old} {
		_, err := c.Decode([]*commonpb.Payload{strange})
		unknown, ok := errors.AsType[*codec.UnknownKeyError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, string(strange.Metadata["encryption-key-id"]), unknown.KeyID)
		assert.ErrorContains(t, err, `"`+unknown.KeyID+`"`)
		assert.ErrorContains(t, err, "RECLAIM_CODEC_KEYS")
	}
}

func TestPayloadsThatAreNotEncryptedPass(t *testing.T) {
	decoded, err := codecOf(t, line("k1", 1)).Decode(append(plainPayloads(), nil))
	require.NoError(t, err)
	equal(t, append(plainPayloads(), nil), decoded)
}

func TestPlainFirstEncryptsNothingAndDecrypts(t *testing.T) {
	c := codecOf(t, "plain", line("k1", 1))
	encoded, err := c.Encode(plainPayloads())
	require.NoError(t, err)
	equal(t, plainPayloads(), encoded)
	decoded, err := c.Decode([]*commonpb.Payload{encrypted(t, codecOf(t, line("k1", 1)))})
	require.NoError(t, err)
	equal(t, plainPayloads()[:1], decoded)
}

func TestWhatWasTamperedWithIsRefused(t *testing.T) {
	c := codecOf(t, line("k1", 1), line("k2", 2))
	flip := func(i int) func(*commonpb.Payload) { return func(p *commonpb.Payload) { p.Data[i] ^= 1 } }
	size := len(encrypted(t, c).Data)
	for name, tamper := range map[string]func(*commonpb.Payload){
		"nonce":             flip(0),
		"ciphertext":        flip(12),
		"tag":               flip(size - 1),
		"key id":            func(p *commonpb.Payload) { p.Metadata["encryption-key-id"] = []byte("k2") },
		"cut at the end":    func(p *commonpb.Payload) { p.Data = p.Data[:size-1] },
		"cut at the front":  func(p *commonpb.Payload) { p.Data = p.Data[1:] },
		"only a nonce":      func(p *commonpb.Payload) { p.Data = p.Data[:12] },
		"longer":            func(p *commonpb.Payload) { p.Data = append(p.Data, 0) },
		"nothing":           func(p *commonpb.Payload) { p.Data = nil },
		"another one's key": func(p *commonpb.Payload) { *p = *encrypted(t, codecOf(t, line("k1", 3))) }, //nolint:govet // a test's own
	} {
		payload := encrypted(t, c)
		tamper(payload)
		decoded, err := c.Decode([]*commonpb.Payload{payload})
		assert.ErrorIs(t, err, codec.ErrDamaged, name)
		assert.Nil(t, decoded, name)
	}
	unnamed := encrypted(t, c)
	delete(unnamed.Metadata, "encryption-key-id")
	_, err := c.Decode([]*commonpb.Payload{unnamed})
	_, unknown := errors.AsType[*codec.UnknownKeyError](err)
	assert.True(t, unknown, "%v", err)
}

func TestAKeyIDThatSomebodyMadeUpIsCutInTheMessage(t *testing.T) {
	strange := encrypted(t, codecOf(t, line("k1", 1)))
	strange.Metadata["encryption-key-id"] = append([]byte("\n\x1b"), bytes.Repeat([]byte("x"), 5000)...)
	_, err := codecOf(t, line("k1", 1)).Decode([]*commonpb.Payload{strange})
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 300)
	assert.NotContains(t, err.Error(), "\n")
}

func optionsWith(t testing.TB, lines ...string) client.Options {
	t.Helper()
	var options client.Options
	codec.Apply(&options, keysOf(t, lines...))
	return options
}

func TestFailuresAreEncryptedWithTheirStacks(t *testing.T) {
	options := optionsWith(t, line("k1", 1))
	cause := errors.New("s3cret cause")
	failure := options.FailureConverter.ErrorToFailure(temporal.NewApplicationErrorWithOptions("s3cret message", "Busy",
		temporal.ApplicationErrorOptions{NonRetryable: true, Cause: cause, Details: []any{"s3cret details"}}))
	shown := failure.String()
	assert.NotContains(t, shown, "s3cret")
	assert.Equal(t, "Busy", failure.GetApplicationFailureInfo().GetType(), "the type stays readable")
	raw, err := proto.Marshal(failure)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "s3cret")

	app, ok := errors.AsType[*temporal.ApplicationError](options.FailureConverter.FailureToError(failure))
	require.True(t, ok)
	assert.Equal(t, "s3cret message", app.Message())
	assert.ErrorContains(t, app.Unwrap(), "s3cret cause")
	var details string
	require.NoError(t, app.Details(&details))
	assert.Equal(t, "s3cret details", details)
}

func TestRawValuesAreEncryptedToo(t *testing.T) {
	options := optionsWith(t, line("k1", 1))
	payload, err := options.DataConverter.ToPayload(converter.NewRawValue(plainPayloads()[0]))
	require.NoError(t, err)
	assert.Equal(t, codec.Encoding, string(payload.Metadata["encoding"]))
	var raw converter.RawValue
	require.NoError(t, options.DataConverter.FromPayload(payload, &raw))
	equal(t, plainPayloads()[:1], []*commonpb.Payload{raw.Payload()})
}

// The SDK drops a signal that cannot be decoded, and lets a workflow handle the error of a result.
func TestInWorkflowCodeAnUnknownKeyPanicsAndOtherMistakesDoNot(t *testing.T) {
	strange := encrypted(t, codecOf(t, line("k2", 2)))
	outside := optionsWith(t, line("k1", 1)).DataConverter
	inside := outside.(workflow.ContextAware).WithWorkflowContext(nil)
	inside = converter.WithDataConverterSerializationContext(inside, converter.WorkflowSerializationContext{WorkflowID: "w"})
	var into any
	unknown := func(err error) bool {
		_, isIt := errors.AsType[*codec.UnknownKeyError](err)
		_, task := errors.AsType[*converter.WorkflowTaskFailureError](err)
		return isIt && task
	}
	assert.True(t, unknown(outside.FromPayload(strange, &into)))
	assert.True(t, unknown(outside.FromPayloads(&commonpb.Payloads{Payloads: []*commonpb.Payload{strange}}, &into)))
	recovered := func(decode func() error) (found any) {
		defer func() { found = recover() }()
		return decode()
	}
	err, _ := recovered(func() error { return inside.FromPayload(strange, &into) }).(error)
	assert.True(t, unknown(err), "%v", err)
	err, _ = recovered(func() error {
		return inside.FromPayloads(&commonpb.Payloads{Payloads: []*commonpb.Payload{strange}}, &into)
	}).(error)
	assert.True(t, unknown(err), "%v", err)

	var number int
	assert.Error(t, inside.FromPayload(plainPayloads()[0], &number), "as without the codec")
	assert.NoError(t, inside.FromPayload(encrypted(t, codecOf(t, line("k1", 1))), &into))
}

func TestApplyKeepsAConverterThatIsThere(t *testing.T) {
	options := client.Options{DataConverter: converter.NewCompositeDataConverter(converter.NewByteSlicePayloadConverter())}
	codec.Apply(&options, keysOf(t, line("k1", 1)))
	_, err := options.DataConverter.ToPayload("no bytes")
	assert.Error(t, err)
	payload, err := options.DataConverter.ToPayload([]byte("bytes"))
	require.NoError(t, err)
	assert.Equal(t, codec.Encoding, string(payload.Metadata["encoding"]))
}

func TestApplyFileWithoutAFileChangesNothing(t *testing.T) {
	var options client.Options
	require.NoError(t, codec.ApplyFile(&options, ""))
	assert.Equal(t, client.Options{}, options)
}

// Temporal allows a summary 400 bytes; Reclaim's have at most 200 before they are encrypted.
func TestALongSummaryUnderALongKeyIDIsWithinTemporalsLimit(t *testing.T) {
	options := optionsWith(t, line(strings.Repeat("k", 64), 1))
	payload, err := options.DataConverter.ToPayload(strings.Repeat("x", 200))
	require.NoError(t, err)
	assert.LessOrEqual(t, proto.Size(payload), 400)
}

func TestKeysAreNotPrinted(t *testing.T) {
	keys := keysOf(t, line("k1", 1))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		assert.Equal(t, "(keys)", fmt.Sprintf(verb, keys), verb)
	}
}

func FuzzDecode(f *testing.F) {
	c := codecOf(f, line("k1", 1), line("k2", 2))
	// The guide's vector, since each of the processes that fuzz would encrypt under a nonce of its own.
	good, err := hex.DecodeString(
		"7477656c7665206279746573a596efd128d6e69fdd40c8a90053e3007a0dc7c33c57f199ee35011ecf7634aac33988c600310e571cab10e1afcbc1e9bc")
	require.NoError(f, err)
	f.Add("binary/encrypted", "k1", good)
	f.Add("binary/encrypted", "k2", good)
	f.Add("binary/encrypted", "", []byte{})
	f.Add("json/plain", "k1", []byte("{}"))
	f.Fuzz(func(t *testing.T, encoding, keyID string, data []byte) {
		given := &commonpb.Payload{
			Metadata: map[string][]byte{"encoding": []byte(encoding), "encryption-key-id": []byte(keyID)}, Data: data,
		}
		before := proto.CloneOf(given)
		decoded, err := c.Decode([]*commonpb.Payload{given})
		if !proto.Equal(before, given) {
			t.Fatal("what was given is changed")
		}
		switch {
		case encoding != codec.Encoding:
			if err != nil || decoded[0] != given {
				t.Fatalf("it does not pass untouched: %v", err)
			}
		case err == nil && (keyID != "k1" || !bytes.Equal(data, good)):
			t.Fatal("what nobody encrypted is decrypted")
		case err != nil:
			_, unknown := errors.AsType[*codec.UnknownKeyError](err)
			if unknown == (keyID == "k1" || keyID == "k2") || !unknown && !errors.Is(err, codec.ErrDamaged) {
				t.Fatalf("the wrong error: %v", err)
			}
		}
	})
}
