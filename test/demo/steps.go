package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"aether.io/aether/internal/test/instance"
)

// listenerPorts are the ports of the demo's listeners, as the manifests name them.
const (
	httpPort  = 8080
	httpsPort = 8443
)

// patience bounds every wait.
const patience = 20 * time.Second

type demo struct {
	keep     bool
	work     string
	backends []*instance.Backend
	ports    []string // replacements in manifests
	in       *instance.Instance
	client   *http.Client
	offset   int
}

// run is the whole demo, a step a line.
func (d *demo) run(ctx context.Context, aetherctl, envoy, examples string) error {
	if err := d.prepare(examples); err != nil {
		return err
	}
	d.client = &http.Client{Timeout: 5 * time.Second}
	steps := []struct {
		title string
		do    func(context.Context) error
	}{
		{"Start: " + examples + " is served by a real Envoy", func(ctx context.Context) error { return d.start(ctx, aetherctl, envoy) }},
		{"Send 200 requests: 90 % to shop-v1, 10 % to shop-v2", d.weights},
		{"Shift all traffic to shop-v2 by editing shop.yaml", d.shift},
		{"Add a host: write blog.yaml", d.addHost},
		{"Turn access logs on by editing the MeshConfig", d.accessLogs},
		{"Serve HTTPS: add a certificate and a listener", d.https},
		{"Kill the controller, then the proxy, while requests run", d.kill},
	}
	for i, s := range steps {
		fmt.Printf("\n%d. %s\n", i+1, s.title)
		if err := s.do(ctx); err != nil {
			if d.in != nil {
				fmt.Fprintln(os.Stderr, d.in.Dump())
			}
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		d.listen(ctx)
	}
	if d.keep {
		d.play(ctx)
	}
	return nil
}

// What the command tells of a step comes a little later than what the step saw itself.
const (
	lull    = 300 * time.Millisecond // no line for that long: it has told all
	longest = 10 * lull
)

// listen waits until the command has told what the step did, or for a while.
func (d *demo) listen(ctx context.Context) {
	told := len(d.in.Output())
	tick := time.NewTicker(lull / 10)
	defer tick.Stop()
	// Exits: it has told all, or is waited for no longer.
	for began, since := time.Now(), time.Now(); time.Since(since) < lull && time.Since(began) < longest; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := len(d.in.Output()); now != told {
			told, since = now, time.Now()
		}
	}
}

func say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

func (d *demo) start(ctx context.Context, aetherctl, envoy string) error {
	var err error
	if d.offset, err = instance.FreeOffset(httpPort, httpsPort); err != nil {
		return err
	}
	began := time.Now()
	d.in, err = instance.Start(ctx, instance.Config{
		Aetherctl: aetherctl, Envoy: envoy, Dir: filepath.Join(d.work, "manifests"),
		StateDir: filepath.Join(d.work, "state"), Offset: d.offset, Out: prefixed{},
	})
	if err != nil {
		return err
	}
	say("ready %s after the command was started", time.Since(began).Round(time.Millisecond))
	return nil
}

// prefixed prints the command's own output as such.
type prefixed struct{}

func (prefixed) Write(p []byte) (int, error) {
	fmt.Printf("   | %s\n", bytes.TrimRight(p, "\n"))
	return len(p), nil
}

func (d *demo) get(ctx context.Context, host string) (int, string) {
	return d.in.Get(ctx, d.client, httpPort, host, "/")
}

func (d *demo) weights(ctx context.Context) error {
	count := map[string]int{}
	for range 200 {
		code, body := d.get(ctx, "shop.example.com")
		if code != http.StatusOK {
			return fmt.Errorf("shop.example.com answered %d %s", code, body)
		}
		count[body]++
	}
	say("shop-v1 answered %d, shop-v2 %d", count["shop-v1"], count["shop-v2"])
	if count["shop-v1"] < 140 || count["shop-v2"] == 0 {
		return errors.New("the weights are not respected")
	}
	return nil
}

// edit changes one manifest of the demo and returns when it was renamed into place.
func (d *demo) edit(name string, replace ...string) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(d.in.Dir, name))
	if err != nil {
		return time.Time{}, err
	}
	changed := strings.NewReplacer(replace...).Replace(string(text))
	if changed == string(text) {
		return time.Time{}, fmt.Errorf("nothing to edit in %s", name)
	}
	return d.in.Write(name, changed)
}

func (d *demo) shift(ctx context.Context) error {
	at, err := d.edit("shop.yaml", "weight: 90", "weight: 0", "weight: 10", "weight: 1")
	if err != nil {
		return err
	}
	// Seen when 20 requests in a row go to shop-v2.
	var first time.Time
	for run := 0; run < 20; {
		code, body := d.get(ctx, "shop.example.com")
		switch {
		case code != http.StatusOK:
			return fmt.Errorf("shop.example.com answered %d %s", code, body)
		case body != "shop-v2":
			run = 0
		case run == 0:
			first = time.Now()
			run++
		default:
			run++
		}
		if time.Since(at) > patience {
			return errors.New("traffic does not shift")
		}
	}
	say("all requests go to shop-v2; the first of them %s after the edit", first.Sub(at).Round(100*time.Microsecond))
	return nil
}

const blog = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: blog}
spec:
  parentRefs: [{name: web}]
  hostnames: [%s]
  rules:
  - backendRefs: [{name: shop-v1, port: 80}]
`

func (d *demo) addHost(ctx context.Context) error {
	if code, _ := d.get(ctx, "blog.example.com"); code != http.StatusNotFound {
		return fmt.Errorf("blog.example.com answered %d before it exists, want 404", code)
	}
	took, codes, err := d.newHost(ctx, "blog.yaml", "blog.example.com", fmt.Sprintf(blog, "blog.example.com"))
	if err != nil {
		return err
	}
	say("blog.example.com answered 200 %s after the file was renamed into place; answers until then: %s", took.Round(100*time.Microsecond), codes)
	return nil
}

// answers counts answers by their status.
type answers map[int]int

func (a answers) String() string {
	var list []string
	for _, code := range slices.Sorted(maps.Keys(a)) {
		times := "times"
		if a[code] == 1 {
			times = "time"
		}
		list = append(list, fmt.Sprintf("%d %d %s", code, a[code], times))
	}
	return strings.Join(list, ", ")
}

// newHost writes a manifest and asks until its host answers 200.
func (d *demo) newHost(ctx context.Context, file, host, text string) (time.Duration, answers, error) {
	at, err := d.in.Write(file, text)
	if err != nil {
		return 0, nil, err
	}
	codes := answers{}
	for {
		code, _ := d.get(ctx, host)
		took := time.Since(at)
		codes[code]++
		if code == http.StatusOK {
			return took, codes, nil
		}
		if code != http.StatusNotFound {
			return 0, codes, fmt.Errorf("%s answered %d, want only 404 and then 200", host, code)
		}
		if took > patience {
			return 0, codes, fmt.Errorf("%s does not answer 200: %s", host, codes)
		}
	}
}

func (d *demo) accessLogs(ctx context.Context) error {
	at, err := d.edit("meshconfig.yaml", "accessLogsEnabled: false", "accessLogsEnabled: true")
	if err != nil {
		return err
	}
	path := d.in.State.Log("access")
	for n := 0; ; n++ {
		d.get(ctx, "shop.example.com")
		if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
			line, _, _ := bytes.Cut(text, []byte("\n"))
			say("first line in logs/access.log %s after the edit, %d requests later, without a listener update:", time.Since(at).Round(time.Millisecond), n+1)
			say("%s", line)
			return nil
		}
		if time.Since(at) > patience {
			return errors.New("no access log appears")
		}
	}
}

func (d *demo) https(ctx context.Context) error {
	certificate, pool, err := selfSigned("shop.example.com")
	if err != nil {
		return err
	}
	if _, err := d.in.Write("certificate.yaml", certificate); err != nil {
		return err
	}
	at, err := d.edit("gateway.yaml", "    port: 8080\n", "    port: 8080\n"+`  - name: https
    protocol: HTTPS
    port: 8443
    tls:
      certificateRefs: [{name: shop-certificate}]
`)
	if err != nil {
		return err
	}
	secure := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "shop.example.com", MinVersion: tls.VersionTLS12},
	}}
	defer secure.CloseIdleConnections()
	url := fmt.Sprintf("https://127.0.0.1:%d/", httpsPort+d.offset)
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		req.Host = "shop.example.com"
		resp, err := secure.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				say("%s over %s with a verified certificate, %s after the edit", resp.Status, resp.Proto, time.Since(at).Round(time.Millisecond))
				return nil
			}
		}
		if time.Since(at) > patience {
			return fmt.Errorf("HTTPS is not served: %w", err)
		}
	}
}

func (d *demo) kill(ctx context.Context) error {
	stop := make(chan struct{})
	codes := answers{}
	var load sync.WaitGroup
	load.Go(func() {
		// Exits: stop is closed.
		for {
			select {
			case <-stop:
				return
			default:
			}
			code, _ := d.get(ctx, "shop.example.com")
			codes[code]++
		}
	})
	err := errors.Join(d.killOne(ctx, "controller"), d.killOne(ctx, "proxy"))
	close(stop)
	load.Wait()
	if err != nil {
		return err
	}
	say("requests all the while, by status: %s", codes)
	if len(codes) != 1 || codes[http.StatusOK] == 0 {
		return errors.New("requests were lost")
	}
	return nil
}

// killOne kills a process, waits for its successor, and shows that a new route works.
func (d *demo) killOne(ctx context.Context, name string) error {
	began := time.Now()
	old, err := d.in.Signal(name, syscall.SIGKILL)
	if err != nil {
		return err
	}
	host := "after-" + name + ".example.com"
	took, _, err := d.newHost(ctx, host+".yaml", host, strings.Replace(fmt.Sprintf(blog, host), "name: blog", "name: after-"+name, 1))
	if err != nil {
		return err
	}
	pid, err := d.in.PID(name)
	if err != nil || pid == old {
		return fmt.Errorf("%s was not restarted (%w)", name, err)
	}
	say("%s killed (pid %d) and restarted (pid %d); a route written meanwhile answered 200 after %s (%s after the kill)",
		name, old, pid, took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	return nil
}

func (d *demo) play(ctx context.Context) {
	say("")
	fmt.Printf("It keeps running. Try:\n")
	say("curl -H 'Host: shop.example.com' http://127.0.0.1:%d/", httpPort+d.offset)
	say("edit the files in %s", d.in.Dir)
	say("bin/aetherctl status --state-dir %s", d.in.State.Root())
	say("bin/aetherctl get proxies --state-dir %s", d.in.State.Root())
	fmt.Printf("Ctrl-C ends it and removes everything.\n")
	<-ctx.Done()
}
