package render

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
)

const anHour = 60 * 60 * 1000

func newStudio(t *testing.T) *Studio {
	t.Helper()
	s, err := NewStudio(filepath.Join(t.TempDir(), "results"))
	require.NoError(t, err)
	return s
}

func scene() Input {
	return Input{Width: 60, Height: 40, CenterX: -0.75, Scale: 3.5, MaxIterations: 200}
}

func firstAttempt() Meta {
	return Meta{Tenant: "acme", JobID: "render-8841", Attempt: 1, PromiseDeadline: "2026-01-02T03:04:05Z", IdempotencyKey: "key-1"}
}

// newEnv returns a test environment that has the studio's activities, runs them in ctx and calls onBeat
// with each heartbeat that goes out.
func newEnv(t *testing.T, s *Studio, ctx context.Context, onBeat func(Progress)) *testsuite.TestActivityEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	Register(env, s)
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var p Progress
		if err := details.Get(&p); err != nil {
			t.Errorf("decode a heartbeat: %v", err)
		}
		if onBeat != nil {
			onBeat(p)
		}
	})
	return env
}

func renderIn(env *testsuite.TestActivityEnvironment, in Input, meta Meta) (Output, error) {
	value, err := env.ExecuteActivity(ActivityName, in, meta)
	if err != nil {
		return Output{}, err
	}
	var out Output
	return out, value.Get(&out)
}

func renderOnce(t *testing.T, s *Studio, in Input, meta Meta) (Output, error) {
	t.Helper()
	return renderIn(newEnv(t, s, t.Context(), nil), in, meta)
}

func probe(t *testing.T, s *Studio, meta Meta) ProbeAnswer {
	t.Helper()
	value, err := newEnv(t, s, t.Context(), nil).ExecuteActivity(ProbeName, meta)
	require.NoError(t, err)
	var answer ProbeAnswer
	require.NoError(t, value.Get(&answer))
	return answer
}

// runs returns runs.log as "event key attempt" lines.
func runs(t *testing.T, s *Studio) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, runsLogName))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(data)) {
		var r run
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		assert.False(t, r.Time.IsZero())
		lines = append(lines, fmt.Sprintf("%s %s %d", r.Event, r.Key, r.Attempt))
	}
	return lines
}

func requireApplicationError(t *testing.T, err error, errType string, nonRetryable bool) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, errType, app.Type())
	require.Equal(t, nonRetryable, app.NonRetryable())
	return app
}

// files lists all there is below the results directory.
func files(t *testing.T, s *Studio) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(s.dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, relErr := filepath.Rel(s.dir, p)
			names, err = append(names, filepath.ToSlash(rel)), relErr
		}
		return err
	})
	require.NoError(t, err)
	return names
}

func TestRenderMakesThePicture(t *testing.T) {
	s := newStudio(t)
	out, err := renderOnce(t, s, scene(), firstAttempt())
	require.NoError(t, err)

	data, err := os.ReadFile(filepath.Join(s.dir, out.File))
	require.NoError(t, err)
	digest := sha256.Sum256(data)
	assert.Equal(t, Output{
		File: "acme/render-8841.png", Width: 60, Height: 40,
		Bytes: int64(len(data)), SHA256: hex.EncodeToString(digest[:]),
	}, out)

	img, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	assert.Equal(t, 60, img.Bounds().Dx())
	assert.Equal(t, 40, img.Bounds().Dy())
	// Around the origin nothing escapes; the corners do, and not all alike.
	black := func(x, y int) bool { r, g, b, _ := img.At(x, y).RGBA(); return r+g+b == 0 }
	assert.True(t, black(30+12, 20), "0 belongs to the set")
	assert.False(t, black(0, 0), "the corner does not belong to the set")
	colours := map[any]bool{}
	for x := range 60 {
		for y := range 40 {
			colours[img.At(x, y)] = true
		}
	}
	assert.Greater(t, len(colours), 30, "the colouring is smooth")
	assert.Equal(t, img.At(5, 3), img.At(5, 36), "the set is symmetric about the real axis")

	var kept result
	sidecar, err := os.ReadFile(filepath.Join(s.dir, "acme/render-8841.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(sidecar, &kept))
	assert.WithinDuration(t, time.Now(), kept.FinishedAt, time.Minute)
	kept.FinishedAt = time.Time{}
	assert.Equal(t, result{IdempotencyKey: "key-1", Width: 60, Height: 40, Bytes: out.Bytes, SHA256: out.SHA256}, kept)

	assert.Equal(t, []string{"started key-1 1", "finished key-1 1"}, runs(t, s))
	assert.ElementsMatch(t, []string{"acme/render-8841.png", "acme/render-8841.json", "runs.log"}, files(t, s),
		"neither a marker nor a temporary file stays behind")
}

func TestRenderHeartbeatsItsProgress(t *testing.T) {
	var mu sync.Mutex
	var beats []Progress
	env := newEnv(t, newStudio(t), t.Context(), func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		beats = append(beats, p)
	})
	_, err := renderIn(env, scene(), firstAttempt())
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, beats)
	for _, p := range beats {
		assert.Equal(t, 40, p.Rows)
	}
}

func TestRenderTakesItsTime(t *testing.T) {
	in := scene()
	in.SlowMs = 300
	start := time.Now()
	_, err := renderOnce(t, newStudio(t), in, firstAttempt())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
}

func TestRenderFailsTheFirstAttempts(t *testing.T) {
	s := newStudio(t)
	in := scene()
	in.FailAttempts = 2
	meta := firstAttempt()
	for meta.Attempt = 1; meta.Attempt <= 2; meta.Attempt++ {
		_, err := renderOnce(t, s, in, meta)
		requireApplicationError(t, err, RenderFailed, false)
	}
	assert.Empty(t, runs(t, s))
	_, err := renderOnce(t, s, in, meta)
	require.NoError(t, err)
	assert.Equal(t, []string{"started key-1 3", "finished key-1 3"}, runs(t, s))
}

func TestRenderNeverSucceeds(t *testing.T) {
	in := scene()
	in.NeverSucceeds = true
	_, err := renderOnce(t, newStudio(t), in, firstAttempt())
	app := requireApplicationError(t, err, BadScene, true)
	assert.Contains(t, app.Error(), "neverSucceeds")
}

func TestRenderFailsUntilTheStudioIsRepaired(t *testing.T) {
	s := newStudio(t)
	in := scene()
	in.FailWhile = "out-of-order"
	broken := filepath.Join(s.dir, "out-of-order")
	require.NoError(t, os.WriteFile(broken, nil, 0o644))
	_, err := renderOnce(t, s, in, firstAttempt())
	requireApplicationError(t, err, StudioDown, false)

	require.NoError(t, os.Remove(broken))
	want, err := renderOnce(t, s, in, firstAttempt())
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(broken, nil, 0o644))
	got, err := renderOnce(t, s, in, firstAttempt())
	require.NoError(t, err, "what is delivered stays delivered")
	assert.Equal(t, want, got)
}

func TestRenderRefusesBadArguments(t *testing.T) {
	s := newStudio(t)
	// One that passes at the very limit of each rule is in TestRenderAcceptsTheLimits.
	for name, tc := range map[string]struct {
		change func(*Input, *Meta)
		field  string
	}{
		"no width":       {func(in *Input, _ *Meta) { in.Width = 0 }, "width"},
		"wide":           {func(in *Input, _ *Meta) { in.Width = 8193 }, "width"},
		"no height":      {func(in *Input, _ *Meta) { in.Height = 0 }, "height"},
		"high":           {func(in *Input, _ *Meta) { in.Height = 8193 }, "height"},
		"large":          {func(in *Input, _ *Meta) { in.Width, in.Height = 8192, 8192 }, "width times height"},
		"far right":      {func(in *Input, _ *Meta) { in.CenterX = 10.1 }, "centerX"},
		"far down":       {func(in *Input, _ *Meta) { in.CenterY = -10.1 }, "centerY"},
		"no scale":       {func(in *Input, _ *Meta) { in.Scale = 0 }, "scale"},
		"large scale":    {func(in *Input, _ *Meta) { in.Scale = 101 }, "scale"},
		"no iterations":  {func(in *Input, _ *Meta) { in.MaxIterations = 0 }, "maxIterations"},
		"iterations":     {func(in *Input, _ *Meta) { in.MaxIterations = 10_001 }, "maxIterations"},
		"fast":           {func(in *Input, _ *Meta) { in.SlowMs = -1 }, "slowMs"},
		"slow":           {func(in *Input, _ *Meta) { in.SlowMs = 24*anHour + 1 }, "slowMs"},
		"negative fails": {func(in *Input, _ *Meta) { in.FailAttempts = -1 }, "failAttempts"},
		"path":           {func(in *Input, _ *Meta) { in.FailWhile = "../down" }, "failWhile"},
		"parent":         {func(in *Input, _ *Meta) { in.FailWhile = ".." }, "failWhile"},
		"no tenant":      {func(_ *Input, m *Meta) { m.Tenant = "" }, "tenant"},
		"tenant path":    {func(_ *Input, m *Meta) { m.Tenant = "a/b" }, "tenant"},
		"no job":         {func(_ *Input, m *Meta) { m.JobID = "" }, "jobId"},
		"long job":       {func(_ *Input, m *Meta) { m.JobID = strings.Repeat("x", 101) }, "jobId"},
		"attempt 0":      {func(_ *Input, m *Meta) { m.Attempt = 0 }, "attempt"},
		"no key":         {func(_ *Input, m *Meta) { m.IdempotencyKey = "" }, "idempotencyKey"},
	} {
		t.Run(name, func(t *testing.T) {
			in, meta := scene(), firstAttempt()
			tc.change(&in, &meta)
			_, err := renderOnce(t, s, in, meta)
			app := requireApplicationError(t, err, BadScene, true)
			assert.Contains(t, app.Error(), tc.field+" is ")
			assert.Contains(t, app.Error(), "it must")
		})
	}
	assert.Empty(t, files(t, s), "a refused scene leaves nothing behind")
}

func TestRenderRefusesWhatItCannotRead(t *testing.T) {
	s := newStudio(t)
	const rest = `,"width":60,"height":40,"scale":3.5,"maxIterations":200}`
	for input, says := range map[string]string{
		`{"slowly":5` + rest: `unknown field "slowly"`, `{"slowMs":"5"` + rest: "slowMs", `[]`: "cannot be read", `null`: "width is 0",
	} {
		_, err := newEnv(t, s, t.Context(), nil).ExecuteActivity(ActivityName, json.RawMessage(input), firstAttempt())
		app := requireApplicationError(t, err, BadScene, true)
		assert.Contains(t, app.Error(), says)
	}
	assert.Empty(t, files(t, s), "a refused scene leaves nothing behind")
}

func TestTheHelpNamesEveryField(t *testing.T) {
	for field := range reflect.TypeFor[Input]().Fields() {
		if field.IsExported() {
			assert.Contains(t, Help(), field.Tag.Get("json"))
		}
	}
}

func TestRenderAcceptsTheLimits(t *testing.T) {
	for _, in := range []Input{
		{Width: 1, Height: 1, CenterX: 10, CenterY: -10, Scale: 100, MaxIterations: 1},
		{Width: 8192, Height: 1, CenterX: -10, CenterY: 10, Scale: 1e-300, MaxIterations: 10_000},
		{Width: 1, Height: 8192, Scale: 100, MaxIterations: 1, FailWhile: "..."},
	} {
		out, err := renderOnce(t, newStudio(t), in, firstAttempt())
		require.NoError(t, err)
		assert.Equal(t, in.Width, out.Width)
		assert.Equal(t, in.Height, out.Height)
	}
	require.NoError(t, Input{Width: 8000, Height: 8000, Scale: 1, MaxIterations: 1, SlowMs: 24 * anHour}.check())
}

func TestRenderIsCanceled(t *testing.T) {
	s := newStudio(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	in := scene()
	in.SlowMs = anHour
	env := newEnv(t, s, ctx, func(Progress) { cancel(temporal.NewCanceledError()) })
	_, err := renderIn(env, in, firstAttempt())
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled, "Temporal is to record a cancel and no failure")
	assert.Equal(t, []string{"started key-1 1"}, runs(t, s))
	assert.Equal(t, []string{"runs.log"}, files(t, s))
	assert.Equal(t, StateUnknown, probe(t, s, firstAttempt()).State)
}

func TestRenderIsInterruptedByAWorkerThatStops(t *testing.T) {
	s := newStudio(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	in := scene()
	in.SlowMs = anHour
	env := newEnv(t, s, ctx, func(Progress) { cancel(worker.ErrWorkerShutdown) })
	_, err := renderIn(env, in, firstAttempt())
	app := requireApplicationError(t, err, Interrupted, false)
	assert.Contains(t, app.Error(), worker.ErrWorkerShutdown.Error())
	assert.Equal(t, []string{"runs.log"}, files(t, s))
}

func TestStoredResultIsNotRenderedAgain(t *testing.T) {
	s := newStudio(t)
	want, err := renderOnce(t, s, scene(), firstAttempt())
	require.NoError(t, err)
	again := firstAttempt()
	again.Attempt = 2
	got, err := renderOnce(t, s, scene(), again)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, []string{"started key-1 1", "finished key-1 1"}, runs(t, s))
}

func TestAnotherKeyIsRenderedAgain(t *testing.T) {
	s := newStudio(t)
	_, err := renderOnce(t, s, scene(), firstAttempt())
	require.NoError(t, err)
	second := firstAttempt()
	second.Attempt, second.IdempotencyKey = 2, "key-2"
	in := scene()
	in.Width = 30
	out, err := renderOnce(t, s, in, second)
	require.NoError(t, err)
	assert.Equal(t, 30, out.Width)
	assert.Equal(t, []string{"started key-1 1", "finished key-1 1", "started key-2 2", "finished key-2 2"}, runs(t, s))
	assert.Equal(t, &out, probe(t, s, second).Output)
}

func TestALostPictureIsRenderedAgain(t *testing.T) {
	s := newStudio(t)
	out, err := renderOnce(t, s, scene(), firstAttempt())
	require.NoError(t, err)
	for name, spoil := range map[string]func(string) error{
		"gone":      os.Remove,
		"truncated": func(p string) error { return os.Truncate(p, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, spoil(filepath.Join(s.dir, out.File)))
			require.Equal(t, StateUnknown, probe(t, s, firstAttempt()).State)
			again, err := renderOnce(t, s, scene(), firstAttempt())
			require.NoError(t, err)
			assert.Equal(t, out, again)
			assert.Equal(t, StateSucceeded, probe(t, s, firstAttempt()).State)
		})
	}
}

func TestAnUnreadableResultIsAnErrorAndNotUnknown(t *testing.T) {
	s := newStudio(t)
	_, err := renderOnce(t, s, scene(), firstAttempt())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.sidecarPath(firstAttempt()), []byte("{"), 0o644))
	_, err = newEnv(t, s, t.Context(), nil).ExecuteActivity(ProbeName, firstAttempt())
	require.ErrorContains(t, err, "decode the stored result")
}

func TestAnAttemptWaitsForTheOneThatRenders(t *testing.T) {
	s := newStudio(t)
	in := scene()
	in.SlowMs = 1500
	rendering := make(chan struct{})
	var once sync.Once
	type answer struct {
		out Output
		err error
	}
	first := make(chan answer, 1)
	go func() {
		env := newEnv(t, s, t.Context(), func(Progress) { once.Do(func() { close(rendering) }) })
		out, err := renderIn(env, in, firstAttempt())
		first <- answer{out, err}
	}()
	<-rendering

	again := firstAttempt()
	again.Attempt = 2
	out, err := renderOnce(t, s, in, again)
	require.NoError(t, err)
	got := <-first
	require.NoError(t, got.err)
	assert.Equal(t, got.out, out)
	assert.Equal(t, []string{"started key-1 1", "finished key-1 1"}, runs(t, s))
}

func TestAWaitingAttemptHeartbeatsAndGoesOnWhenTheOtherIsGone(t *testing.T) {
	s := newStudio(t)
	marker := leaveMarker(t, s, firstAttempt(), time.Now().Add(time.Hour))
	var once sync.Once
	env := newEnv(t, s, t.Context(), func(Progress) {
		once.Do(func() {
			assert.Empty(t, runs(t, s), "nothing is rendered while the other's marker is there")
			assert.NoError(t, os.Remove(marker))
		})
	})
	_, err := renderIn(env, scene(), firstAttempt())
	require.NoError(t, err)
	assert.Equal(t, []string{"started key-1 1", "finished key-1 1"}, runs(t, s))
}

func TestAWaitingAttemptIsCanceled(t *testing.T) {
	s := newStudio(t)
	marker := leaveMarker(t, s, firstAttempt(), time.Now().Add(time.Hour))
	ctx, cancel := context.WithCancelCause(t.Context())
	env := newEnv(t, s, ctx, func(Progress) { cancel(temporal.NewCanceledError()) })
	_, err := renderIn(env, scene(), firstAttempt())
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	assert.Empty(t, runs(t, s))
	assert.FileExists(t, marker, "the marker belongs to another attempt")
}

func TestADeadAttemptsMarkerIsTakenOver(t *testing.T) {
	s := newStudio(t)
	leaveMarker(t, s, firstAttempt(), time.Now().Add(-staleAfter))
	_, err := renderOnce(t, s, scene(), firstAttempt())
	require.NoError(t, err)
	assert.Equal(t, []string{"started key-1 1", "finished key-1 1"}, runs(t, s))
}

// leaveMarker leaves the marker of an attempt that made progress last at that time.
func leaveMarker(t *testing.T, s *Studio, meta Meta, progress time.Time) string {
	t.Helper()
	marker := s.markerPath(meta)
	require.NoError(t, os.MkdirAll(filepath.Dir(marker), 0o755))
	require.NoError(t, os.WriteFile(marker, []byte("{}"), 0o644))
	require.NoError(t, os.Chtimes(marker, progress, progress))
	return marker
}

func TestProbe(t *testing.T) {
	s := newStudio(t)
	meta := Meta{Tenant: "acme", JobID: "render-8841"}
	assert.Equal(t, ProbeAnswer{State: StateUnknown}, probe(t, s, meta), "nothing was ever rendered")
	leaveMarker(t, s, meta, time.Now())
	assert.Equal(t, ProbeAnswer{State: StateRunning}, probe(t, s, meta), "there is recent progress")
	leaveMarker(t, s, meta, time.Now().Add(-staleAfter))
	assert.Equal(t, ProbeAnswer{State: StateUnknown}, probe(t, s, meta), "the progress is old")

	out, err := renderOnce(t, s, scene(), firstAttempt())
	require.NoError(t, err)
	want := ProbeAnswer{State: StateSucceeded, Output: &out}
	assert.Equal(t, want, probe(t, s, meta))
	leaveMarker(t, s, meta, time.Now())
	assert.Equal(t, want, probe(t, s, meta), "a result counts for more than a marker")

	assert.Equal(t, ProbeAnswer{State: StateUnknown}, probe(t, s, Meta{Tenant: "acme", JobID: "render-8842"}))
	assert.Equal(t, ProbeAnswer{State: StateUnknown}, probe(t, s, Meta{Tenant: "other", JobID: "render-8841"}))
	_, err = newEnv(t, s, t.Context(), nil).ExecuteActivity(ProbeName, Meta{Tenant: "acme"})
	requireApplicationError(t, err, BadScene, true)
}

func TestProbeAnswerIsTheJSONThatAJobReads(t *testing.T) {
	data, err := json.Marshal(ProbeAnswer{State: StateUnknown})
	require.NoError(t, err)
	assert.JSONEq(t, `{"state":"unknown"}`, string(data))
	data, err = json.Marshal(ProbeAnswer{State: StateSucceeded, Output: &Output{File: "a/b.png", Width: 1, Height: 2, Bytes: 3, SHA256: "ff"}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"state":"succeeded","output":{"file":"a/b.png","width":1,"height":2,"bytes":3,"sha256":"ff"}}`, string(data))
}

func TestTheMarkerIsRefreshedWhileRendering(t *testing.T) {
	s := newStudio(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	in := scene()
	in.SlowMs = anHour
	ended := make(chan error, 1)
	go func() {
		_, err := renderIn(newEnv(t, s, ctx, nil), in, firstAttempt())
		ended <- err
	}()
	running := func() bool {
		fresh, err := isFresh(s.markerPath(firstAttempt()))
		return err == nil && fresh
	}
	require.Eventually(t, running, 2*time.Minute, 10*time.Millisecond)
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(s.markerPath(firstAttempt()), old, old))
	require.Eventually(t, running, 2*time.Minute, 10*time.Millisecond)
	cancel(temporal.NewCanceledError())
	require.Error(t, <-ended)
}

func TestRenderingGoesOnWhileAHeartbeatIsStuck(t *testing.T) {
	s := newStudio(t)
	unstick := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		env := newEnv(t, s, t.Context(), func(Progress) { <-unstick })
		_, err := renderIn(env, scene(), firstAttempt())
		ended <- err
	}()
	assert.Eventually(t, func() bool { return len(runs(t, s)) == 2 }, 2*time.Minute, 10*time.Millisecond)
	close(unstick)
	require.NoError(t, <-ended)
	assert.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("render.startHeartbeats"))
	}, 2*time.Minute, 10*time.Millisecond, "the heartbeats end with the activity")
}

func TestIDsCannotEscapeOrCollide(t *testing.T) {
	s := newStudio(t)
	ids := []string{".", "..", "a", "A", "a.png", "a.json", "a.running", "a:b", "a.b", "-", "_", "runs.log",
		strings.Repeat("A", 100), strings.Repeat(".", 100), strings.Repeat(":", 100)}
	in := Input{Height: 1, Scale: 1, MaxIterations: 1}
	for i, id := range ids {
		in.Width = i + 1
		_, err := renderOnce(t, s, in, Meta{Tenant: id, JobID: id, Attempt: 1, IdempotencyKey: "k"})
		require.NoError(t, err, id)
		_, err = renderOnce(t, s, in, Meta{Tenant: "acme", JobID: id, Attempt: 1, IdempotencyKey: "k"})
		require.NoError(t, err, id)
	}
	for i, id := range ids {
		for _, tenant := range []string{id, "acme"} {
			answer := probe(t, s, Meta{Tenant: tenant, JobID: id})
			require.Equal(t, StateSucceeded, answer.State, id)
			assert.Equal(t, i+1, answer.Output.Width, id)
			assert.True(t, filepath.IsLocal(answer.Output.File), id)
		}
	}
	beside, err := os.ReadDir(filepath.Dir(s.dir))
	require.NoError(t, err)
	assert.Len(t, beside, 1, "nothing is written beside the results directory")
}

func TestAFailedWriteLeavesTheFileAsItWas(t *testing.T) {
	file := filepath.Join(t.TempDir(), "picture.png")
	require.NoError(t, os.WriteFile(file, []byte("before"), 0o644))
	full := errors.New("disk full")
	err := writeAtomically(file, func(w io.Writer) error {
		_, err := w.Write([]byte("half"))
		return errors.Join(err, full)
	})
	require.ErrorIs(t, err, full)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "before", string(data))
	beside, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, beside, 1, "no temporary file stays behind")
}

func TestNewStudioReportsADirectoryItCannotMake(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := NewStudio(filepath.Join(file, "results"))
	require.ErrorContains(t, err, "make the results directory")
}
