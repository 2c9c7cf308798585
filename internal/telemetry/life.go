package telemetry

import (
	"context"
	"log/slog"
	"time"

	"aether.io/aether/internal/logkey"
)

// lastWords is how long the end of a process waits for what it still has to export. It comes
// after its parts have stopped, and is short of what a kubelet leaves it.
const lastWords = 3 * time.Second

// Around runs a program, with its logger and t, from its begin to its end: then what waits is
// sent, and with it why the program ended, if that is an error. beside is where it logs in any case.
func (t *Telemetry) Around(ctx context.Context, beside slog.Handler, level slog.Leveler, program func(context.Context, *slog.Logger) error) error {
	err := program(ctx, slog.New(t.LogHandler(beside, level)))
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err != nil {
		t.logLast(ending, err)
	}
	if lost := t.Shutdown(ending); lost != nil {
		t.c.Log.Debug("what was to be exported last is lost", logkey.Error, lost)
	}
	return err
}
