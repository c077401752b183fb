package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestSDKLoggerKeepsCallersAndFields(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	logger := SDKLogger(zap.New(core, zap.AddCaller()))
	byHelper := func(l log.Logger, msg string) { l.Warn(msg) }

	logger.Debug("debug", "n", 1)
	logger.Info("info", "n", 2)
	logger.Warn("warn", "n", 3)
	logger.Error("error", "n", 4)
	log.With(logger, "run", "r-1").Info("with", "n", 5)
	log.With(log.With(logger, "run", "r-1"), "attempt", 2).Info("with twice")
	byHelper(log.Skip(logger, 1), "skip")

	all := lines.AllUntimed()
	require.Len(t, all, 7)
	for i, want := range []struct {
		level  zapcore.Level
		msg    string
		fields map[string]any
	}{
		{zapcore.DebugLevel, "debug", map[string]any{"n": int64(1)}},
		{zapcore.InfoLevel, "info", map[string]any{"n": int64(2)}},
		{zapcore.WarnLevel, "warn", map[string]any{"n": int64(3)}},
		{zapcore.ErrorLevel, "error", map[string]any{"n": int64(4)}},
		{zapcore.InfoLevel, "with", map[string]any{"run": "r-1", "n": int64(5)}},
		{zapcore.InfoLevel, "with twice", map[string]any{"run": "r-1", "attempt": int64(2)}},
		{zapcore.WarnLevel, "skip", map[string]any{}},
	} {
		assert.Equal(t, want.level, all[i].Level, want.msg)
		assert.Equal(t, want.msg, all[i].Message)
		assert.Equal(t, want.fields, all[i].ContextMap(), want.msg)
		assert.Contains(t, all[i].Caller.Function, "TestSDKLoggerKeepsCallersAndFields", want.msg)
		assert.NotContains(t, all[i].Caller.Function, "func1", "the helper is skipped")
	}
}
