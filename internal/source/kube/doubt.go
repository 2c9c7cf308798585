package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/run"
)

// askTimeout is for one question about a definition.
const askTimeout = 10 * time.Second

// metadataOnly asks for what is needed of a definition, which may have a megabyte.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// confirm lets deletions into effect until ctx is done, of which intact says, asked after they
// were seen, that the definition is in order. Those of a definition that goes stay in doubt:
// when it comes back a list says what is there.
func (m *mirror) confirm(ctx context.Context, intact func(context.Context) (bool, error)) {
	pause := minBackoff
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.doubts:
		}
		doubted := m.inDoubt()
		if len(doubted) == 0 {
			continue
		}
		ok, err := intact(ctx)
		if err != nil {
			if run.Sleep(ctx, pause) != nil {
				return
			}
			pause = min(2*pause, maxBackoff)
			m.doubt()
			continue
		}
		pause = minBackoff
		if ok {
			m.settle(doubted)
		}
	}
}

// doubt has confirm look again.
func (m *mirror) doubt() {
	select {
	case m.doubts <- struct{}{}:
	default: // confirm has not come to the last one yet, and will see this too
	}
}

func (m *mirror) inDoubt() map[object.Key]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.doubted)
}

// settle lets those deletions into effect that are still the last that was seen of their
// objects.
func (m *mirror) settle(confirmed map[object.Key]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var changes []object.Change
	for k, number := range confirmed {
		if m.doubted[k] == number {
			delete(m.doubted, k)
			changes = append(changes, m.drop(k))
		}
	}
	m.advance(m.reached, changes)
	m.tellListed()
}

// intact asks whether a kind's definition is there and is not being deleted. The API
// server deletes the objects of a definition after it has marked that as being deleted; so an
// object that was seen to go before a definition in order was read, went by itself.
func (s *Source) intact(k kind) (func(context.Context) (bool, error), error) {
	client, err := s.client(apiextensionsv1.SchemeGroupVersion, false)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		// Without a resourceVersion it is the newest, not one that the API server has in memory.
		body, err := client.Get().Resource(definitionResource).Name(k.definition()).SetHeader("Accept", metadataOnly).Do(ctx).Raw()
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("read definition of %s: %w", k.Name, err)
		}
		var is metav1.PartialObjectMetadata
		if err := json.Unmarshal(body, &is); err != nil {
			return false, fmt.Errorf("read definition of %s: %w", k.Name, err)
		}
		return is.DeletionTimestamp == nil, nil
	}, nil
}
