package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	cakube "aether.io/aether/internal/ca/kube"
	"aether.io/aether/internal/remote"
	sourcekube "aether.io/aether/internal/source/kube"
)

// epochTimeout bounds each request for the epoch.
const epochTimeout = 10 * time.Second

func discoveryCommand() *cobra.Command {
	return group("discovery", "See to the channel between controllers and proxies, on a cluster", resetEpochCommand())
}

func resetEpochCommand() *cobra.Command {
	var t target
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset-epoch",
		Short: "Have proxies take configuration that is older than theirs",
		Long: `Have proxies take configuration that is older than theirs, after the API was restored from a backup.

A proxy never goes back to what an API server had earlier: of a controller that is behind it, it takes nothing.
Controllers notice a restore by themselves and raise the epoch, which supersedes all positions of before. If none of them
has lived through the restore, none notices: proxies serve what they have and are Disconnected, and "aetherctl status", a
warning in the controllers' logs and the metric coxswain_discovery_clients_ahead say that there are proxies ahead of them.

This raises the epoch. Without --yes it says what it would do, and does nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.resetEpoch(cmd.Context(), cmd.OutOrStdout(), yes) },
	}
	t.clusterFlags(cmd, "")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// resetEpoch raises the epoch by one, or says that it would.
func (t *target) resetEpoch(ctx context.Context, out io.Writer, yes bool) error {
	there, err := t.installation()
	if err != nil {
		return err
	}
	controllers, err := there.Controllers(ctx)
	if err != nil {
		return err
	}
	if len(controllers) == 0 { // most likely another namespace was meant, and none is to get an epoch that has no Aether
		return fmt.Errorf("no controller of Aether is in %s", there.Place())
	}
	client, _, err := t.client()
	if err != nil {
		return err
	}
	client = rest.CopyConfig(client)
	client.Timeout = epochTimeout
	at := types.NamespacedName{Namespace: t.release, Name: cakube.BundleName}
	if at.Namespace == "" {
		at.Namespace = remote.DefaultNamespace
	}
	epochs, err := sourcekube.EpochIn(client, at)
	if err != nil {
		return err
	}
	now, err := epochs.Load(ctx)
	if err != nil {
		return there.Explain(err, "get", "configmaps", at.Namespace)
	}
	next := now + 1
	if next == 0 {
		return errors.New("the epoch is the highest that there is")
	}
	fmt.Fprintf(out, "%s: the epoch is %d, and %d supersedes it (annotation %s of ConfigMap %s).\n", there.Place(), now, next, sourcekube.EpochAnnotation, at.Name)
	if !yes {
		_, err := fmt.Fprintln(out, "Nothing was done. With --yes it is raised: controllers see that within 30 s, and every proxy takes what they have, older or not.")
		return err
	}
	if err := epochs.Save(ctx, next); err != nil {
		return there.Explain(err, "patch", "configmaps", at.Namespace)
	}
	_, err = fmt.Fprintln(out, "It is raised. Controllers see that within 30 s; aetherctl status shows which proxies have what they hand out then.")
	return err
}
