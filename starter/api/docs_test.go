package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/api"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestTheGuideNamesEveryRouteScopeSuccessAndCode(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/http.md")
	require.NoError(t, err)
	s := newStand(t)
	answer, err := http.Get(s.open() + "/openapi.json")
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	var description struct {
		Paths map[string]map[string]struct {
			Description string
			Responses   map[string]any
		}
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&description))

	var described, told []string
	for path, operations := range description.Paths {
		for method, operation := range operations {
			scope := regexp.MustCompile("`(.+)`").FindStringSubmatch(operation.Description)
			require.NotNil(t, scope, path)
			var successes []string
			for status := range operation.Responses {
				if status[0] == '2' {
					successes = append(successes, status)
				}
			}
			slices.Sort(successes)
			described = append(described, fmt.Sprint(strings.ToUpper(method), " ", path, " ", scope[1], " ", successes))
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:GET|POST) /v1/\\S+)` \\| `(\\S+)` \\| (.+) \\|$").FindAllStringSubmatch(string(guide), -1) {
		successes := regexp.MustCompile(`\b2\d\d\b`).FindAllString(row[3], -1)
		slices.Sort(successes)
		told = append(told, fmt.Sprint(row[1], " ", row[2], " ", successes))
	}
	assert.ElementsMatch(t, described, told)

	text, err := os.ReadFile("../../workflows/contract/errors.go")
	require.NoError(t, err)
	var codes, explained []string
	for _, code := range regexp.MustCompile(`Code\w+ +Code += "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		codes = append(codes, code[1])
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\d+) \\|").FindAllStringSubmatch(string(guide), -1) {
		status, err := strconv.Atoi(row[2])
		require.NoError(t, err)
		assert.Equal(t, api.StatusOf(contract.Code(row[1])), status, row[1])
		explained = append(explained, row[1])
	}
	assert.ElementsMatch(t, codes, explained)
}
