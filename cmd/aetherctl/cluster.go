package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/remote"
)

// errNoCluster says that nothing tells which cluster to ask.
var errNoCluster = errors.New("no kubeconfig says which cluster to ask")

// installation is what the flags and the kubeconfig say.
func (t *target) installation() (*remote.Installation, error) {
	config, current, err := t.client()
	if err != nil {
		return nil, err
	}
	return remote.New(remote.Config{Client: config, Namespace: t.release, Context: current})
}

// client is how the kubeconfig, read as kubectl does, says that the API server is reached, and by
// which context.
func (t *target) client() (config *rest.Config, current string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = t.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: t.context})
	config, err = loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", fmt.Errorf("%w: give --kubeconfig, or set KUBECONFIG", errNoCluster)
	}
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	current = t.context
	if raw, err := loader.RawConfig(); err == nil && current == "" {
		current = raw.CurrentContext
	}
	return config, current, nil
}

func (t *target) dialCluster() (*instance, error) {
	there, err := t.installation()
	if err != nil {
		return nil, err
	}
	return &instance{cluster: there, controller: there.AskLeader()}, nil
}

// explainCluster says what it means that the controller does not answer.
func (i *instance) explainCluster(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, remote.ErrUnreachable) {
		return fmt.Errorf("the controller in %s does not answer in time: %w", i.cluster.Place(), err)
	}
	return err
}

// pods are the installation's processes.
func (i *instance) pods(ctx context.Context) ([]process, error) {
	controllers, err := i.cluster.Controllers(ctx)
	if err != nil {
		return nil, err
	}
	proxies, err := i.cluster.Proxies(ctx)
	if err != nil {
		return nil, err
	}
	out := []process{}
	for _, p := range append(controllers, proxies...) {
		log := fmt.Sprintf("kubectl logs --namespace %s %s", p.Namespace, p.Name)
		if p.Container != "" {
			log += " --container " + p.Container
		}
		out = append(out, process{Name: p.Name, Running: p.Ready, Log: log})
	}
	return out, nil
}

// proxyState is what a proxy says of itself.
type proxyState struct {
	pod   remote.Pod
	state health.State
	err   error // why it is not known
}

// askProxies asks each proxy itself. It is for when the controller cannot be asked.
func (i *instance) askProxies(ctx context.Context) ([]proxyState, error) {
	pods, err := i.cluster.Proxies(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]proxyState, len(pods))
	for n, p := range pods {
		c := i.cluster.Ask(p)
		out[n].pod = p
		out[n].err = c.Get(ctx, inspect.ReadyPath, &out[n].state)
		c.Close()
	}
	return out, nil
}

// printProxyStates tells what proxies go on with, as of now.
func printProxyStates(w io.Writer, list []proxyState, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row(t, "PROXY", "POD", "RESTARTS", "STATE", "REASON", "FOR", "VERSION")
	for _, p := range list {
		state, since := p.state.State, ""
		if p.err != nil {
			state = "unknown"
		}
		if !p.state.Since.IsZero() {
			since = now.Sub(p.state.Since).Round(time.Second).String()
		}
		row(t, p.pod.Name, p.pod.State, strconv.Itoa(p.pod.Restarts), state, p.state.Reason, since, short(p.state.Version))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range list {
		if p.err != nil {
			fmt.Fprintf(w, "\n%s: %v\n", p.pod.Name, p.err)
		}
	}
	return nil
}

// withoutController shows what is known while no controller can be asked, and returns why
// it cannot.
func (i *instance) withoutController(ctx context.Context, w io.Writer, why error) error {
	if i.cluster == nil || errors.Is(why, remote.ErrUnreachable) {
		return why
	}
	states, err := i.askProxies(ctx)
	switch {
	case err != nil && err.Error() == why.Error(): // the same right is missing: once is enough
		return why
	case err != nil || len(states) == 0:
		return errors.Join(why, err)
	}
	fmt.Fprintln(w, "What proxies say of themselves, as no controller can be asked:")
	return errors.Join(why, printProxyStates(w, states, time.Now()))
}
