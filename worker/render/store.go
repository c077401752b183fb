package render

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	// staleAfter is how long after its last refresh a marker counts as that of a dead worker.
	staleAfter   = 10 * time.Second
	refreshEvery = time.Second
	runsLogName  = "runs.log"
)

// result is the sidecar of a finished picture. Its appearance is the moment of delivery.
type result struct {
	IdempotencyKey string    `json:"idempotencyKey"`
	Width          int       `json:"width"`
	Height         int       `json:"height"`
	Bytes          int64     `json:"bytes"`
	SHA256         string    `json:"sha256"`
	FinishedAt     time.Time `json:"finishedAt"`
}

// run is a line of runs.log.
type run struct {
	Time    time.Time `json:"time"`
	Tenant  string    `json:"tenant"`
	Job     string    `json:"job"`
	Attempt int       `json:"attempt"`
	Key     string    `json:"key"`
	Event   string    `json:"event"`
}

// escapeID turns an id into a name that is no special directory, has no dot and so cannot be mistaken
// for a name with an extension, and differs from every other one also where the file system ignores
// case. It at most doubles the length, which keeps the longest id within a file name's 255 bytes.
func escapeID(id string) string {
	var b strings.Builder
	for _, c := range id {
		switch {
		case c >= 'A' && c <= 'Z':
			b.WriteString("=" + strings.ToLower(string(c)))
		case c == '.':
			b.WriteString("=0")
		case c == ':':
			b.WriteString("=1")
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// relativePath is the job's file with that extension, relative to the results directory.
func relativePath(meta Meta, extension string) string {
	return path.Join(escapeID(meta.Tenant), escapeID(meta.JobID)+extension)
}

func (s *Studio) absolute(meta Meta, extension string) string {
	return filepath.Join(s.dir, filepath.FromSlash(relativePath(meta, extension)))
}

func (s *Studio) picturePath(meta Meta) string { return s.absolute(meta, ".png") }
func (s *Studio) sidecarPath(meta Meta) string { return s.absolute(meta, ".json") }
func (s *Studio) markerPath(meta Meta) string  { return s.absolute(meta, ".running") }

func (s *Studio) output(meta Meta, r result) Output {
	return Output{File: relativePath(meta, ".png"), Width: r.Width, Height: r.Height, Bytes: r.Bytes, SHA256: r.SHA256}
}

// stored returns the job's finished result, whatever the key, and whether there is one. A picture that
// is gone or not of the recorded size is not a result: it would not help the customer.
func (s *Studio) stored(meta Meta) (result, bool, error) {
	var r result
	data, err := os.ReadFile(s.sidecarPath(meta))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("read the stored result of job %s: %w", meta.JobID, err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, false, fmt.Errorf("decode the stored result of job %s: %w", meta.JobID, err)
	}
	info, err := os.Stat(s.picturePath(meta))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("look for the picture of job %s: %w", meta.JobID, err)
	}
	return r, info.Size() == r.Bytes, nil
}

// storedUnder returns the job's finished result if it was made under the same idempotency key.
func (s *Studio) storedUnder(meta Meta) (Output, bool, error) {
	r, found, err := s.stored(meta)
	if err != nil || !found || r.IdempotencyKey != meta.IdempotencyKey {
		return Output{}, false, err
	}
	return s.output(meta, r), true, nil
}

// store writes the picture and then its sidecar, calling advance along the way and stopping with its
// error: encoding a large picture takes seconds.
func (s *Studio) store(meta Meta, img image.Image, advance func() error) (Output, error) {
	digest := sha256.New()
	var size counter
	err := writeAtomically(s.picturePath(meta), func(w io.Writer) error {
		return png.Encode(io.MultiWriter(advancer(advance), w, digest, &size), img)
	})
	if err != nil {
		return Output{}, err
	}
	r := result{
		IdempotencyKey: meta.IdempotencyKey,
		Width:          img.Bounds().Dx(),
		Height:         img.Bounds().Dy(),
		Bytes:          int64(size),
		SHA256:         hex.EncodeToString(digest.Sum(nil)),
		FinishedAt:     time.Now().UTC(),
	}
	err = writeAtomically(s.sidecarPath(meta), func(w io.Writer) error { return json.NewEncoder(w).Encode(r) })
	if err != nil {
		return Output{}, err
	}
	return s.output(meta, r), nil
}

// logRun appends a line to runs.log in a single write, so that the lines of several workers do not mix.
func (s *Studio) logRun(meta Meta, event string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("log the run of job %s as %s: %w", meta.JobID, event, err)
		}
	}()
	line, err := json.Marshal(run{
		Time: time.Now().UTC(), Tenant: meta.Tenant, Job: meta.JobID,
		Attempt: meta.Attempt, Key: meta.IdempotencyKey, Event: event,
	})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, runsLogName), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// marker shows that a job is being rendered: a file whose time of modification is that of the last
// progress. What it contains is for people.
type marker struct {
	path      string
	content   []byte
	refreshed time.Time
}

// claim waits until no other attempt renders the job, calling waiting meanwhile, and marks it as being
// rendered. Two processes that find the same stale marker at the same instant may both render: they
// write the same picture, so that is waste and no harm.
func (s *Studio) claim(ctx context.Context, meta Meta, waiting func()) (*marker, error) {
	content, err := json.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("encode the marker of job %s: %w", meta.JobID, err)
	}
	m := &marker{path: s.markerPath(meta), content: content}
	if err := os.MkdirAll(filepath.Dir(m.path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of tenant %s: %w", meta.Tenant, err)
	}
	for {
		claimed, err := s.tryClaim(m)
		if err != nil || claimed {
			return m, err
		}
		waiting()
		select {
		case <-ctx.Done():
			return nil, stopped(ctx)
		case <-time.After(tick):
		}
	}
}

func (s *Studio) tryClaim(m *marker) (bool, error) {
	s.claims.Lock()
	defer s.claims.Unlock()
	f, err := os.OpenFile(m.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err == nil {
		if err := f.Close(); err != nil {
			return false, fmt.Errorf("close the new marker: %w", err)
		}
		return true, m.refresh()
	}
	if !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("create the marker: %w", err)
	}
	if fresh, err := isFresh(m.path); err != nil || fresh {
		return false, err
	}
	return true, m.refresh()
}

// refresh records progress, at most once in refreshEvery.
func (m *marker) refresh() error {
	if time.Since(m.refreshed) < refreshEvery {
		return nil
	}
	if err := os.WriteFile(m.path, m.content, 0o644); err != nil {
		return fmt.Errorf("refresh the marker: %w", err)
	}
	m.refreshed = time.Now()
	return nil
}

// release ignores errors: a marker that stays behind is stale soon.
func (m *marker) release() { _ = os.Remove(m.path) }

// isFresh says whether there is a marker that shows recent progress.
func isFresh(markerPath string) (bool, error) {
	info, err := os.Stat(markerPath)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the marker: %w", err)
	}
	return time.Since(info.ModTime()) < staleAfter, nil
}

// writeAtomically gives file what write writes, or leaves it as it was. When it returns nil the file is
// on disk.
func writeAtomically(file string, write func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", filepath.Base(file), err)
		}
	}()
	dir := filepath.Dir(file)
	temp, err := os.CreateTemp(dir, ".writing-*")
	if err != nil {
		return err
	}
	// After the rename the name is gone and this does nothing.
	defer func() { _ = os.Remove(temp.Name()) }()
	// CreateTemp makes files that only the worker's own user can read, and results are for others.
	err = errors.Join(write(temp), temp.Chmod(0o644), temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), file); err != nil {
		return err
	}
	// The rename survives a power cut only once the directory is on disk as well.
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// advancer is a writer that only reports progress, and fails to stop the writing.
type advancer func() error

func (a advancer) Write(p []byte) (int, error) { return len(p), a() }

// counter is a writer that counts.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
