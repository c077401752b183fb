package contract

import (
	"fmt"
	"slices"
	"strings"
)

// Scope is one right of an API key.
type Scope string

// The scopes of the contract.
const (
	ScopeJobsWrite     Scope = "jobs:write"
	ScopeJobsRead      Scope = "jobs:read"
	ScopeRefundsWrite  Scope = "refunds:write"
	ScopeRefundsRead   Scope = "refunds:read"
	ScopeAccountsWrite Scope = "accounts:write"
	ScopeAccountsRead  Scope = "accounts:read"
	// ScopeResolve lets its holder take decisions as a person: it moves money.
	ScopeResolve Scope = "resolve"
)

// Scopes lists every scope.
func Scopes() []Scope {
	return []Scope{
		ScopeJobsWrite, ScopeJobsRead, ScopeRefundsWrite, ScopeRefundsRead, ScopeAccountsWrite, ScopeAccountsRead, ScopeResolve,
	}
}

// CheckScopes returns a BadInput error where a key's scopes are missing, unknown or named twice.
func CheckScopes(scopes []Scope) error {
	var p problems
	if len(scopes) == 0 {
		p.add("scopes", "are missing: name one or more of "+inWords(Scopes()))
	}
	for i, scope := range scopes {
		if !slices.Contains(Scopes(), scope) {
			p.add("scopes", fmt.Sprintf("has no %q: there are %s", clip(string(scope), 40), inWords(Scopes())))
		} else if slices.Contains(scopes[:i], scope) {
			p.add("scopes", fmt.Sprintf("names %q twice", scope))
		}
	}
	return p.err(CodeBadInput)
}

// An API key is written rk_<key id>_<secret>: 16 and 52 characters of base32 in small letters, 80 and 256 random bits.
const (
	keyMark         = "rk_"
	keyIDLength     = 16
	keySecretLength = 52
)

// APIKey writes a key for its holder.
func APIKey(keyID, secret string) string { return keyMark + keyID + "_" + secret }

// ParseAPIKey takes a key apart; ok is false where the text has not the form of one.
func ParseAPIKey(text string) (keyID, secret string, ok bool) {
	rest, marked := strings.CutPrefix(text, keyMark)
	keyID, secret, parted := strings.Cut(rest, "_")
	if !marked || !parted || len(keyID) != keyIDLength || len(secret) != keySecretLength || !isBase32(keyID+secret) {
		return "", "", false
	}
	return keyID, secret, true
}

// ValidKeyID says whether the text can be the id of an API key.
func ValidKeyID(keyID string) bool { return len(keyID) == keyIDLength && isBase32(keyID) }

func isBase32(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '2' || r > '7') })
}
