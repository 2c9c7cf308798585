package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"aether.io/aether/test/cluster/image"
)

// EnvoyImage is the official image's name, with the tag that the chart has.
const EnvoyImage = "docker.io/envoyproxy/envoy:v1.40.0"

// ProbeImage is the backend of examples and tests: command probe. Another program wants another tag.
const ProbeImage = "aether.test/probe:2"

// systemCAs is where the official image of Envoy has the authorities of its Debian package.
const systemCAs = "/etc/ssl/certs/ca-certificates.crt"

// Load gives the nodes the images that the chart names, and the probe.
func (r Release) Load(ctx context.Context) error {
	images := []image.Image{{
		Name: ProbeImage, Entrypoint: []string{"/usr/local/bin/probe"}, User: "65532:65532",
		Files: map[string]string{"/usr/local/bin/probe": r.Probe},
	}}
	for _, program := range programs {
		img, err := r.program(program)
		if err != nil {
			return err
		}
		images = append(images, img)
	}
	envoy, err := image.Of(EnvoyImage, r.Envoy)
	if err != nil {
		return err
	}
	if _, err := os.Stat(systemCAs); err == nil {
		envoy.Files[systemCAs] = systemCAs
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, img := range append(images, envoy) {
		if err := r.Cluster.Give(ctx, img); err != nil {
			return err
		}
	}
	return nil
}

// programs have images of their own, aether.io/<name>.
var programs = []string{"aether-controller", "aether-proxy"}

// program is the image of a program of ours.
func (r Release) program(name string) (image.Image, error) {
	tag, err := r.tag(name)
	target := "/usr/local/bin/" + name
	return image.Image{
		Name: "aether.io/" + name + ":" + tag, Entrypoint: []string{target}, User: "65532:65532",
		Files: map[string]string{target: filepath.Join(r.Programs, name)},
	}, err
}

// tag is made of what is in a program: another program is another image, and the same is
// no reason to start pods anew.
func (r Release) tag(name string) (string, error) {
	f, err := os.Open(filepath.Join(r.Programs, name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return "dev-" + hex.EncodeToString(h.Sum(nil)[:6]), nil
}

// Images are the arguments by which Helm has the chart name the images of Load: the
// controller's by digest, the proxy's by tag, so that pods run by both.
func (r Release) Images(ctx context.Context) ([]string, error) {
	proxy, err := r.tag("aether-proxy")
	if err != nil {
		return nil, err
	}
	controller, err := r.program("aether-controller")
	if err != nil {
		return nil, err
	}
	digest, err := r.Cluster.Pin(ctx, controller.Name)
	return []string{"--set-string", "images.proxy.tag=" + proxy, "--set-string", "images.controller.digest=" + digest}, err
}
