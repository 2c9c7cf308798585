package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// EpochAnnotation has the epoch in decimal.
const EpochAnnotation = "config.aether.io/epoch"

const epochManager = "aether-controller-epoch"

// annotation is Epochs in an annotation of a ConfigMap.
type annotation struct {
	client coreclient.CoreV1Interface
	at     types.NamespacedName
}

// EpochIn keeps the epoch as an annotation of a ConfigMap, which need not be there: its rights
// are get, patch and create on it. It does not call the API.
func EpochIn(config *rest.Config, at types.NamespacedName) (Epochs, error) {
	if config == nil || at.Name == "" {
		return nil, errors.New("an epoch needs a client configuration and a ConfigMap")
	}
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return annotation{client, at}, nil
}

// Load implements Epochs. What is no number counts as nothing: it is written anew.
func (a annotation) Load(ctx context.Context) (uint64, error) {
	m, err := a.client.ConfigMaps(a.at.Namespace).Get(ctx, a.at.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read epoch: %w", err)
	}
	return position(m.Annotations[EpochAnnotation]), nil
}

// Save implements Epochs. It has a field manager of its own: who publishes the ConfigMap's
// content neither takes it away nor need be first.
func (a annotation) Save(ctx context.Context, epoch uint64) error {
	apply := coreac.ConfigMap(a.at.Name, a.at.Namespace).WithAnnotations(map[string]string{EpochAnnotation: strconv.FormatUint(epoch, 10)})
	if _, err := a.client.ConfigMaps(a.at.Namespace).Apply(ctx, apply, metav1.ApplyOptions{FieldManager: epochManager, Force: true}); err != nil {
		return fmt.Errorf("write epoch: %w", err)
	}
	return nil
}
