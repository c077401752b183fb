package api

import (
	"io"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// logBuffer bounds the lines that wait to be written, in bytes, logFlush how long they do.
	logBuffer = 64 << 10
	logFlush  = 250 * time.Millisecond
)

// NewLogger returns a logger for a process that is the door: JSON lines on standard error, none left out. A line for each
// request is too many to make a write of each: lines are written together, a moment later. Those that tell of an error are
// written at once, with all before them. stop writes the rest.
func NewLogger() (logger *zap.Logger, stop func() error) { return newLogger(os.Stderr) }

func newLogger(out io.Writer) (logger *zap.Logger, stop func() error) {
	lines := &zapcore.BufferedWriteSyncer{WS: zapcore.AddSync(goingOn{out}), Size: logBuffer, FlushInterval: logFlush}
	settings := zap.NewProductionEncoderConfig()
	settings.TimeKey, settings.EncodeTime = "time", zapcore.ISO8601TimeEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(settings), lines, zapcore.InfoLevel)
	return zap.New(promptly{core}, zap.AddStacktrace(zapcore.ErrorLevel)), lines.Stop
}

// goingOn drops what cannot be written: a buffer would keep the first failure and take nothing more, ever. Having no Sync, it
// does not make a file's disk work either.
type goingOn struct{ io.Writer }

// Write reports that everything is written.
func (g goingOn) Write(p []byte) (int, error) {
	// There is nowhere else to tell of it.
	_, _ = g.Writer.Write(p)
	return len(p), nil
}

// promptly does not let errors wait.
type promptly struct{ zapcore.Core }

// With keeps to that in the loggers made from this one.
func (p promptly) With(fields []zapcore.Field) zapcore.Core { return promptly{p.Core.With(fields)} }

// Check has this core, and not the one within, write the entry.
func (p promptly) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if p.Enabled(entry.Level) {
		return checked.AddCore(entry, p)
	}
	return checked
}

// Write writes what tells of an error at once.
func (p promptly) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if err := p.Core.Write(entry, fields); err != nil || entry.Level < zapcore.ErrorLevel {
		return err
	}
	return p.Sync()
}
