package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// register answers the kubelet, which finds its socket and asks what is there, that it is the
// driver and where that is called. This is the part of Kubernetes' node-driver-registrar that
// a driver of volumes without a controller needs.
func register(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("registrar", flag.ContinueOnError)
	dir := flags.String("dir", "/registration", "where the kubelet looks for sockets")
	endpoint := flags.String("endpoint", "", "the driver's socket, as the kubelet sees it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	socket := filepath.Join(*dir, driverName+"-reg.sock")
	// One that another has left is nobody's.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	r := &registrar{endpoint: *endpoint, refused: make(chan error, 1)}
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, r)
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()
	defer s.Stop() // it removes the socket
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	case err := <-r.refused: // started anew, it is asked again
		return err
	}
}

// registrar is the answers.
type registrar struct {
	registration.UnsafeRegistrationServer
	endpoint string
	refused  chan error // capacity 1: the first one ends the program
}

// GetInfo implements registration.RegistrationServer.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: driverName, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus implements registration.RegistrationServer.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		select {
		case r.refused <- fmt.Errorf("the kubelet does not take the driver: %s", s.Error):
		default:
		}
	}
	return &registration.RegistrationStatusResponse{}, nil
}
