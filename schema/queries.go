package schema

import (
	"embed"
	"fmt"
)

//go:embed queries/*.sql
var queries embed.FS

// QueryText returns the text of a statement as it stands in its file, with parameters written @name. The name is the
// file's, without ending.
func QueryText(name string) (string, error) {
	text, err := queries.ReadFile("queries/" + name + ".sql")
	if err != nil {
		return "", fmt.Errorf("there is no statement file %s.sql: %w", name, err)
	}
	return string(text), nil
}
