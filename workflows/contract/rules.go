package contract

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ValidID says whether the text is an id: 1 to 100 characters of A-Z a-z 0-9 . _ : -.
func ValidID(id string) bool {
	if len(id) < 1 || len(id) > 100 {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("._:-", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// CheckID returns a BadInput error that names the field where the text is not an id.
func CheckID(field, id string) error {
	var p problems
	checkID(&p, field, &id)
	return p.err(CodeBadInput)
}

// CheckText returns a BadInput error that names the field where a free text that must be given is empty, longer than
// limit bytes, or holds a NUL or invalid UTF-8.
func CheckText(field, text string, limit int) error {
	var p problems
	if strings.TrimSpace(text) == "" {
		p.add(field, "is missing")
	}
	checkText(&p, field, text, limit)
	return p.err(CodeBadInput)
}

func checkID(p *problems, field string, id *string) {
	if id != nil && !ValidID(*id) {
		p.add(field, fmt.Sprintf("must be 1 to 100 characters of A-Z a-z 0-9 . _ : -, not %q", clip(*id, 40)))
	}
}

// CheckOwner applies the rules of a tenant that is to have an account. The error has code BadInput.
func CheckOwner(tenant string) error {
	var p problems
	checkOwner(&p, tenant)
	return p.err(CodeBadInput)
}

func checkOwner(p *problems, tenant string) {
	checkID(p, "tenant", &tenant)
	if tenant == UnassignedTenant {
		p.add("tenant", fmt.Sprintf("must not be %q, which is kept for messages that belong to no tenant", UnassignedTenant))
	}
}

// checkName guards the names of activities, probes and queues: Temporal accepts a longer or reserved one in the
// command and then fails the workflow task for ever.
func checkName(p *problems, field string, name *string) {
	if name == nil {
		return
	}
	if len(*name) < 1 || len(*name) > 200 || strings.ContainsFunc(*name, func(r rune) bool { return r < ' ' || r > '~' }) {
		p.add(field, fmt.Sprintf("must be 1 to 200 printable ASCII characters, not %q", clip(*name, 40)))
	} else if strings.HasPrefix(*name, "/_sys/") {
		p.add(field, "must not begin with \"/_sys/\", which Temporal reserves")
	}
}

// checkQueue keeps work away from the queues on which Temporal's own workers act with the whole namespace's rights.
func checkQueue(p *problems, field string, name *string) {
	checkName(p, field, name)
	if name != nil && strings.HasPrefix(*name, "temporal-sys-") {
		p.add(field, "must not begin with \"temporal-sys-\", which is Temporal's own")
	}
}

func checkSpan(p *problems, field string, span *Duration) {
	if span != nil && (*span <= 0 || span.Std() > MaxDuration) {
		p.add(field, fmt.Sprintf("must be more than 0s and at most ten years, not %s", span))
	}
}

func checkText(p *problems, field, text string, limit int) {
	if len(text) > limit {
		p.add(field, fmt.Sprintf("has %d bytes, more than the %d allowed", len(text), limit))
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		p.add(field, "must be valid UTF-8 without NUL characters")
	}
}
