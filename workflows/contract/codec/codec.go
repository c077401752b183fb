// Package codec encrypts what Temporal stores of a workflow: every payload and the messages of failures. Temporal's server
// and its operators then see who, how much and when, but not what a job is about. docs/privacy.md describes the format for
// programs in other languages.
package codec

import (
	"context"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// What an encrypted payload's metadata says. Both are stored in histories, so neither may ever change.
const (
	// Encoding is the value of the metadata key "encoding".
	Encoding = "binary/encrypted"
	// MetadataKeyID is the metadata key under which the id of the payload's key stands.
	MetadataKeyID = "encryption-key-id"
)

// UnknownKeyError says that a payload was encrypted with a key that is not among the keys at hand.
type UnknownKeyError struct{ KeyID string }

// Error names the key.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("a payload is encrypted with the key %.100q, which is not in the file that %s names here: add it there",
		e.KeyID, KeysVariable)
}

// ErrDamaged says that an encrypted payload is not what was encrypted with its key: it, its key id or its encoding was
// changed, or another key has the same id.
var ErrDamaged = errors.New("an encrypted payload is damaged, or was encrypted with another key of the same id")

// New returns the codec of the keys. What it cannot decode makes a workflow task fail and be tried again, rather than be
// decided without having been read: errors wrap *UnknownKeyError or ErrDamaged in a *converter.WorkflowTaskFailureError.
func New(keys *Keys) converter.PayloadCodec { return payloadCodec{keys} }

type payloadCodec struct{ keys *Keys }

// Encode encrypts each payload whole, its metadata included.
func (c payloadCodec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	if c.keys.plain {
		return payloads, nil
	}
	encoded := make([]*commonpb.Payload, len(payloads))
	for i, payload := range payloads {
		whole, err := payload.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encrypt a payload: %w", err)
		}
		first := c.keys.all[0]
		encoded[i] = &commonpb.Payload{
			Metadata: map[string][]byte{
				converter.MetadataEncoding: []byte(Encoding), MetadataKeyID: []byte(first.id),
			},
			Data: first.aead.Seal(nil, nil, whole, bound(first.id)), //nolint:gosec // the nonce is made by Seal
		}
	}
	return encoded, nil
}

// Decode decrypts the payloads that are encrypted and hands on the others as they are, so that encryption can be switched
// on and off over histories that exist.
func (c payloadCodec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	decoded := make([]*commonpb.Payload, len(payloads))
	for i, payload := range payloads {
		if string(payload.GetMetadata()[converter.MetadataEncoding]) != Encoding {
			decoded[i] = payload
			continue
		}
		var err error
		if decoded[i], err = c.decrypt(payload); err != nil {
			return nil, converter.NewWorkflowTaskFailureError(err)
		}
	}
	return decoded, nil
}

func (c payloadCodec) decrypt(payload *commonpb.Payload) (*commonpb.Payload, error) {
	id := string(payload.GetMetadata()[MetadataKeyID])
	used, known := c.keys.find(id)
	if !known {
		return nil, &UnknownKeyError{id}
	}
	whole, err := used.aead.Open(nil, nil, payload.GetData(), bound(id))
	if err != nil {
		return nil, fmt.Errorf("%w (key %s)", ErrDamaged, id)
	}
	plain := &commonpb.Payload{}
	if err := plain.Unmarshal(whole); err != nil {
		return nil, fmt.Errorf("%w (key %s): it holds no payload", ErrDamaged, id)
	}
	return plain, nil
}

// bound is what a ciphertext is bound to, the additional data of its encryption.
func bound(keyID string) []byte { return []byte(Encoding + "\n" + keyID) }

// ApplyFile is Apply with the keys of the file at path, and does nothing where path is empty. Errors: as LoadKeys.
func ApplyFile(options *client.Options, path string) error {
	if path == "" {
		return nil
	}
	keys, err := LoadKeys(path)
	if err != nil {
		return err
	}
	Apply(options, keys)
	return nil
}

// Apply has a Temporal client, and the workers on it, encrypt with the keys: arguments, results, signals, updates, queries,
// markers, heartbeats, summaries, and of failures details, messages and stack traces. A data converter that the options
// have goes on converting.
func Apply(options *client.Options, keys *Keys) {
	parent := options.DataConverter
	if parent == nil {
		parent = converter.GetDefaultDataConverter()
	}
	options.DataConverter = dataConverter{DataConverter: converter.NewCodecDataConverter(parent, New(keys))}
	options.FailureConverter = temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
		DataConverter: options.DataConverter, EncodeCommonAttributes: true,
	})
}

// dataConverter is the SDK's with a codec.
type dataConverter struct {
	converter.DataConverter
	// inWorkflow is set in workflow code. There, what cannot be decrypted panics, which makes the task fail: the SDK would
	// drop a signal that it cannot decode, and with it a person's decision or a delivery, for good.
	inWorkflow bool
}

// WithWorkflowContext returns the converter for workflow code.
func (d dataConverter) WithWorkflowContext(workflow.Context) converter.DataConverter {
	return dataConverter{d.DataConverter, true}
}

// WithContext returns the converter for everything else.
func (d dataConverter) WithContext(context.Context) converter.DataConverter { return d }

// WithSerializationContext tells the converter whose payloads it converts. The codec needs no such thing; a converter that
// the options had may.
func (d dataConverter) WithSerializationContext(of converter.SerializationContext) converter.DataConverter {
	return dataConverter{converter.WithDataConverterSerializationContext(d.DataConverter, of), d.inWorkflow}
}

// Codec lets the SDK reach the codec alone.
func (d dataConverter) Codec() converter.PayloadCodec {
	provider, ok := d.DataConverter.(converter.PayloadCodecProvider)
	if !ok {
		return nil
	}
	return provider.Codec()
}

// FromPayload converts one payload.
func (d dataConverter) FromPayload(payload *commonpb.Payload, into any) error {
	return d.insist(d.DataConverter.FromPayload(payload, into))
}

// FromPayloads converts several payloads.
func (d dataConverter) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	return d.insist(d.DataConverter.FromPayloads(payloads, into...))
}

func (d dataConverter) insist(err error) error {
	if _, unread := errors.AsType[*converter.WorkflowTaskFailureError](err); unread && d.inWorkflow {
		panic(err)
	}
	return err
}
