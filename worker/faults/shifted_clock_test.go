package faults_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clockEnv shifts the wall clock of a worker that was built by shiftedWorker: "seconds after seconds" starts it shifted by
// the first, and once so many seconds have passed since its start sets it to the last.
const clockEnv = "RECLAIM_TEST_CLOCK"

// shiftedClock takes the place of time.Now in package time. Go reads the clock past libc, and Linux has no namespace for it,
// so that another clock must be compiled in: the SDK's and the standard library's readings are shifted with ours. The
// monotonic clock, as on a machine whose clock is set, is not.
const shiftedClock = `
var clockShift, clockAfter, clockThen = readClockShift()

func readClockShift() (shift, after, then int64) {
	text, _ := syscall.Getenv("` + clockEnv + `")
	numbers := [3]int64{}
	n, sign := 0, int64(1)
	for _, c := range []byte(text) {
		switch {
		case c == ' ' && n < 2:
			n, sign = n+1, 1
		case c == '-':
			sign = -1
		case c >= '0' && c <= '9':
			numbers[n] = 10*numbers[n] + sign*int64(c-'0')
		}
	}
	return numbers[0], numbers[1], numbers[2]
}

//go:linkname Now

// Now returns the current local time of a machine whose clock is wrong.
func Now() Time {
	t := trueNow()
	shift := clockShift
	if clockAfter > 0 && t.ext > clockAfter*int64(Second) {
		shift = clockThen
	}
	if t.wall&hasMonotonic != 0 {
		t.wall += uint64(shift) << nsecShift
	} else {
		t.ext += shift
	}
	return t
}
`

var shiftedBinary = struct {
	sync.Once
	path string
	err  error
}{}

// shiftedWorker builds, once, the worker with a clock that can be shifted.
func shiftedWorker(t *testing.T) string {
	t.Helper()
	shiftedBinary.Do(func() {
		var folder string
		if folder, shiftedBinary.err = os.MkdirTemp("", "reclaim-clock-"); shiftedBinary.err != nil {
			return
		}
		atExit = append(atExit, func() error { return os.RemoveAll(folder) })
		shiftedBinary.path = filepath.Join(folder, "worker")
		shiftedBinary.err = buildShifted(folder, shiftedBinary.path, "github.com/reclaimhq/reclaim/worker")
	})
	require.NoError(t, shiftedBinary.err)
	return shiftedBinary.path
}

// buildShifted builds the package or file with the other clock.
func buildShifted(folder, to, what string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find GOROOT: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	const now, imports = "\n//go:linkname Now\n", "import (\n"
	for _, part := range []string{now, imports, "\nfunc Now() Time {\n"} {
		if bytes.Count(text, []byte(part)) != 1 {
			return fmt.Errorf("%s does not have %q once: this Go's clock is made in another way", source, part)
		}
	}
	text = bytes.Replace(text, []byte(now), []byte("\n"), 1)
	text = bytes.Replace(text, []byte("\nfunc Now() Time {\n"), []byte("\nfunc trueNow() Time {\n"), 1)
	text = bytes.Replace(text, []byte(imports), []byte(imports+"\t\"syscall\"\n"), 1)
	changed, overlay := filepath.Join(folder, "time.go"), filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(changed, append(text, shiftedClock...), 0o600); err != nil {
		return err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
	if err == nil {
		err = os.WriteFile(overlay, replace, 0o600)
	}
	if err != nil {
		return err
	}
	if output, err := exec.Command("go", "build", "-overlay", overlay, "-o", to, what).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s with a shifted clock: %w\n%s", what, err, output)
	}
	return nil
}

// A soak whose clocks are right would prove nothing about wrong ones.
func TestTheShiftedClockIsWrongAndJumps(t *testing.T) {
	needsCrash(t, "make soak")
	folder := t.TempDir()
	file := filepath.Join(folder, "clock.go")
	require.NoError(t, os.WriteFile(file, []byte(`package main

import (
	"fmt"
	"time"
)

func main() {
	began := time.Now()
	fmt.Println(began.Unix())
	time.Sleep(2 * time.Second)
	fmt.Println(time.Now().Unix())
	fmt.Println(int(time.Since(began).Seconds()))
}
`), 0o600))
	program := filepath.Join(folder, "clock")
	require.NoError(t, buildShifted(folder, program, file))
	command := exec.Command(program)
	command.Env = append(os.Environ(), clockEnv+"=-300 1 240")
	before := time.Now().Unix()
	output, err := command.Output()
	require.NoError(t, err)
	var first, second, passed int64
	_, err = fmt.Sscan(string(output), &first, &second, &passed)
	require.NoError(t, err)
	assert.InDelta(t, before-300, first, 3)
	assert.InDelta(t, before+2+240, second, 3)
	assert.EqualValues(t, 2, passed, "what passes is measured by the monotonic clock")
}
