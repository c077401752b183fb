package webui_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

const (
	// patience bounds each wait for a page: it is over when the page shows what is waited for.
	patience = 90 * time.Second
	// looks is how often a page is looked at meanwhile.
	looks = 100 * time.Millisecond

	width, height = 1400, 900
)

// browser is a Chromium with one tab, used like a person does: it reads what is to be seen, clicks on it and pastes.
type browser struct {
	t   *testing.T
	ctx context.Context
	// clicks counts them since the tab was last sent to an address.
	clicks int
	// pictures is the folder for the pictures of the docs, empty where none are wanted.
	pictures string
}

// chromium finds a browser, or skips the test.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no chromium, chromium-browser or google-chrome on PATH: the Web UI is not tried in a browser")
	return ""
}

func startBrowser(t *testing.T, path string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(width, height))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(allocated)
	t.Cleanup(closeTab)
	b := &browser{t: t, ctx: ctx, pictures: os.Getenv("RECLAIM_PICTURES")}
	// The first step starts the browser, which lives as long as that step's context.
	require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, height)))
	return b
}

// in gives the same tab to a part of the test.
func (b *browser) in(t *testing.T) *browser {
	part := &browser{t: t, ctx: b.ctx, pictures: b.pictures}
	t.Cleanup(func() {
		if t.Failed() {
			part.keepEvidence()
		}
	})
	return part
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// evaluate runs a script in the page. A page that is just being left answers nothing, which is no error here.
func evaluate[T any](b *browser, script string) (value T, ok bool) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	return value, err == nil
}

// open sends the tab to an address, as a link from elsewhere does.
func (b *browser) open(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address))
	b.clicks = 0
}

// eventually looks until the condition holds.
func (b *browser) eventually(what string, holds func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			b.t.Fatalf("gave up waiting for %s; the page says:\n%s", what, b.text())
		}
		b.wait()
	}
}

func (b *browser) wait() {
	select {
	case <-b.ctx.Done():
		b.t.Fatal("the browser has ended")
	case <-time.After(looks):
	}
}

// text is all that the page says, its frames included: the Web UI shows Markdown in frames.
func (b *browser) text() string {
	text, _ := evaluate[string](b, `[document, ...[...document.querySelectorAll('iframe')].map(frame => frame.contentDocument)]
		.map(page => page?.body?.innerText ?? '').join('\n')`)
	return text
}

// sees waits until the page says all of this.
func (b *browser) sees(words ...string) {
	b.t.Helper()
	for _, word := range words {
		b.eventually(fmt.Sprintf("%q", word), func() bool { return strings.Contains(b.text(), word) })
	}
}

// place is where something on the page can be clicked.
type place struct{ X, Y float64 }

// find gives where the first visible element is that the selector matches and whose text is, or begins with, this; empty
// means any. The Web UI has a second, hidden copy of many elements, for small screens.
func (b *browser) find(selector, text string) (place, bool) {
	arguments, err := json.Marshal([]string{selector, text})
	require.NoError(b.t, err)
	found, ok := evaluate[*place](b, fmt.Sprintf(`(([selector, text]) => {
		const element = [...document.querySelectorAll(selector)].find(e => e.checkVisibility({visibilityProperty: true,
			opacityProperty: true}) && e.innerText.trim().startsWith(text))
		if (!element || element.disabled || element.getAttribute('aria-disabled') === 'true') return null
		const r = element.getBoundingClientRect(), x = r.x + Math.min(r.width, 200) / 2, y = r.y + r.height / 2
		if (element.contains(document.elementFromPoint(x, y))) return {X: x, Y: y}
		// What is covered, or out of sight, cannot be clicked.
		element.scrollIntoView({block: 'nearest', behavior: 'instant'})
		return null
	})(%s)`, arguments))
	if !ok || found == nil {
		return place{}, false
	}
	return *found, true
}

// click clicks on the first visible element of the selector and text with the mouse, once it is there and at rest.
func (b *browser) click(selector, text string) {
	b.t.Helper()
	var at place
	b.eventually(fmt.Sprintf("%s %q to click on", selector, text), func() bool {
		first, there := b.find(selector, text)
		if !there {
			return false
		}
		b.wait()
		at, there = b.find(selector, text)
		return there && first == at
	})
	b.do(chromedp.MouseClickXY(at.X, at.Y))
	b.clicks++
}

// paste puts a text in where the cursor is.
func (b *browser) paste(text string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, input.InsertText, input.InsertTextParams{Text: text})
	require.NoError(b.t, err)
}

// picture keeps what the page looks like for the docs, where pictures are wanted.
func (b *browser) picture(name string) {
	b.t.Helper()
	if b.pictures == "" {
		return
	}
	// Not on anything that would look different for it.
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, width/2, 2))
	var last []byte
	// A page that is at rest looks the same twice. That of an open run never is: it counts the run's time.
	for range 20 {
		shot := b.shoot()
		if bytes.Equal(shot, last) {
			break
		}
		last = shot
		b.wait()
	}
	require.NoError(b.t, os.MkdirAll(b.pictures, 0o755))
	seen, err := png.Decode(bytes.NewReader(last))
	require.NoError(b.t, err)
	var small bytes.Buffer
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, inFewColors(seen)))
	require.NoError(b.t, os.WriteFile(filepath.Join(b.pictures, name+".png"), small.Bytes(), 0o644))
}

// keepEvidence keeps what the page shows, for the reader of a failure.
func (b *browser) keepEvidence() {
	b.t.Logf("the page says:\n%s", b.text())
	path := filepath.Join(b.t.ArtifactDir(), "page.png")
	require.NoError(b.t, os.WriteFile(path, b.shoot(), 0o644))
	b.t.Logf("it looks like %s (kept with go test -artifacts)", path)
}

func (b *browser) shoot() []byte {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	return shot
}
