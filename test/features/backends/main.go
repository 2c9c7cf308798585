// Command backends runs what an example needs beside Aether: the backends at the ports
// that its manifests name, and the certificates that requests.yaml asks for, as a file
// in the folder. It ends, and takes the file away again, with Ctrl-C.
//
//	go run ./test/features/backends examples/features/weights
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"aether.io/aether/internal/test/echo"
	"aether.io/aether/test/features/example"
	"aether.io/aether/test/features/stage"
)

const usage = `usage: backends FOLDER

Runs what the manifests in FOLDER send requests to, until Ctrl-C: a backend, which answers
with what it saw, at the address of each EndpointSlice. If there is a requests.yaml, its
certificates are made, and requests to try are printed, with what comes of them.
`

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage) }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "backends:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	e, err := read(folder)
	if err != nil {
		return err
	}
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
		path := filepath.Join(folder, example.MadeFile)
		if err := share(made, path); err != nil {
			return err
		}
		defer os.Remove(path)
	}
	clients, err := os.MkdirTemp("", "aether-clients-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(clients)
	if err := writeClients(made.Clients, clients); err != nil {
		return err
	}
	suggest(os.Stdout, e, folder, clients)
	fmt.Println("\nCtrl-C stops the backends.")
	<-ctx.Done()
	return nil
}

// read reads the folder of an example, or of manifests alone: then nothing is made for
// them, and there is nothing to try.
func read(folder string) (*example.Example, error) {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s is no folder", folder)
	}
	if _, err := os.Stat(filepath.Join(folder, example.File)); err == nil {
		return example.Read(folder)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	e := &example.Example{Name: filepath.Base(folder), Manifests: map[string]string{}}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		e.Manifests[filepath.Base(path)] = string(text)
	}
	objects, err := stage.Objects(e)
	if err == nil && len(stage.Places(objects)) == 0 {
		err = fmt.Errorf("no .yaml file in %s has an EndpointSlice with an address", folder)
	}
	return e, err
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
		if errors.Is(err, syscall.EADDRINUSE) {
			return servers, fmt.Errorf("%w: do the backends of another folder still run?", err)
		}
		if err != nil {
			return servers, err
		}
		servers = append(servers, s)
		fmt.Printf("backend %s at %s\n", p.Slice, net.JoinHostPort(p.Address, strconv.Itoa(p.Port)))
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
