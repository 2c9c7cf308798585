//go:build linux

package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkChange is the time from renaming a route's file into place to the sink's call.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{10, 3000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			v, err := crds()
			if err != nil {
				b.Fatal(err)
			}
			base := b.TempDir()
			dir := filepath.Join(base, "manifests")
			if err := os.Mkdir(dir, 0o755); err != nil {
				b.Fatal(err)
			}
			put := func(i, host int) time.Time {
				temp := filepath.Join(dir, ".tmp")
				if err := os.WriteFile(temp, []byte(route(fmt.Sprint("r", i), fmt.Sprintf("h%d.example", host))), 0o644); err != nil {
					b.Fatal(err)
				}
				at := time.Now()
				if err := os.Rename(temp, filepath.Join(dir, fmt.Sprintf("%d.yaml", i))); err != nil {
					b.Fatal(err)
				}
				return at
			}
			for i := range n {
				put(i, i)
			}
			d, err := NewDirectory(DirectoryConfig{Dir: dir, StateDir: filepath.Join(base, "state"), Validator: v})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			called, done := make(chan time.Time), make(chan error, 1)
			began := time.Now()
			go func() {
				done <- d.Run(ctx, func(context.Context, Batch) error { called <- time.Now(); return nil })
			}()
			synced := (<-called).Sub(began)
			var sum, worst time.Duration
			host := n
			for b.Loop() {
				host++
				at := put(host%n, host)
				took := (<-called).Sub(at)
				sum, worst = sum+took, max(worst, took)
			}
			b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs-mean")
			b.ReportMetric(float64(synced.Milliseconds()), "ms-to-sync")
			b.ReportMetric(float64(worst.Microseconds()), "µs-max")
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}
