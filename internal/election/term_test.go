package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"aether.io/aether/internal/election"
)

func TestATermIsWhenThingsAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var term election.Term
		count := func(context.Context) error { return nil }
		if did, _ := term.Do(t.Context(), count); did || term.Begun() {
			t.Fatal("something was done before the term")
		}
		for range 2 { // there may be several
			ctx, cancel := context.WithCancel(t.Context())
			begun := false
			done := make(chan error, 1)
			go func() { done <- term.Run(ctx, func() { begun = true }) }()
			synctest.Wait()
			if did, err := term.Do(t.Context(), count); !did || err != nil || !begun || !term.Begun() {
				t.Fatalf("did %t, %v, begun %t", did, err, begun)
			}
			ended := make(chan error, 1)
			release := make(chan struct{})
			go func() {
				_, err := term.Do(t.Context(), func(ctx context.Context) error {
					<-ctx.Done()
					<-release
					return ctx.Err()
				})
				ended <- err
			}()
			synctest.Wait()
			cancel()
			synctest.Wait()
			select {
			case <-done:
				t.Fatal("the term is over while something is done")
			default:
			}
			if did, _ := term.Do(t.Context(), count); did {
				t.Fatal("something was done after the term")
			}
			close(release)
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatalf("%v", err)
			}
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatalf("Run: %v", err)
			}
		}
	})
}
