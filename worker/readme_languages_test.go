package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	fenced  = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```$")
	inline  = regexp.MustCompile("`[^`\n]+`")
	address = regexp.MustCompile(`\]\(([^)]+)\)`)
	remark  = regexp.MustCompile(`(?m)(^|\s+)# .*$`)
)

// commands are the lines of a page's code blocks, without the remarks, which are in the page's language.
func commands(page string) (lines []string) {
	for _, block := range fenced.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(remark.ReplaceAllString(block[1], "")) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// unordered are all matches, once each, in no order of the page's: languages order their words in their own way.
func unordered(of *regexp.Regexp, page string) []string {
	found := of.FindAllString(fenced.ReplaceAllString(page, ""), -1)
	slices.Sort(found)
	return slices.Compact(found)
}

func TestTheReadmesInBothLanguagesSayTheSame(t *testing.T) {
	english, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	chinese, err := os.ReadFile("../README.zh-CN.md")
	require.NoError(t, err)
	require.NotEmpty(t, commands(string(english)))
	assert.Equal(t, commands(string(english)), commands(string(chinese)))
	assert.Equal(t, unordered(inline, string(english)), unordered(inline, string(chinese)), "code within the text")
	links := func(page []byte) []string {
		return slices.DeleteFunc(unordered(address, string(page)), func(link string) bool { return strings.HasPrefix(link, "](README") })
	}
	assert.Equal(t, links(english), links(chinese), "links")
	headings := regexp.MustCompile(`(?m)^#+ `)
	assert.Equal(t, headings.FindAllString(fenced.ReplaceAllString(string(english), ""), -1),
		headings.FindAllString(fenced.ReplaceAllString(string(chinese), ""), -1), "headings")
}
