// Command backends runs what an example needs beside Aether: the backends at the ports
// that its manifests name, and the certificates that requests.yaml asks for, as a file
// in the folder. It ends, and takes the file away again, with Ctrl-C.
//
//	go run ./test/features/backends examples/features/weights
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"aether.io/aether/internal/test/echo"
	"aether.io/aether/test/features/example"
	"aether.io/aether/test/features/stage"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) != 1 {
		return errors.New("usage: backends FOLDER")
	}
	e, err := example.Read(args[0])
	if err != nil {
		return err
	}
	fmt.Println(e.Title)
	made, err := stage.Make(e)
	if err != nil {
		return err
	}
	servers, err := start(ctx, e, made)
	defer func() {
		for _, s := range servers {
			s.Close()
		}
	}()
	if err != nil {
		return err
	}
	if len(made.Objects) > 0 {
		path := filepath.Join(args[0], example.MadeFile)
		if err := share(made, path); err != nil {
			return err
		}
		defer os.Remove(path)
	}
	fmt.Println("try:")
	for i := range e.Requests[:min(3, len(e.Requests))] {
		fmt.Println(" ", curl(&e.Requests[i]))
	}
	<-ctx.Done()
	return nil
}

// start starts the backends; those that did start are returned with an error too.
func start(ctx context.Context, e *example.Example, made *stage.Certificates) ([]*echo.Server, error) {
	objects, err := stage.Objects(e)
	if err != nil {
		return nil, err
	}
	var servers []*echo.Server
	for _, p := range stage.Places(objects) {
		if e.Backends[p.Slice].Absent {
			continue
		}
		config, err := made.Backend(e, p.Slice)
		if err != nil {
			return servers, err
		}
		s, err := echo.Start(ctx, echo.Config{Name: p.Slice, Address: p.Address, Port: p.Port, TLS: config})
		if err != nil {
			return servers, err
		}
		servers = append(servers, s)
		fmt.Printf("backend %s at port %d\n", p.Slice, p.Port)
	}
	return servers, nil
}

// share writes certificates where the controller reads them.
func share(made *stage.Certificates, path string) error {
	text, err := stage.Text(nil, made.Objects, stage.Change{})
	if err != nil {
		return err
	}
	fmt.Println("certificates in", path)
	return os.WriteFile(path, []byte(text), 0o600)
}

// curl is a command line that sends the request.
func curl(r *example.Request) string {
	method, scheme, authority, path := r.Target()
	host, _, _ := strings.Cut(authority, ":")
	words := []string{"curl", "-ik", "--path-as-is", "-X", method, "--connect-to", fmt.Sprintf("%s::127.0.0.1:%d", host, r.Port)}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, v := range r.Headers[name] {
			words = append(words, "-H", fmt.Sprintf("'%s: %s'", name, v))
		}
	}
	switch {
	case r.Protocol == example.HTTP10:
		words = append(words, "--http1.0")
	case r.Protocol == example.HTTP2 && scheme == "http":
		words = append(words, "--http2-prior-knowledge")
	case r.Protocol == example.HTTP11 && scheme == "https":
		words = append(words, "--http1.1")
	}
	if r.Body != "" {
		words = append(words, "-d", "'"+r.Body+"'")
	}
	return strings.Join(append(words, "'"+scheme+"://"+authority+path+"'"), " ")
}
