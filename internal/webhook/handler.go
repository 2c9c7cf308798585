package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"aether.io/aether/internal/logkey"
)

// Path is where reviews are answered.
const Path = "/validate"

// The bounds of a review. An object that can be stored has 1.5 MiB at most, and a review of an
// update has two. A body above small waits for one of few places, so that strangers who send
// large ones hold up each other and no review of ordinary size. Of a body there are up to three
// copies while it is judged; of a spec, which is taken apart, up to sixty times its size, so one that
// has no ordinary size is refused as it is.
const (
	maxBody  = 2*(3<<19) + 256<<10
	maxSpec  = 256 << 10 // as much as Kubernetes takes of annotations
	small    = 64 << 10
	maxLarge = 1            // bodies above small that are in memory at once
	wait     = deadline / 2 // for a place
	// maxJudged is how many reviews are judged at a time; others wait as long as their caller does.
	maxJudged = 16
)

// handler answers reviews over HTTP. Whoever calls is not known and learns nothing that is not
// in what they sent, but for the release's MeshConfig being the reason of a warning.
type handler struct {
	*Server
	large  chan struct{} // a place for each body above small
	judged chan struct{} // a place for each review that is judged
}

// ServeHTTP answers one review.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, code, err := h.read(w, r)
	if err != nil {
		result := resultMalformed
		if code == http.StatusServiceUnavailable {
			result = resultBusy
		}
		h.refuse(w, r, result, code, err)
		return
	}
	if len(body) > small {
		defer func() { <-h.large }()
	}
	select {
	case h.judged <- struct{}{}:
	case <-r.Context().Done():
		return // the caller has gone
	}
	answer, result, err := func() ([]byte, string, error) {
		defer func() { <-h.judged }()
		return h.judge.review(body)
	}()
	if err != nil {
		h.refuse(w, r, result, http.StatusBadRequest, err)
		return
	}
	h.metrics.requests.WithLabelValues(result).Inc()
	w.Header().Set("Content-Type", "application/json")
	if h.ending.Load() {
		w.Header().Set("Connection", "close")
	}
	_, _ = w.Write(answer) // who is gone needs no answer
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, result string, code int, err error) {
	h.metrics.requests.WithLabelValues(result).Inc()
	h.log.Debug("a request is no review", logkey.Addr, r.RemoteAddr, logkey.Reason, err)
	w.Header().Set("Connection", "close") // what is left of the body is not read
	http.Error(w, err.Error(), code)
}

// read returns the body of a request, or the status to refuse it with. A body above small holds
// a place in h.large, which the caller gives back.
func (h *handler) read(w http.ResponseWriter, r *http.Request) (body []byte, code int, err error) {
	if r.URL.Path != Path {
		return nil, http.StatusNotFound, fmt.Errorf("there is only %s", Path)
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, http.StatusMethodNotAllowed, errors.New("want POST")
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("want application/json")
	}
	tooLarge := fmt.Errorf("a body has at most %d bytes", maxBody)
	if r.ContentLength > maxBody {
		return nil, http.StatusRequestEntityTooLarge, tooLarge
	}
	body, err = io.ReadAll(io.LimitReader(r.Body, small+1))
	if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	}
	if len(body) <= small {
		return body, 0, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	select {
	case h.large <- struct{}{}:
	case <-ctx.Done(): // or the caller has gone
		return nil, http.StatusServiceUnavailable, errors.New("too many large reviews at once")
	}
	whole := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 2*small)+bytes.MinRead)) // at once, and not by doubling
	whole.Write(body)
	_, err = whole.ReadFrom(io.LimitReader(r.Body, maxBody+1-int64(len(body))))
	body = whole.Bytes()
	switch {
	case err != nil:
		<-h.large
		return nil, http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	case len(body) > maxBody:
		<-h.large
		return nil, http.StatusRequestEntityTooLarge, tooLarge
	}
	return body, 0, nil
}
