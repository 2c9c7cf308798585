package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrUnreachable says that the API server does not answer.
var ErrUnreachable = errors.New("the API server does not answer")

// Explain says what an error of the API means for who asked: what right is missing, or that
// nothing of the cluster can be asked. verb and resource are what was to be done.
func (i *Installation) Explain(err error, verb, resource, namespace string) error {
	var transport *url.Error
	var network net.Error
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("this needs the right to %s %s in namespace %s, which you do not have (kubectl auth can-i %s %s -n %s): %w",
			verb, resource, namespace, verb, resource, namespace, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server at %s does not know you: is the kubeconfig's credential expired? %w", i.c.Client.Host, err)
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &transport), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err):
		return fmt.Errorf("%w at %s, so nothing of the cluster can be asked: proxies go on serving what they have: %w", ErrUnreachable, i.c.Client.Host, err)
	case apierrors.IsInternalError(err), apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err): // above all: without its etcd
		return fmt.Errorf("%w at %s but with an error of its own, so nothing of the cluster can be asked: proxies go on serving what they have: %w", ErrUnreachable, i.c.Client.Host, err)
	}
	return fmt.Errorf("%s %s in %s: %w", verb, resource, i.Place(), err)
}
