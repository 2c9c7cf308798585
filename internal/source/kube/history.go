package kube

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/source"
)

// history is which history of the API is followed. After the API was restored from a backup
// its positions begin anew from a lower one: that is another history, of a higher epoch. It is
// guarded by the intake's mutex.
type history struct {
	epoch  uint64
	known  bool          // epoch is this history's
	again  bool          // everything is listed anew, and nothing is handed out until it is
	turn   uint64        // how often everything was listed
	turned chan struct{} // closed when a new turn begins
	learn  chan struct{} // capacity 1: the epoch is not known
}

func newHistory(epoch uint64) history {
	return history{epoch: epoch, known: true, turned: make(chan struct{}), learn: make(chan struct{}, 1)}
}

// Epochs is where the number of the API's present history is kept, for all replicas and their
// successors. Another number than is kept may be known to a replica that lived through a restore.
type Epochs interface {
	// Load returns what is kept, 0 if nothing is.
	Load(ctx context.Context) (uint64, error)
	// Save keeps a number that is higher than what is kept.
	Save(ctx context.Context, epoch uint64) error
}

// epochEvery is how often it is looked whether another replica, or a person, has raised the
// epoch, or somebody has taken away where it is kept.
const epochEvery = 30 * time.Second

// regress begins another history: all that is followed is listed anew. It is idle while that
// is under way.
func (in *intake) regress() (began bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.history.again {
		return false
	}
	in.history.again, in.history.known = true, false
	in.turn()
	in.askEpoch()
	return true
}

// turn has everything listed anew. The caller holds mu.
func (in *intake) turn() {
	in.history.turn++
	close(in.history.turned)
	in.history.turned = make(chan struct{})
	in.awaited = maps.Clone(in.followed)
	clear(in.positions)
}

// askEpoch has the epoch learned. The caller holds mu.
func (in *intake) askEpoch() {
	select {
	case in.history.learn <- struct{}{}:
	default: // it is being learned
	}
}

// present is the turn under way, and a channel that is closed when the next begins.
func (in *intake) present() (turn uint64, ends <-chan struct{}) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.history.turn, in.history.turned
}

// settleEpoch says what the epoch is. One that others have raised supersedes ours, of the same
// positions.
func (in *intake) settleEpoch(epoch uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.history.known && epoch == in.history.epoch {
		return
	}
	in.history.epoch, in.history.known, in.moved = epoch, true, true
	in.poke()
}

// unknownEpoch has nothing handed out before the epoch is learned.
func (in *intake) unknownEpoch() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.history.known = false
}

func (in *intake) presentEpoch() (epoch uint64, known bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.history.epoch, in.history.known
}

// keepEpoch learns the epoch, and raises it when another history has begun, until ctx is done.
func (s *Source) keepEpoch(ctx context.Context) {
	tick := time.NewTicker(epochEvery)
	defer tick.Stop()
	pause := minBackoff
	// Exits: ctx is done.
	for {
		if err := s.agreeOnEpoch(ctx); err != nil {
			s.intake.fault("epoch", source.Warning, fmt.Sprintf("which history of the API this is cannot be kept: %v", err))
			if run.Sleep(ctx, pause) != nil {
				return
			}
			pause = min(2*pause, maxBackoff)
			continue
		}
		pause = minBackoff
		s.intake.fault("epoch", source.Warning, "")
		select {
		case <-ctx.Done():
			return
		case <-s.intake.history.learn:
		case <-tick.C:
		}
	}
}

// agreeOnEpoch takes over what is kept if it is higher than what is known here, and keeps what
// is known if that is higher: of another history, one more. So replicas that notice a restore
// each by themselves agree, whoever comes first.
func (s *Source) agreeOnEpoch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	kept, err := s.epochs.Load(ctx)
	if err != nil {
		return err
	}
	own, known := s.intake.presentEpoch()
	if !known && s.intake.isAgain() {
		own++
	}
	if own > kept {
		if err := s.epochs.Save(ctx, own); err != nil {
			return err
		}
		s.log.Warn("the API's history has another number", logkey.Version, own)
	}
	s.intake.settleEpoch(max(own, kept))
	return nil
}

func (in *intake) isAgain() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.history.again
}

// ahead fails if the API has not come as far as a position that it had been followed to. A
// watch from there would say nothing until it has, and nothing of what happened until then.
func (s *Source) ahead(ctx context.Context, client rest.Interface, k kind, at string) error {
	if position(at) == 0 || s.epochs == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	// Without a resourceVersion it is answered from what is stored.
	list, err := get(client, k).VersionedParams(&metav1.ListOptions{Limit: 1}, metav1.ParameterCodec).Do(ctx).Get()
	if err != nil {
		return err
	}
	now, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	if position(now.GetResourceVersion()) >= position(at) {
		return nil
	}
	if s.intake.regress() {
		s.log.Warn("the API went back to an earlier state: everything is listed anew", logkey.Type, k.about(),
			logkey.Version, now.GetResourceVersion())
	}
	return apierrors.NewResourceExpired("the API went back to an earlier state") // so the reflector lists
}
