package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/test/instance"
)

const (
	clients  = 4    // that ask one request after the other, each on a connection that it keeps
	requests = 1000 // of each client and round
	rounds   = 3    // of each kind in turn, so that what else the machine does meets all
)

// collectors are kinds of collectors, the good one first. Each returns its port, and a function that ends it.
var collectors = []struct {
	name  string
	start func() (int, func(), error)
}{
	{"up", answering}, {"down", absent}, {"hung", silent},
}

// withCollectors measures requests that are all logged and traced, with a collector that
// takes it, one that is not there, and one that never answers.
func withCollectors(ctx context.Context, envoyPath string) error {
	backend, err := instance.StartBackend("ok", 0)
	if err != nil {
		return err
	}
	defer backend.Close()
	took := make([][]time.Duration, len(collectors))
	for range rounds {
		for i, c := range collectors {
			list, err := withCollector(ctx, envoyPath, backend.Port, c.start)
			if err != nil {
				return fmt.Errorf("collector %s: %w", c.name, err)
			}
			took[i] = append(took[i], list...)
		}
	}
	fmt.Println("a request, logged and traced       p50       p99    p50/up    p99/up")
	var up sample
	for i, c := range collectors {
		slices.Sort(took[i])
		s := sample{took: took[i]}
		if i == 0 {
			up = s
		}
		ratio := func(q float64) float64 { return float64(s.quantile(q)) / float64(up.quantile(q)) }
		fmt.Printf("collector %-16s  %8s  %8s  %8.2f  %8.2f\n", c.name, round(s.quantile(0.5)), round(s.quantile(0.99)), ratio(0.5), ratio(0.99))
	}
	return nil
}

// withCollector is how long each request took in one round, with an Envoy of its own.
func withCollector(ctx context.Context, envoyPath string, backend int, start func() (int, func(), error)) ([]time.Duration, error) {
	to, end, err := start()
	if err != nil {
		return nil, err
	}
	defer end()
	work, err := os.MkdirTemp("", "aether-collector-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	port, err := instance.FreeOffset(0)
	if err != nil {
		return nil, err
	}
	all, err := world(port, backend, 1, true)
	if err != nil {
		return nil, err
	}
	for _, m := range []interface {
		Resource() (*resource.Resource, error)
	}{
		envoy.Collector{Host: "127.0.0.1", Port: uint32(to)},
		envoy.Runtime{AccessLogs: map[string]envoy.AccessLog{table: {Enabled: true, SuccessSample: 100}}, Traces: map[string]float64{table: 1}},
	} {
		r, err := m.Resource()
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, stop, err := startEnvoy(ctx, work, envoyPath)
	if err != nil {
		return nil, err
	}
	defer stop()
	var set resource.Set
	for _, r := range all {
		set.Add(r.Name, r.Hash)
	}
	if o, err := server.Apply(ctx, resource.Update{Version: set.Version(), Full: true, Changed: all}); err != nil || len(o.Refused) > 0 {
		return nil, errors.Join(err, fmt.Errorf("refused: %v", o.Refused))
	}
	return load(ctx, port)
}

// load has the clients ask, and returns how long each answer took.
func load(ctx context.Context, port int) ([]time.Duration, error) {
	var mu sync.Mutex // guards all and bad
	var all []time.Duration
	bad := map[int]int{}
	var work sync.WaitGroup
	for range clients {
		work.Go(func() {
			c := &http.Client{Timeout: patience, Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			if _, err := await(ctx, c, port, host(0), time.Now(), map[int]int{}); err != nil {
				return // the count tells
			}
			own := make([]time.Duration, 0, requests)
			for range requests {
				began := time.Now()
				if code := get(ctx, c, port, host(0)); code != http.StatusOK {
					mu.Lock()
					bad[code]++
					mu.Unlock()
				}
				own = append(own, time.Since(began))
			}
			mu.Lock()
			all = append(all, own...)
			mu.Unlock()
		})
	}
	work.Wait()
	if len(all) != clients*requests || len(bad) > 0 {
		return nil, fmt.Errorf("%d answers of %d, of which other than 200: %v", len(all), clients*requests, bad)
	}
	return all, nil
}

// answering takes all that is sent and says so.
func answering() (int, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return stream.SendMsg(&emptypb.Empty{})
	}))
	go func() { _ = s.Serve(l) }() // ends with Stop
	return l.Addr().(*net.TCPAddr).Port, s.Stop, nil
}

// absent is a port at which nobody listens.
func absent() (int, func(), error) {
	port, err := instance.FreeOffset(0)
	return port, func() {}, err
}

// silent takes connections, reads all, and never answers.
func silent() (int, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection, which Envoy closes when it ends
				defer c.Close()
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, func() { _ = l.Close() }, nil
}
