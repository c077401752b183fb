package contract

import "strings"

// Plain makes a text safe to be shown as Markdown in one line: whoever wrote it decides neither how the page looks nor what
// it loads.
func Plain(text string) string { return markdown.Replace(strings.Join(strings.Fields(text), " ")) }

var markdown = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", `*`, `\*`, `_`, `\_`, `[`, `\[`, `]`, `\]`, `<`, `\<`, `>`, `\>`, `|`, `\|`, `#`, `\#`, `~`, `\~`, `!`, `\!`,
	`://`, `:\//`, `www.`, `www\.`,
)

// BottomOfPage ends a page: the frame in which the Web UI shows Markdown is some lines too short.
const BottomOfPage = "\n\n\u00a0\n\n\u00a0"
