package codec_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/workflows/contract/codec"
)

func keyFile(t *testing.T, mode os.FileMode, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

func TestAKeyFile(t *testing.T) {
	for _, mode := range []os.FileMode{0o600, 0o400, 0o640, 0o440} {
		keys, err := codec.LoadKeys(keyFile(t, mode,
			"# keys of the billing namespace", "", "  "+line("2026-07", 1)+"\t\r", "#"+line("gone", 3), line("a.B_c:d-1", 2)+" "))
		require.NoError(t, err)
		payload := encrypted(t, codec.New(keys))
		assert.Equal(t, "2026-07", string(payload.Metadata["encryption-key-id"]))
	}
}

func TestMistakesInAKeyFile(t *testing.T) {
	short := base64.StdEncoding.EncodeToString([]byte("s3cret"))
	good := strings.Fields(line("k", 1))[1]
	for name, tc := range map[string]struct {
		lines []string
		says  string
	}{
		"empty":             {nil, "has no key: add a line"},
		"only comments":     {[]string{"# k " + good, ""}, "has no key: add a line"},
		"only plain":        {[]string{"plain"}, "has no key: add a line"},
		"one word":          {[]string{"", good}, "line 2: must have two words, a key id and a key in base64, not 1"},
		"three words":       {[]string{"k = " + good}, "line 1: must have two words, a key id and a key in base64, not 3"},
		"changed places":    {[]string{good + " k"}, "line 1: its first word, the key id, must be"},
		"long id":           {[]string{strings.Repeat("k", 65) + " " + good}, "line 1: its first word, the key id, must be"},
		"no base64":         {[]string{"k s3cret!"}, "line 1: its second word, the key, is not base64: make one with `openssl rand -base64 32`"},
		"without padding":   {[]string{"k " + strings.TrimRight(good, "=")}, "line 1: its second word, the key, is not base64"},
		"loose end":         {[]string{"k " + good[:42] + "F="}, "line 1: its second word, the key, is not base64"},
		"too short":         {[]string{"k " + short}, "line 1: its key has 6 bytes, not 32: make one with `openssl rand -base64 32`"},
		"same id":           {[]string{line("k", 1), "", line("k", 2)}, "line 3: its key id is that of line 1, too"},
		"same key":          {[]string{line("k", 1), line("l", 1)}, "line 2: its key is that of line 1, too"},
		"plain later":       {[]string{line("k", 1), "plain"}, "line 2: plain stands alone, before the first key"},
		"plain twice":       {[]string{"plain", "plain", line("k", 1)}, "line 2: plain stands alone"},
		"plain with a key":  {[]string{line("plain", 1)}, "line 1: plain stands alone"},
		"far too large":     {[]string{strings.Repeat("#\n", 33<<10)}, "is over 64 KiB"},
		"byte order mark":   {[]string{"\ufeff" + line("k", 1)}, "line 1: its first word, the key id, must be"},
		"a bad one at last": {[]string{line("k", 1), "l " + short}, "line 2: its key has 6 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := keyFile(t, 0o600, tc.lines...)
			keys, err := codec.LoadKeys(path)
			require.ErrorContains(t, err, "RECLAIM_CODEC_KEYS: "+path+": "+tc.says)
			assert.Nil(t, keys)
			for _, word := range strings.Fields(strings.Join(tc.lines, " ")) {
				if len(word) > 5 {
					assert.NotContains(t, err.Error(), word, "it may be a key")
				}
			}
		})
	}
}

func TestEveryMistakeOfAKeyFileIsToldAtOnce(t *testing.T) {
	_, err := codec.LoadKeys(keyFile(t, 0o644, "one", "b@d s3cret!", line("k", 1), line("k", 1), "plain"))
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 7, "%v", err)
	for i, says := range []string{
		"may be read by everybody, or written by others than its owner (mode 0644): chmod 600 it", "line 1: must have two words",
		"line 2: its first word", "line 2: its second word", "line 4: its key id", "line 4: its key is that", "line 5: plain",
	} {
		assert.Contains(t, lines[i], says)
		assert.True(t, strings.HasPrefix(lines[i], "RECLAIM_CODEC_KEYS: "), lines[i])
	}
}

func TestAKeyFileThatOthersMayUseIsRefused(t *testing.T) {
	for _, mode := range []os.FileMode{0o644, 0o604, 0o602, 0o601, 0o620, 0o660, 0o444} {
		keys, err := codec.LoadKeys(keyFile(t, mode, line("k", 1)))
		assert.ErrorContains(t, err, "chmod 600", "%#o", mode)
		assert.Nil(t, keys)
	}
}

func TestAKeyFileThatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	_, err := codec.LoadKeys(filepath.Join(folder, "none"))
	assert.ErrorContains(t, err, "RECLAIM_CODEC_KEYS: "+folder+"/none: cannot be read: no such file")
	_, err = codec.LoadKeys(folder)
	assert.ErrorContains(t, err, "cannot be read: is a directory")
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(line("k", 1) + "\n" + line("l", 2)))
	f.Add([]byte("plain\n# c\n\n" + line("k", 1)))
	f.Add([]byte("k k\nplain plain\r\n\xff\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := codec.ParseKeys(text)
		if (keys == nil) == (err == nil) {
			t.Fatalf("keys and error: %v, %v", keys, err)
		}
		if err != nil {
			if message := err.Error(); strings.ContainsFunc(message, func(r rune) bool { return r < ' ' && r != '\n' || r > '~' }) {
				t.Fatalf("something of the file is in %q", message)
			}
			return
		}
		sealed := encrypted(t, codec.New(keys))
		if encoding := string(sealed.Metadata["encoding"]); encoding != codec.Encoding && !strings.Contains(string(text), "plain") {
			t.Fatalf("encoded as %s", encoding)
		}
	})
}
