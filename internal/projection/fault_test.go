package projection_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"aether.io/aether/internal/object"
)

// An error whose text differs each time is told once, and another one again.
func TestWhatFailsAgainIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, newPlace())
		refuse := func(err error) {
			r.place.mu.Lock()
			r.place.refuse = err
			r.place.mu.Unlock()
		}
		says := func() string { return r.says("shop", 1) }
		refuse(apierrors.NewInternalError(fmt.Errorf("request 0 broke")))
		r.lead()
		r.Observe([]object.Change{written("shop", 1, 7)}, true)
		settle()
		if got := says(); !strings.Contains(got, "request 0 broke") {
			t.Fatalf("it says %q", got)
		}
		told := len(r.told)
		for i := range 5 {
			refuse(apierrors.NewInternalError(fmt.Errorf("request %d broke", i+1)))
			<-time.After(time.Minute)
		}
		settle()
		if got := says(); !strings.Contains(got, "request 0 broke") || len(r.told) != told {
			t.Errorf("told %d times more, at last %q", len(r.told)-told, got)
		}
		reset := func(port int) error {
			return &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Err: os.NewSyscallError("read", syscall.ECONNRESET)}
		}
		for i := range 5 {
			refuse(reset(40000 + i))
			<-time.After(time.Minute)
		}
		settle()
		if got := says(); !strings.Contains(got, "40000") || len(r.told) != told+1 {
			t.Errorf("told %d times more, at last %q", len(r.told)-told, got)
		}
		refuse(nil)
		<-time.After(time.Minute)
		settle()
		if got := says(); !strings.HasPrefix(got, "Projected") {
			t.Errorf("it says %q", got)
		}
		refuse(reset(50000))
		r.Observe([]object.Change{written("shop", 1, 8)}, true)
		settle()
		if got := says(); !strings.Contains(got, "50000") {
			t.Errorf("it fails anew, and says %q", got)
		}
	})
}
