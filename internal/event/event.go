// Package event writes Events about objects for those who look at them with kubectl. It is
// told by anybody, never makes them wait, and bounds what it remembers and writes: what is
// said again and again is one Event with a count.
package event

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/run"
)

const (
	// maxNote is how long a note may be, in bytes, before it is cut: the API's limit.
	maxNote = 1024
	// callTimeout bounds one write.
	callTimeout = 5 * time.Second
)

// Event is something that happened to an object. It must hold no secret.
type Event struct {
	Regarding corev1.ObjectReference // by which kind, namespace and name; the Event is in that namespace
	Type      string                 // corev1.EventTypeNormal or EventTypeWarning
	Reason    string                 // a word of ours; there are few of them
	Note      string                 // for people; what is longer than 1 KiB is cut
	Count     int                    // for how many it stands; 0: one
}

// Written is an Event as it is to be written.
type Written struct {
	Event             // Count is of all so far
	Name  string      // of the Event
	First metav1.Time // when it was recorded
	Last  metav1.Time // and again
}

// Sink is where Events are written. Its calls end with their context.
type Sink interface {
	Create(ctx context.Context, w Written) error
	// Repeat says that an Event was recorded again. False: there is none of that name any more.
	Repeat(ctx context.Context, w Written) (found bool, err error)
}

// Config is what a Recorder is made from.
type Config struct {
	Sink       Sink // required
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Recorder takes Events in and writes them.
type Recorder struct {
	c       Config
	wake    chan struct{} // capacity 1: something was recorded
	dropped *prometheus.CounterVec
	written *prometheus.CounterVec

	mu   sync.Mutex // guards book and the lines in it; not held while the sink is called
	book *book
}

// New checks c. Nothing is written before Run.
func New(c Config) (*Recorder, error) {
	if c.Sink == nil {
		return nil, errors.New("a recorder of Events needs a sink")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "aether_events_" + name + "_total", Help: help}, labels)
	}
	r := &Recorder{
		c: c, wake: make(chan struct{}, 1), book: newBook(),
		written: counter("written", "Writes of Events by reason and result (ok, failed).", "reason", "result"),
		dropped: counter("dropped", "Events that were not written because too many others wait, by reason.", "reason"),
	}
	if c.Registerer != nil {
		for _, m := range []prometheus.Collector{r.written, r.dropped} {
			if err := c.Registerer.Register(m); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// Record takes an Event in. It never blocks. It may be called on a nil Recorder, which
// forgets it: where there is no API there are no Events.
func (r *Recorder) Record(e Event) {
	if r == nil {
		return
	}
	e.Note = shortened(e.Note)
	r.mu.Lock()
	taken := r.book.record(e, time.Now())
	r.mu.Unlock()
	if !taken {
		r.dropped.WithLabelValues(e.Reason).Inc()
		return
	}
	select {
	case r.wake <- struct{}{}:
	default: // Run has not come to the last one yet, and will see this too
	}
}

// Run writes until ctx is done. What cannot be written is tried again after a minute.
func (r *Recorder) Run(ctx context.Context) error {
	var fault run.Fault
	return run.Loop(ctx, r.wake, func(ctx context.Context) time.Time {
		r.mu.Lock()
		lines, again := r.book.due(time.Now())
		r.mu.Unlock()
		for _, l := range lines { // perPause of each reason at most
			err := r.write(ctx, l)
			if ctx.Err() != nil {
				return time.Time{}
			}
			if fault.Becomes(err) && err != nil {
				r.c.Log.Warn("write Event; will try again", logkey.Reason, l.Reason, logkey.Error, err)
			}
		}
		if len(lines) > 0 {
			return time.Now() // what was written is due again at another time
		}
		return again
	})
}

// write brings one line to the sink.
func (r *Recorder) write(ctx context.Context, l *line) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r.mu.Lock()
	w := Written{Event: l.Event, Name: l.name, First: metav1.NewTime(l.first), Last: metav1.NewTime(l.last)}
	w.Count = l.count
	r.mu.Unlock()
	found, err := false, error(nil)
	if w.Name != "" {
		found, err = r.c.Sink.Repeat(ctx, w)
	}
	if err == nil && !found {
		w.Name = name(w.Regarding.Name)
		err = r.c.Sink.Create(ctx, w)
	}
	result := "ok"
	if err != nil {
		w.Name, result = "", "failed"
	}
	r.written.WithLabelValues(l.Reason, result).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.book.done(l, w.Name, w.Count)
	return err
}

// shortened cuts a note to what the API takes.
func shortened(note string) string {
	note = strings.ToValidUTF8(note, "�")
	if len(note) <= maxNote {
		return note
	}
	const end = "…"
	cut := maxNote - len(end)
	for !utf8.RuneStart(note[cut]) {
		cut--
	}
	return note[:cut] + end
}

// Regarding refers to an object that knows its kind.
func Regarding(o interface {
	metav1.Object
	runtime.Object
},
) corev1.ObjectReference {
	kind := o.GetObjectKind().GroupVersionKind()
	return corev1.ObjectReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
	}
}
