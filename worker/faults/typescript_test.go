package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// The example worker in TypeScript does the work of these jobs: it shares no code with Reclaim and gets nothing but JSON.
const (
	countWords = "CountWords"
	probeWords = "ProbeWords"
)

var (
	wordsSource    = filepath.Join("..", "examples", "typescript")
	wordsInstalled = filepath.Join("..", "..", ".cache", "typescript")

	wordsProgram = struct {
		sync.Once
		path string
		err  error
	}{}
)

// needsWords skips a test where the example cannot run.
func needsWords(t *testing.T) {
	t.Helper()
	if missing := wordsMissing(); missing != "" {
		t.Skip(missing)
	}
}

// buildWords compiles the example once, as it stands, and returns its program.
func buildWords(t *testing.T) string {
	t.Helper()
	wordsProgram.Do(func() { wordsProgram.path, wordsProgram.err = compileWords() })
	require.NoError(t, wordsProgram.err)
	return wordsProgram.path
}

// wordsMissing says what the example lacks on this machine.
var wordsMissing = sync.OnceValue(func() string {
	if _, err := exec.LookPath("node"); err != nil {
		return "there is no Node.js"
	}
	wanted, wantedErr := os.ReadFile(filepath.Join(wordsSource, "package-lock.json"))
	has, hasErr := os.ReadFile(filepath.Join(wordsInstalled, "package-lock.json"))
	// npm writes this file last.
	_, unfinished := os.Stat(filepath.Join(wordsInstalled, "node_modules", ".package-lock.json"))
	if errors.Join(wantedErr, hasErr, unfinished) != nil || !bytes.Equal(has, wanted) {
		return "the packages of worker/examples/typescript are not installed: make prepare"
	}
	load := exec.Command("node", "-e", "require('@temporalio/core-bridge')")
	load.Dir = wordsInstalled
	if output, err := load.CombinedOutput(); err != nil {
		return fmt.Sprintf("Temporal's SDK for Node.js does not run here: %s\n%s", err, output)
	}
	return ""
})

func compileWords() (program string, err error) {
	folder, err := os.MkdirTemp("", "reclaim-words-")
	if err != nil {
		return "", err
	}
	atExit = append(atExit, func() error { return os.RemoveAll(folder) })
	if err := layWords(folder); err != nil {
		return "", err
	}
	return filepath.Join(folder, "dist", "worker.js"), compileTypeScript(folder, "--project", folder)
}

// layWords puts the example into the folder, beside its packages.
func layWords(folder string) error {
	modules, err := filepath.Abs(filepath.Join(wordsInstalled, "node_modules"))
	if err != nil {
		return err
	}
	for _, name := range []string{"package.json", "tsconfig.json"} {
		data, err := os.ReadFile(filepath.Join(wordsSource, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			return err
		}
	}
	if err := os.CopyFS(filepath.Join(folder, "src"), os.DirFS(filepath.Join(wordsSource, "src"))); err != nil {
		return err
	}
	return os.Symlink(modules, filepath.Join(folder, "node_modules"))
}

func compileTypeScript(folder string, arguments ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	compile := exec.CommandContext(ctx, "node", append([]string{filepath.Join("node_modules", "typescript", "bin", "tsc")}, arguments...)...)
	compile.Dir = folder
	if output, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("compile TypeScript: %w\n%s", err, output)
	}
	return nil
}

// words is a stage whose work is done by the TypeScript example, on a task queue and in a folder of its own.
type words struct {
	*stage
	program, work, results string
}

func newWords(t *testing.T) *words {
	t.Helper()
	needsQuiet(t)
	needsWords(t)
	s := newStage(t)
	return &words{stage: s, program: buildWords(t), work: "words-" + s.tenant, results: t.TempDir()}
}

// startWords runs the example until it polls, with Temporal at the address.
func (w *words) startWords(address string) *child {
	w.t.Helper()
	c := &child{t: w.t, log: &lines{}, exited: make(chan struct{})}
	c.cmd = exec.Command("node", w.program, "--task-queue", w.work, "--results", w.results)
	c.cmd.Env = append(withoutTemporal(), "TEMPORAL_ADDRESS="+address, "TEMPORAL_NAMESPACE=default")
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	endWithParent(c.cmd)
	require.NoError(w.t, c.cmd.Start())
	go func() {
		c.ended = c.cmd.Wait()
		close(c.exited)
	}()
	w.t.Cleanup(func() {
		c.kill()
		if w.t.Failed() {
			w.t.Logf("the worker of %s said:\n%s", w.work, c.log)
		}
	})
	w.says(c, "RUNNING")
	return c
}

func withoutTemporal() (environment []string) {
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "TEMPORAL_") {
			environment = append(environment, entry)
		}
	}
	return environment
}

// says waits until the worker has said so.
func (w *words) says(c *child, what string) {
	w.t.Helper()
	eventually(w.t, "the worker says "+what, func() bool {
		select {
		case <-c.exited:
			w.t.Fatalf("the worker ended by itself: %v", c.ended)
		default:
		}
		return strings.Contains(c.log.String(), what)
	})
}

// count describes a job that counts the words of a text.
func (w *words) count(id string, input map[string]any, change ...func(*contract.Job)) contract.Job {
	w.t.Helper()
	all := map[string]any{"text": "the sea, the SEA and the sky"}
	maps.Copy(all, input)
	data, err := json.Marshal(all)
	require.NoError(w.t, err)
	return w.job(id, append([]func(*contract.Job){func(j *contract.Job) {
		j.Work = contract.Work{
			Activity: countWords, TaskQueue: w.work, Input: data, Probe: probeWords, Timeout: contract.Duration(10 * time.Minute),
		}
	}}, change...)...)
}

// runs tells how often the job's words were really counted.
func (w *words) runs(jobID string) (n int) {
	w.t.Helper()
	log, err := os.ReadFile(filepath.Join(w.results, "runs.log"))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(w.t, err)
	}
	for line := range bytes.Lines(log) {
		var run struct{ Tenant, JobID, Event string }
		// The last line may be under way.
		if json.Unmarshal(line, &run) == nil && run.Tenant == w.tenant && run.JobID == jobID && run.Event == "started" {
			n++
		}
	}
	return n
}

func (w *words) isCounting(jobID string) {
	w.t.Helper()
	eventually(w.t, "job "+jobID+" is counting", func() bool { return w.runs(jobID) > 0 })
}

func (w *words) isStored(jobID string) {
	w.t.Helper()
	eventually(w.t, "the result of job "+jobID+" is stored", func() bool {
		_, err := os.Stat(filepath.Join(w.results, w.tenant, jobID+".json"))
		return err == nil
	})
}

// assertCounted checks that the job's output refers to a stored result, and that this is right.
func (w *words) assertCounted(result contract.JobResult, text string) {
	w.t.Helper()
	counts, total := map[string]int{}, 0
	for _, word := range regexp.MustCompile(`[\p{L}\p{N}]+`).FindAllString(strings.ToLower(text), -1) {
		counts[word]++
		total++
	}
	require.NotZero(w.t, total)
	file := w.tenant + "/" + result.JobID + ".json"
	assert.JSONEq(w.t, fmt.Sprintf(`{"file":%q,"words":%d,"distinct":%d}`, file, total, len(counts)), string(result.Output))
	data, err := os.ReadFile(filepath.Join(w.results, filepath.FromSlash(file)))
	require.NoError(w.t, err)
	var stored struct{ Counts map[string]int }
	require.NoError(w.t, json.Unmarshal(data, &stored))
	assert.Equal(w.t, counts, stored.Counts)
	left, err := filepath.Glob(filepath.Join(w.results, w.tenant, "*"))
	require.NoError(w.t, err)
	assert.Equal(w.t, []string{filepath.Join(w.results, filepath.FromSlash(file))}, left, "nothing but the result is left")
}

// startOfTheGuide is the command that the guide shows.
var startOfTheGuide = regexp.MustCompile("(?s)```sh\n(temporal workflow start .*?)```")

// Nothing of Go's is on the way of this job: the command line starts it and TypeScript does it.
func TestTheGuidesPlainStartIsDeliveredByTypeScript(t *testing.T) {
	w := newWords(t)
	worker := w.startWords(w.address)
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "integration.md"))
	require.NoError(t, err)
	command := startOfTheGuide.FindSubmatch(guide)
	require.NotNil(t, command, "docs/integration.md shows no `temporal workflow start`")
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	input, err := json.Marshal(map[string]any{"text": string(text)})
	require.NoError(t, err)

	w.job("render-8841") // its id in the guide
	line := string(command[1])
	for theirs, ours := range map[string]string{
		"job/acme/":            "job/" + w.tenant + "/",
		`"acme"`:               fmt.Sprintf("%q", w.tenant),
		"--task-queue reclaim": "--task-queue " + w.queue,
		`"RenderVideo"`:        fmt.Sprintf("%q", countWords),
		`"gpu"`:                fmt.Sprintf("%q", w.work),
		`{"clip":"c-17"}`:      strings.ReplaceAll(string(input), "'", `\u0027`),
		// A busy machine may be slow.
		`"promise":"30s"`: `"promise":"5m"`,
	} {
		require.Equal(t, 1, strings.Count(line, theirs), "%s in the guide's command", theirs)
		line = strings.Replace(line, theirs, ours, 1)
	}
	binary, err := localstack.EnsureTemporal(w.ctx(), nil)
	require.NoError(t, err)
	start := exec.CommandContext(w.ctx(), "sh", "-c", line)
	start.Env = append(withoutTemporal(), "TEMPORAL_ADDRESS="+w.address,
		"PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := start.CombinedOutput()
	require.NoError(t, err, "%s", output)

	result := w.runEnds("render-8841")
	w.assertDelivered(result)
	w.assertCounted(result, string(text))
	assert.Equal(t, 1, result.Attempts)
	assert.EqualValues(t, credits-cost, w.balance())
	worker.stop()
}

func TestTypeScriptThatIsStoppedAfterThePromiseDeliversLateAndIsReclaimed(t *testing.T) {
	w := newWords(t)
	worker := w.startWords(w.address)
	w.startCharged(w.count("j1", map[string]any{"slowMs": 10_000}, promised(time.Second)))
	w.isRefunded("j1")
	assert.EqualValues(t, credits, w.balance(), "the customer has the credits while the work goes on")
	worker.stop() // what is under way is finished first
	result := w.runEnds("j1")
	w.assertReclaimed(result)
	w.assertCounted(result, "the sea, the SEA and the sky")
	assert.Equal(t, 1, result.Attempts)
	assert.Equal(t, 1, w.runs("j1"))
	assert.EqualValues(t, credits-cost, w.balance())
}

func TestTypeScriptSaysWhetherAnotherAttemptCanHelp(t *testing.T) {
	w := newWords(t)
	w.startWords(w.address)
	w.startCharged(w.count("hopeless", map[string]any{"neverSucceeds": true}))
	w.startCharged(w.count("misspelt", map[string]any{"slow": 1}))
	w.startCharged(w.count("unlucky", map[string]any{"failAttempts": 1}))

	hopeless := w.runEnds("hopeless")
	w.assertRefunded(hopeless, contract.StateFailed)
	assert.Contains(t, hopeless.Reason, "this text cannot be counted")
	assert.Equal(t, 1, hopeless.Attempts)
	misspelt := w.runEnds("misspelt")
	w.assertRefunded(misspelt, contract.StateFailed)
	assert.Contains(t, misspelt.Reason, "the field slow is not known")
	unlucky := w.runEnds("unlucky")
	w.assertReclaimed(unlucky)
	assert.Equal(t, 2, unlucky.Attempts)
	assert.Equal(t, 1, w.runs("unlucky"))
}

func TestTypeScriptStopsWhenItsJobIsCanceled(t *testing.T) {
	w := newWords(t)
	w.startWords(w.address)
	w.startCharged(w.count("j1", map[string]any{"slowMs": 10 * time.Hour / time.Millisecond}))
	w.isCounting("j1")
	require.NoError(t, w.client.Cancel(w.ctx(), w.tenant, "j1"))
	w.assertRefunded(w.runEnds("j1"), contract.StateCanceled)
	left, err := filepath.Glob(filepath.Join(w.results, w.tenant, "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestTheResultOfAKilledTypeScriptWorkerIsNotMadeAgain(t *testing.T) {
	w := newWords(t)
	line := newCable(t, w.address)
	worker := w.startWords(line.address)
	beating := func(j *contract.Job) { j.Work.Heartbeat = contract.Duration(8 * time.Second) }
	unprobed := func(j *contract.Job) { j.Work.Probe = "" }
	w.startCharged(w.count("probed", map[string]any{"slowMs": 5000}, beating))
	w.startCharged(w.count("unprobed", map[string]any{"slowMs": 5000}, beating, unprobed))
	w.isCounting("probed")
	w.isCounting("unprobed")
	line.cut()
	w.isStored("probed")
	w.isStored("unprobed")
	worker.kill()
	w.startWords(w.address)

	found := w.runEnds("probed")
	w.assertDelivered(found)
	assert.Contains(t, found.Reason, "as its probe found")
	assert.Equal(t, 1, found.Attempts)
	assert.Equal(t, 1, w.runs("probed"))
	// The second attempt has the first one's key.
	answered := w.runEnds("unprobed")
	w.assertDelivered(answered)
	assert.Equal(t, 2, answered.Attempts)
	assert.Equal(t, 1, w.runs("unprobed"))
	assert.JSONEq(t, fmt.Sprintf(`{"file":"%s/unprobed.json","words":7,"distinct":4}`, w.tenant), string(answered.Output))
}

// There is no heartbeat timeout here and no attempt's end for ten minutes that could tell: an answer that is dropped is missed.
func TestATypeScriptResultOutlastsTheSDKsPatience(t *testing.T) {
	// The SDK waits for ten seconds until a heartbeat under way has gone out, and then for ten more with the answer.
	const sdkPatience = 20 * time.Second
	w := newWords(t)
	line := newCable(t, w.address)
	worker := w.startWords(line.address)
	w.startCharged(w.count("j1", map[string]any{"slowMs": 1000}))
	w.isCounting("j1")
	line.cut()
	w.isStored("j1")
	stored := time.Now()
	eventually(t, "the SDK would have given up", func() bool { return time.Since(stored) > sdkPatience+time.Second })
	w.says(worker, "The result was not taken")
	line.mend()
	result := w.runEnds("j1")
	w.assertDelivered(result)
	assert.NotContains(t, result.Reason, "probe")
	assert.Equal(t, 1, result.Attempts)
	assert.Equal(t, 1, w.runs("j1"))
}

// snippets are the programs that the page about work shows, by language.
var snippets = regexp.MustCompile("(?s)\n```(go|ts)\n(.*?)```")

func TestTheSnippetsOfTheGuideCompile(t *testing.T) {
	needsQuiet(t)
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "work.md"))
	require.NoError(t, err)
	shown := map[string]string{}
	for _, snippet := range snippets.FindAllSubmatch(page, -1) {
		shown[string(snippet[1])] += string(snippet[2])
	}
	t.Run("Go", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "main.go")
		require.NoError(t, os.WriteFile(file, []byte(shown["go"]), 0o600))
		output, err := exec.Command("go", "vet", file).CombinedOutput()
		require.NoError(t, err, "%s", output)
		output, err = exec.Command("gofmt", "-l", file).CombinedOutput()
		require.NoError(t, err, "%s", output)
		assert.Empty(t, string(output), "gofmt would change it")
	})
	t.Run("TypeScript", func(t *testing.T) {
		needsWords(t)
		folder := t.TempDir()
		require.NoError(t, layWords(folder))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "guide.ts"), []byte(shown["ts"]), 0o600))
		require.NoError(t, compileTypeScript(folder, "--ignoreConfig", "--noEmit", "--strict", "--skipLibCheck",
			"--target", "es2023", "--module", "nodenext", "--types", "node", "guide.ts"))
	})
}

// cable connects to a server, and can be cut.
type cable struct {
	address string
	mu      sync.Mutex
	isCut   bool
	ends    map[net.Conn]bool
}

func newCable(t *testing.T, server string) *cable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cable{address: listener.Addr().String(), ends: map[net.Conn]bool{}}
	var carried sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		c.cut()
		carried.Wait()
	})
	carried.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			carried.Go(func() { c.carry(near, server) })
		}
	})
	return c
}

// carry copies both ways until one end is closed.
func (c *cable) carry(near net.Conn, server string) {
	far, err := net.Dial("tcp", server)
	if err != nil {
		_ = near.Close()
		return
	}
	if c.holds(near, far) {
		var ways sync.WaitGroup
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			ways.Go(func() {
				_, _ = io.Copy(way[0], way[1])
				_ = way[0].Close()
			})
		}
		ways.Wait()
	}
	_ = near.Close()
	_ = far.Close()
}

// holds notes the ends of a connection, unless the cable is cut.
func (c *cable) holds(ends ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range ends {
		c.ends[end] = true
	}
	return !c.isCut
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for end := range c.ends {
		_ = end.Close()
	}
	clear(c.ends)
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = false
}
