package schema

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	errEscape = errors.New("has a special character in its user or password that must be escaped: write @ as %40, / as %2F, " +
		"? as %3F, % as %25 and a blank as %20")
	errPort   = errors.New("has a port that is not a number from 1 to 65535")
	errNoList = errors.New("is neither a URL that begins with postgres:// (with no quote or blank before it) nor a list of " +
		"key=value that can be read: in a list, look at the port, at sslmode, and at the quotes around values with blanks")
	errOther = errors.New("cannot be used: write postgres://user:password@host:port/database, and look at what the PG… " +
		"variables of the environment add to it")
)

var (
	schemeName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)
	notEscaped = regexp.MustCompile(`%(?:$|[^0-9A-Fa-f]|.$|.[^0-9A-Fa-f])|\s`)
)

// CheckURL names the mistake of a database URL, or of a key=value list, without quoting any of it but its scheme and the
// names of its options: it may hold a password. The error goes on after the name of what holds the URL. An empty text is
// for the caller to judge.
func CheckURL(text string) error {
	if text == "" {
		return nil
	}
	_, driverErr := pgxpool.ParseConfig(text)
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL || !schemeName.MatchString(scheme) {
		if driverErr != nil {
			return errNoList
		}
		return nil
	}
	if scheme != "postgres" && scheme != "postgresql" {
		return fmt.Errorf("must begin with postgres://, not %s://", scheme)
	}
	// As the driver reads it: the first @ ends user and password, unless a / comes before.
	var account string
	place := rest
	if end := strings.IndexAny(rest, "@/"); end >= 0 && rest[end] == '@' {
		account, place = rest[:end], rest[end+1:]
	}
	place, options, _ := strings.Cut(place, "?")
	hosts, database, _ := strings.Cut(place, "/")
	switch {
	// The driver would take what follows for a host or a database, and show it in its errors.
	case strings.Contains(place, "@"),
		driverErr != nil && (notEscaped.MatchString(account) || strings.Contains(options, "@")):
		return errEscape
	case driverErr != nil:
		return driverMistake(text, hosts, options)
	case strings.Trim(database, "/") == "" && !hasOption(options, "dbname"):
		return errors.New("names no database: end it with /database")
	}
	return nil
}

// driverMistake looks for what the driver refuses.
func driverMistake(text, hosts, options string) error {
	for host := range strings.SplitSeq(hosts, ",") {
		if strings.HasPrefix(host, "[") {
			_, after, closed := strings.Cut(host, "]")
			if !closed {
				return errors.New("has a host that begins with [ and does not end with ]: write an IPv6 address as [::1]")
			}
			host = after
		}
		if _, port, given := strings.Cut(host, ":"); given && port != "" {
			if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
				return errPort
			}
		}
	}
	// Where it is fine without an option, that one is the mistake.
	all := strings.Split(options, "&")
	for i, option := range all {
		others := strings.Join(slices.Delete(slices.Clone(all), i, i+1), "&")
		if _, err := pgxpool.ParseConfig(strings.TrimSuffix(text, options) + others); err == nil {
			name, _, _ := strings.Cut(option, "=")
			return fmt.Errorf("has an option %.40q with a value that cannot be used", name)
		}
	}
	return errOther
}

func hasOption(options, name string) bool {
	return strings.HasPrefix(options, name+"=") || strings.Contains(options, "&"+name+"=")
}

// redact replaces the driver's complaint about a URL, which quotes it, by CheckURL's.
func redact(err error) error {
	if parse, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		if mistake := CheckURL(parse.ConnString); mistake != nil {
			return mistake
		}
		return errOther
	}
	return err
}
