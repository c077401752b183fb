package codec

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"strings"
)

// KeysVariable is the environment variable that names the file with the keys.
const KeysVariable = "RECLAIM_CODEC_KEYS"

const (
	keyBytes = 32
	// maxFileBytes is far more than any number of keys in use takes.
	maxFileBytes = 64 << 10
	// plainWord stands in the file in a key's place, for payloads that are not encrypted.
	plainWord = "plain"
)

// validKeyID is short enough that an encrypted summary stays within the 400 bytes that Temporal allows.
var validKeyID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// Keys are the keys of one file: the first one encrypts, and all of them decrypt.
type Keys struct {
	all []key
	// plain is set where nothing is encrypted, only decrypted.
	plain bool
}

type key struct {
	id string
	// aead makes a random nonce of 96 bits for each payload and puts it before the ciphertext.
	aead cipher.AEAD
}

// Format hides the keys from every verb and flag of package fmt.
func (k *Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(keys)") }

func (k *Keys) find(id string) (key, bool) {
	for _, one := range k.all {
		if one.id == id {
			return one, true
		}
	}
	return key{}, false
}

// LoadKeys reads a file of keys, of which every line has an id and 32 bytes in base64:
//
//	2026-07 <what `openssl rand -base64 32` prints>
//
// Empty lines and lines that begin with # are left out. The first key encrypts; where the first line is the word plain, none
// does. The file must be readable by its owner, or its group, alone. The error joins every mistake in it, each naming the
// file and the line, and none of them anything that stands there: it may be a key in the wrong place.
func LoadKeys(path string) (*Keys, error) {
	text, tooOpen, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: cannot be read: %w", KeysVariable, path, err)
	}
	keys, err := ParseKeys(text)
	all := []error{tooOpen}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = append(all, joined.Unwrap()...)
	}
	for i, mistake := range all {
		if mistake != nil {
			all[i] = fmt.Errorf("%s: %s: %w", KeysVariable, path, mistake)
		}
	}
	if err := errors.Join(all...); err != nil {
		return nil, err
	}
	return keys, nil
}

// readFile returns the file's text, and as tooOpen whether others than its owner and group may use it.
func readFile(path string) (text []byte, tooOpen, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, systemError(err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, systemError(err)
	}
	// Windows has no such bits.
	if mode := info.Mode().Perm(); mode&0o027 != 0 && runtime.GOOS != "windows" {
		tooOpen = fmt.Errorf("may be read by everybody, or written by others than its owner (mode %#o): chmod 600 it "+
			"(440 where its group is the program's own)", mode)
	}
	text, err = io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	return text, tooOpen, systemError(err)
}

// systemError is the system's own word, without the path that it is about.
func systemError(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// ParseKeys reads the text of a file of keys, as LoadKeys describes it. The error joins every mistake in it.
func ParseKeys(text []byte) (*Keys, error) {
	if len(text) > maxFileBytes {
		return nil, errors.Join(fmt.Errorf("is over %d KiB, which no file of keys is", maxFileBytes>>10))
	}
	keys := &Keys{}
	var mistakes []error
	idLines, keyLines := map[string]int{}, map[[keyBytes]byte]int{}
	number, entries := 0, 0
	for line := range bytes.Lines(text) {
		number++
		words := strings.Fields(string(line))
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		entries++
		mistake := func(format string, args ...any) {
			mistakes = append(mistakes, fmt.Errorf("line %d: "+format, append([]any{number}, args...)...))
		}
		if words[0] == plainWord {
			if len(words) > 1 || entries > 1 {
				mistake("%s stands alone, before the first key: it is no key's id", plainWord)
			}
			keys.plain = true
			continue
		}
		if len(words) != 2 {
			mistake("must have two words, a key id and a key in base64, not %d", len(words))
			continue
		}
		valid := true
		refuse := func(format string, args ...any) {
			mistake(format, args...)
			valid = false
		}
		id := words[0]
		if !validKeyID.MatchString(id) {
			refuse("its first word, the key id, must be 1 to 64 characters of A-Z a-z 0-9 . _ : -")
		} else if first, taken := idLines[id]; taken {
			refuse("its key id is that of line %d, too: a new key needs an id of its own", first)
		} else {
			idLines[id] = number
		}
		secret, err := base64.StdEncoding.Strict().DecodeString(words[1])
		switch {
		case err != nil:
			refuse("its second word, the key, is not base64: make one with `openssl rand -base64 %d`", keyBytes)
		case len(secret) != keyBytes:
			refuse("its key has %d bytes, not %d: make one with `openssl rand -base64 %d`", len(secret), keyBytes, keyBytes)
		default:
			if first, taken := keyLines[[keyBytes]byte(secret)]; taken {
				refuse("its key is that of line %d, too: make a new one with `openssl rand -base64 %d`", first, keyBytes)
			} else {
				keyLines[[keyBytes]byte(secret)] = number
			}
		}
		if !valid {
			continue
		}
		aead, err := newAEAD(secret)
		if err != nil {
			refuse("its key cannot be used: %v", err)
			continue
		}
		keys.all = append(keys.all, key{id, aead})
	}
	if len(mistakes) == 0 && len(keys.all) == 0 {
		mistakes = append(mistakes, fmt.Errorf("has no key: add a line with a key id and the output of "+
			"`openssl rand -base64 %d`, or unset %s", keyBytes, KeysVariable))
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	return keys, nil
}

func newAEAD(secret []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
