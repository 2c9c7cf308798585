package projection

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// fault keeps the first of a row of errors of one kind. The texts of the others may differ, by
// an address, a time or the number of a request, and are no news to who reads a status.
type fault struct {
	kind string
	err  error
}

// next takes the error of a try in, nil if there was none, and returns the one to tell of, and
// whether it is another than before.
func (f *fault) next(err error) (news bool, tell error) {
	switch kind := kindOf(err); {
	case err == nil:
		*f = fault{}
	case f.err == nil || kind != f.kind:
		*f, news = fault{kind, err}, true
	}
	return news, f.err
}

// kindOf is what errors have in common that are told of once: the API's reason and code, what
// the system says, or else the text.
func kindOf(err error) string {
	if err == nil {
		return ""
	}
	var status apierrors.APIStatus // which is no error itself, as errors.AsType wants
	if errors.As(err, &status) && status.Status().Code != 0 {
		return fmt.Sprintf("API %s %d", status.Status().Reason, status.Status().Code)
	}
	if number, is := errors.AsType[syscall.Errno](err); is {
		return number.Error()
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return "certificate"
	}
	if timeout, is := errors.AsType[net.Error](err); is && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return err.Error()
}
