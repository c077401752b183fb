package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// KeyLimit is how many keys Keys answers at most.
const KeyLimit = 1000

// Key is an API key as it is kept: without its secret.
type Key struct {
	KeyID  string           `json:"keyId"`
	Tenant string           `json:"tenant"`
	Actor  string           `json:"actor"`
	Scopes []contract.Scope `json:"scopes"`
	// RevokedAt is when its rights were taken away, zero while it has them.
	CreatedAt time.Time `json:"createdAt"`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

// Allows says whether the key has the scope.
func (k Key) Allows(scope contract.Scope) bool { return slices.Contains(k.Scopes, scope) }

// CreatedKey is a new key with its secret, which is told here and nowhere else, ever.
type CreatedKey struct {
	Key
	// Secret is the whole key as its holder sends it: "Authorization: Bearer " and this.
	Secret string `json:"secret"`
}

// CreateKey makes an API key by which requests act as the actor within the tenant, with the scopes and nothing else. A call
// whose answer was lost may have made one whose secret nobody has: it is harmless, listed, and can be revoked. Errors:
// BadInput, Unavailable.
func (c *Client) CreateKey(ctx context.Context, tenant, actor string, scopes []contract.Scope) (CreatedKey, error) {
	if err := together(
		contract.CheckOwner(tenant), contract.CheckText("actor", actor, 200), contract.CheckScopes(scopes),
	); err != nil {
		return CreatedKey{}, err
	}
	// rand.Text is base32 with 130 bits: 26 characters, of which 16 have 80 bits and two times 26 more than 256.
	keyID := strings.ToLower(rand.Text()[:16])
	secret := strings.ToLower(rand.Text() + rand.Text())
	hash := secretHash(secret)
	names := make([]string, len(scopes))
	for i, scope := range scopes {
		names[i] = string(scope)
	}
	createdAt, err := c.store.AddAPIKey(ctx, db.AddAPIKeyParams{
		KeyID: keyID, TenantID: tenant, Actor: actor, Scopes: names, SecretHash: hash[:],
	})
	if err != nil {
		return CreatedKey{}, unavailable("create a key", err)
	}
	return CreatedKey{
		Key:    Key{KeyID: keyID, Tenant: tenant, Actor: actor, Scopes: scopes, CreatedAt: createdAt.UTC()},
		Secret: contract.APIKey(keyID, secret),
	}, nil
}

func secretHash(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// RevokeKey takes a key's rights away, for good and at once: whatever it asks for from now on is refused. It returns when
// that was; a key that was revoked before stays so. Errors: BadInput, NotFound, Unavailable.
func (c *Client) RevokeKey(ctx context.Context, tenant, keyID string) (time.Time, error) {
	if err := contract.CheckID("tenant", tenant); err != nil {
		return time.Time{}, err
	}
	none := contract.NewError(contract.CodeNotFound, contract.RetryNever, fmt.Sprintf(
		"tenant %s has no key %s (a key's id is the part of it after rk_, up to the next _)", tenant, contract.Clip(keyID, 40)), nil)
	if !contract.ValidKeyID(keyID) {
		return time.Time{}, none
	}
	revokedAt, err := persist(ctx, "revoke the key "+keyID, func(ctx context.Context) (time.Time, error) {
		revokedAt, err := c.store.RevokeAPIKey(ctx, db.RevokeAPIKeyParams{KeyID: keyID, TenantID: tenant})
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return revokedAt.UTC(), err
	})
	if err == nil && revokedAt.IsZero() {
		err = none
	}
	return revokedAt, err
}

// Keys lists a tenant's keys, the newest first and at most KeyLimit, revoked ones too. Errors: BadInput, Unavailable.
func (c *Client) Keys(ctx context.Context, tenant string) ([]Key, error) {
	if err := contract.CheckID("tenant", tenant); err != nil {
		return nil, err
	}
	rows, err := c.store.ListAPIKeys(ctx, db.ListAPIKeysParams{TenantID: tenant, AtMost: KeyLimit})
	if err != nil {
		return nil, unavailable("list the keys", err)
	}
	keys := make([]Key, len(rows))
	for i, row := range rows {
		keys[i] = Key{
			KeyID: row.KeyID, Tenant: tenant, Actor: row.Actor, Scopes: scopesOf(row.Scopes), CreatedAt: row.CreatedAt.UTC(),
			RevokedAt: instant(row.RevokedAt),
		}
	}
	return keys, nil
}

func scopesOf(names []string) []contract.Scope {
	scopes := make([]contract.Scope, len(names))
	for i, name := range names {
		scopes[i] = contract.Scope(name)
	}
	return scopes
}

// askedBy is what a request asks for by its key: a job of the key's tenant, "" for none.
type askedBy struct{ keyID, jobID string }

func (c *Client) readKeys(ctx context.Context, asked []askedBy) (map[askedBy]*db.GetAPIKeysRow, error) {
	wanted := db.GetAPIKeysParams{KeyIds: make([]string, len(asked)), JobIds: make([]string, len(asked))}
	for i, one := range asked {
		wanted.KeyIds[i], wanted.JobIds[i] = one.keyID, one.jobID
	}
	rows, err := c.store.GetAPIKeys(ctx, wanted)
	found := make(map[askedBy]*db.GetAPIKeysRow, len(rows))
	for i := range rows {
		found[askedBy{rows[i].KeyID, rows[i].WantedJob}] = &rows[i]
	}
	return found, err
}

// errNoKey says the same of a key that never was, of a wrong secret and of no key at all, so that nothing can be learnt
// from it.
var errNoKey = contract.NewError(contract.CodeUnauthorized, contract.RetryNever,
	"a valid API key is needed: send it as \"Authorization: Bearer rk_…\" (starter key create makes one)", nil)

// Authenticate returns the key that the text is, as it stands at this moment. Errors: Unauthorized (no key, a wrong one, or
// one that was revoked), Unavailable.
func (c *Client) Authenticate(ctx context.Context, text string) (Key, error) {
	key, _, err := c.authenticate(ctx, text, "")
	return key, err
}

// AuthenticateForJob is Authenticate for a request that reads a job: the key and the job are looked up together. The function
// is Job for the key's tenant, and tells what stood in the job's row then.
func (c *Client) AuthenticateForJob(ctx context.Context, text, jobID string) (Key, func(context.Context) (Job, error), error) {
	wanted := jobID
	if !contract.ValidID(jobID) {
		wanted = ""
	}
	key, row, err := c.authenticate(ctx, text, wanted)
	if err != nil {
		return Key{}, nil, err
	}
	return key, func(ctx context.Context) (Job, error) {
		if wanted == "" {
			return c.Job(ctx, key.Tenant, jobID)
		}
		return c.jobFrom(ctx, key.Tenant, jobID, jobBeside(row))
	}, nil
}

// jobBeside returns the job that was read together with a key, nil where there is none.
func jobBeside(row *db.GetAPIKeysRow) *db.ReclaimJob {
	if row.JobID == "" {
		return nil
	}
	return &db.ReclaimJob{
		TenantID: row.TenantID, JobID: row.JobID, AccountID: row.AccountID, Cost: row.Cost, State: row.State,
		IsRefunded: row.IsRefunded, RefundedAt: row.RefundedAt, IsReclaimed: row.IsReclaimed, DeliveredAt: row.DeliveredAt,
		Attempts: row.Attempts, CancelRequested: row.CancelRequested, LastError: row.LastError, Reason: row.Reason,
		Output: row.Output, CreatedAt: row.JobCreatedAt, UpdatedAt: row.JobUpdatedAt,
	}
}

func (c *Client) authenticate(ctx context.Context, text, jobID string) (Key, *db.GetAPIKeysRow, error) {
	keyID, secret, ok := contract.ParseAPIKey(text)
	if !ok {
		return Key{}, nil, errNoKey
	}
	row, there, err := c.keys.get(ctx, askedBy{keyID, jobID})
	if err != nil {
		return Key{}, nil, unavailable("look the API key up", err)
	}
	if !there {
		return Key{}, nil, errNoKey
	}
	hash := secretHash(secret)
	if subtle.ConstantTimeCompare(hash[:], row.SecretHash) != 1 {
		return Key{}, nil, errNoKey
	}
	if row.RevokedAt != nil {
		return Key{}, nil, contract.NewError(contract.CodeUnauthorized, contract.RetryNever,
			"the API key was revoked at "+row.RevokedAt.UTC().Format(time.RFC3339), nil)
	}
	return Key{
		KeyID: row.KeyID, Tenant: row.TenantID, Actor: row.Actor, Scopes: scopesOf(row.Scopes), CreatedAt: row.CreatedAt.UTC(),
	}, row, nil
}
