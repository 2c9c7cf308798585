// Command probe is what tests put into pods: an HTTP server that says its host name, one that
// says all that it saw (package echo), or a client that prints an answer.
//
//	probe serve ADDRESS
//	probe echo PORT
//	probe get URL
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"aether.io/aether/internal/test/echo"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "want serve ADDRESS, echo PORT or get URL")
		os.Exit(2)
	}
	run := get
	switch os.Args[1] {
	case "serve":
		run = serve
	case "echo":
		run = reply
	}
	if err := run(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{Addr: address, ReadHeaderTimeout: 5 * time.Second}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s to %s\n", host, r.RemoteAddr)
	})
	return server.ListenAndServe()
}

// reply serves until it is told to end, and then what is under way for a while: endpoints
// are taken out of use only after a pod was told.
func reply(port string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	server, err := echo.Start(ctx, echo.Config{Name: host, Address: "0.0.0.0", Port: int(number)})
	if err != nil {
		return err
	}
	defer server.Close()
	<-ctx.Done()
	<-time.After(5 * time.Second)
	return nil
}

func get(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
