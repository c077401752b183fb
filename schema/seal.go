package schema

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strconv"
)

// SealedEntry is all that a ledger entry's row says, as it is sealed: numbers in decimal, the instant in microseconds since
// 1970.
type SealedEntry struct {
	TenantID, AccountID         string
	Seq                         int64
	Type, Amount, BalanceAfter  string
	JobID, OrderID, RefundID    *string
	Reason, CreatedMicroseconds string
}

// FirstSeal is what the first entry of each chain is hashed on.
func FirstSeal() []byte { return make([]byte, sha256.Size) }

// Seal is the SHA-256 of the seal before and of each column in the table's order: the length of its text in eight bytes, the
// highest first, and the text. A NULL is the length 2^64-1 and no text.
func (e SealedEntry) Seal(previous []byte) []byte {
	seq := strconv.FormatInt(e.Seq, 10)
	sealed := sha256.New()
	_, _ = sealed.Write(previous)
	for _, column := range []*string{
		&e.TenantID, &e.AccountID, &seq, &e.Type, &e.Amount, &e.BalanceAfter, e.JobID, e.OrderID, e.RefundID, &e.Reason,
		&e.CreatedMicroseconds,
	} {
		var length [8]byte
		if column == nil {
			binary.BigEndian.PutUint64(length[:], math.MaxUint64)
			_, _ = sealed.Write(length[:])
			continue
		}
		binary.BigEndian.PutUint64(length[:], uint64(len(*column)))
		_, _ = sealed.Write(length[:])
		_, _ = sealed.Write([]byte(*column))
	}
	return sealed.Sum(nil)
}
