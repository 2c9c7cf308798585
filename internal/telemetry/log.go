package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/contrib/bridges/otelslog"

	"aether.io/aether/internal/logkey"
)

// LogHandler is one that hands records to beside, and exports them as well if logs are. A record
// that is logged with the context of a span has its ids. level bounds what is exported.
func (t *Telemetry) LogHandler(beside slog.Handler, level slog.Leveler) slog.Handler {
	if t.logs == nil {
		return beside
	}
	return slog.NewMultiHandler(beside, t.exportHandler(level))
}

// logLast exports one record that is not written anywhere else: why the process ends, which it
// says on its standard error in words of its own.
func (t *Telemetry) logLast(ctx context.Context, why error) {
	if t.logs != nil {
		slog.New(t.exportHandler(slog.LevelError)).ErrorContext(ctx, "the process ends", logkey.Error, why)
	}
}

func (t *Telemetry) exportHandler(level slog.Leveler) slog.Handler {
	return leveled{otelslog.NewHandler(t.c.Service, otelslog.WithLoggerProvider(t.logs), otelslog.WithVersion(t.c.Version)), level}
}

// leveled hands on what has at least a level.
type leveled struct {
	slog.Handler
	level slog.Leveler
}

// Enabled implements slog.Handler.
func (h leveled) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.level.Level() && h.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (h leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{h.Handler.WithAttrs(attrs), h.level}
}

// WithGroup implements slog.Handler.
func (h leveled) WithGroup(name string) slog.Handler {
	return leveled{h.Handler.WithGroup(name), h.level}
}
