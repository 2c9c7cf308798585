// Package remote is an installation of Aether on a cluster, asked from outside: it finds the
// installation's pods and reaches the port of loopback on which each answers questions,
// through the API server and with the rights of whoever asks. It decides nothing about who may
// look, which is Kubernetes' to do, and opens no port on this machine, which others could use
// with those rights.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/inspect"
)

const (
	// InspectPort is the port of loopback on which controllers and proxies answer.
	InspectPort = 8083
	// DefaultNamespace is where Aether is installed if nobody says otherwise.
	DefaultNamespace = "aether-system"

	callTimeout = 10 * time.Second // of one request to the API
	leaseName   = "aether-controller"
	name        = "app.kubernetes.io/name=aether,"
	controllers = name + "app.kubernetes.io/component=controller"
	shared      = name + "app.kubernetes.io/component=shared-proxy"
	dedicated   = name + "app.kubernetes.io/component=dedicated-proxy"
)

// Config is what an Installation is made from.
type Config struct {
	Client    *rest.Config // required; its rights: list on pods and create on pods/portforward in the namespace
	Namespace string       // empty: DefaultNamespace
	Context   string       // of the kubeconfig, for people; empty: not known
}

// Installation is Aether in a namespace.
type Installation struct {
	c      Config
	core   coreclient.CoreV1Interface
	leases coordinationclient.LeaseInterface
}

// New checks c. It does not call the API.
func New(c Config) (*Installation, error) {
	if c.Client == nil {
		return nil, errors.New("an installation is reached by a client configuration")
	}
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	one := rest.CopyConfig(c.Client)
	one.Timeout = callTimeout
	core, err := coreclient.NewForConfig(one)
	if err != nil {
		return nil, fmt.Errorf("client of pods: %w", err)
	}
	leases, err := coordinationclient.NewForConfig(one)
	if err != nil {
		return nil, fmt.Errorf("client of Leases: %w", err)
	}
	return &Installation{c: c, core: core, leases: leases.Leases(c.Namespace)}, nil
}

// Place is where it is, for people.
func (i *Installation) Place() string {
	if i.c.Context == "" {
		return "namespace " + i.c.Namespace
	}
	return fmt.Sprintf("namespace %s of context %s", i.c.Namespace, i.c.Context)
}

// Controllers are the controller's replicas.
func (i *Installation) Controllers(ctx context.Context) ([]Pod, error) {
	return i.pods(ctx, i.c.Namespace, controllers)
}

// Proxies are the shared proxies, and those of dedicated Gateways in all namespaces if whoever
// asks may list pods there: who may not is not told of them.
func (i *Installation) Proxies(ctx context.Context) ([]Pod, error) {
	out, err := i.pods(ctx, i.c.Namespace, shared)
	if err != nil {
		return nil, err
	}
	more, err := i.pods(ctx, metav1.NamespaceAll, dedicated)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	return append(out, more...), nil
}

func (i *Installation) pods(ctx context.Context, namespace, selector string) ([]Pod, error) {
	list, err := i.core.Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, i.Explain(err, "list", "pods", namespace)
	}
	out := make([]Pod, 0, len(list.Items))
	for n := range list.Items {
		out = append(out, read(&list.Items[n]))
	}
	return out, nil
}

// Leader is the replica to ask: the one that leads, else the first that is ready. All know
// the same; the one that leads has written what it says. Who leads is not known to one who may
// not read the Lease, and that is no error.
func (i *Installation) Leader(ctx context.Context) (Pod, error) {
	all, err := i.Controllers(ctx)
	if err != nil {
		return Pod{}, err
	}
	holder := ""
	if lease, err := i.leases.Get(ctx, leaseName, metav1.GetOptions{}); err == nil && lease.Spec.HolderIdentity != nil {
		holder, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
	}
	return choose(all, holder, i.Place())
}

// AskLeader asks the leader, who is found when something is asked. Close it when done.
func (i *Installation) AskLeader() *inspect.Client {
	return inspect.NewClientOver(func(ctx context.Context) (net.Conn, error) {
		p, err := i.Leader(ctx)
		if err != nil {
			return nil, err
		}
		return i.dial(ctx, p)
	})
}

// Ask asks a pod. Close it when done.
func (i *Installation) Ask(p Pod) *inspect.Client {
	return inspect.NewClientOver(func(ctx context.Context) (net.Conn, error) { return i.dial(ctx, p) })
}

func (i *Installation) dial(ctx context.Context, p Pod) (net.Conn, error) {
	conn, err := dial(ctx, i.c.Client, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, InspectPort)
	if err != nil {
		return nil, i.Explain(err, "create", "pods/portforward", p.Namespace)
	}
	return conn, nil
}
