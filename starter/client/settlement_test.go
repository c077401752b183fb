package client_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// growing is a file to which somebody goes on writing: it is longer when it is read again.
type growing struct {
	*strings.Reader
	then string
}

func (g *growing) Seek(offset int64, whence int) (int64, error) {
	g.Reader = strings.NewReader(g.then)
	return g.Reader.Seek(offset, whence)
}

func TestASettlementFileIsStoredOnceAndWhole(t *testing.T) {
	t.Parallel()
	base := schematest.New(t)
	store, err := schema.Open(t.Context(), base.AppURL, schema.Options{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	c := client.New(nil, store, "")
	put := func(tenant, channel, actor string, content io.ReadSeeker) (client.StoredSettlement, error) {
		return c.StoreSettlement(t.Context(), client.SettlementFile{
			Tenant: tenant, Channel: channel, Name: "july.csv", Actor: actor, Content: content,
		})
	}
	text := strings.Repeat("line of a settlement\n", 150_000)
	first, err := put("acme", "sim", "ann", strings.NewReader(text))
	require.NoError(t, err)
	assert.Equal(t, "applied", first.Verdict)
	assert.EqualValues(t, len(text), first.Bytes)
	again, err := put("acme", "sim", "bob", strings.NewReader(text))
	require.NoError(t, err)
	first.Verdict = "already"
	assert.Equal(t, first, again, "the first one's name, actor and time")
	for _, other := range [][2]string{{"acme", "stripe"}, {"globex", "sim"}} {
		stored, err := put(other[0], other[1], "ann", strings.NewReader(text))
		require.NoError(t, err)
		assert.Equal(t, "applied", stored.Verdict, "another channel's or tenant's")
	}

	row, err := store.GetSettlementFile(t.Context(), db.GetSettlementFileParams{
		TenantID: "acme", Channel: "sim", FileHash: first.Key.Hash,
	})
	require.NoError(t, err)
	var kept strings.Builder
	for chunk := range int32(4) {
		content, err := store.GetSettlementChunk(t.Context(), db.GetSettlementChunkParams{TenantID: "acme", FileNo: row.FileNo, Chunk: chunk})
		require.NoError(t, err)
		assert.LessOrEqual(t, len(content), contract.SettlementChunkBytes)
		kept.Write(content)
	}
	assert.True(t, kept.String() == text, "the chunks are the file")

	for name, content := range map[string]io.ReadSeeker{
		"empty": strings.NewReader(""), "changed": &growing{strings.NewReader("a,b\n"), "a,c\n"},
		"shortened": &growing{strings.NewReader("a,b,c\n"), "a,b\n"},
	} {
		_, err := put("acme", "sim", "ann", content)
		refusal(t, contract.CodeBadInput, err)
		require.ErrorContains(t, err, "settlement", name)
	}
	_, err = put("acme corp", "", "", strings.NewReader("a"))
	assert.Len(t, refusal(t, contract.CodeBadInput, err).Fields, 3)
	var files int
	require.NoError(t, store.Pool.QueryRow(t.Context(), "SELECT count(*) FROM reclaim.settlement_files").Scan(&files))
	assert.Equal(t, 3, files, "nothing is kept of what was refused")
}
