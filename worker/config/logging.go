package config

import (
	"go.temporal.io/sdk/log"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger returns the process' logger: JSON lines on standard error, from level info on.
func NewLogger() *zap.Logger {
	settings := zap.NewProductionConfig()
	settings.EncoderConfig.TimeKey, settings.EncoderConfig.EncodeTime = "time", zapcore.ISO8601TimeEncoder
	settings.Sampling = nil
	logger, err := settings.Build()
	if err != nil {
		// The configuration is fixed; zap only fails on sinks that cannot be opened.
		return zap.NewNop()
	}
	return logger
}

// sdkLogger hands the Temporal SDK's log lines to zap with the SDK's own callers and fields.
type sdkLogger struct{ zap *zap.SugaredLogger }

var (
	_ log.WithLogger      = sdkLogger{}
	_ log.WithSkipCallers = sdkLogger{}
)

// SDKLogger adapts a zap logger for the Temporal SDK.
func SDKLogger(logger *zap.Logger) log.Logger {
	return sdkLogger{logger.WithOptions(zap.AddCallerSkip(1)).Sugar()}
}

// Debug logs at level debug; keyvals are names and values by turns, as in the methods below.
func (l sdkLogger) Debug(msg string, keyvals ...any) { l.zap.Debugw(msg, keyvals...) }

// Info logs at level info.
func (l sdkLogger) Info(msg string, keyvals ...any) { l.zap.Infow(msg, keyvals...) }

// Warn logs at level warn.
func (l sdkLogger) Warn(msg string, keyvals ...any) { l.zap.Warnw(msg, keyvals...) }

// Error logs at level error.
func (l sdkLogger) Error(msg string, keyvals ...any) { l.zap.Errorw(msg, keyvals...) }

// With returns a logger that adds the names and values to every line.
func (l sdkLogger) With(keyvals ...any) log.Logger { return sdkLogger{l.zap.With(keyvals...)} }

// WithCallerSkip returns a logger that names the caller that many frames further up.
func (l sdkLogger) WithCallerSkip(depth int) log.Logger {
	return sdkLogger{l.zap.WithOptions(zap.AddCallerSkip(depth))}
}
