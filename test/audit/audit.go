// Package audit reads what the API server of a test notes: who wrote what, and what became of
// it. What is noted is for the server's policy to say; here nothing is left out.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// Write is one write.
type Write struct {
	Verb      string
	User      struct{ Username string }
	UserAgent string
	ObjectRef struct{ Namespace, Name, Resource, Subresource, APIGroup string }
	Response  struct{ Code int } `json:"responseStatus"`
}

// Program is the name of the file of the program that wrote.
func (w Write) Program() string {
	name, _, _ := strings.Cut(w.UserAgent, "/")
	return name
}

// Done reports whether it was answered with success.
func (w Write) Done() bool { return w.Response.Code < http.StatusMultipleChoices }

// String names what was written.
func (w Write) String() string {
	return fmt.Sprintf("%s %s/%s %s/%s", w.Verb, w.ObjectRef.Resource, w.ObjectRef.Subresource, w.ObjectRef.Namespace, w.ObjectRef.Name)
}

// Size is where a log ends, in bytes.
func Size(log string) (int64, error) {
	info, err := os.Stat(log)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Since is what was noted after the first bytes of a log, 0 for all of it. It fails if the log
// has fewer: it has been begun anew, and what was before is elsewhere.
func Since(log string, at int64) ([]Write, error) {
	f, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < at {
		return nil, fmt.Errorf("%s has %d bytes and had %d: it has been begun anew", log, info.Size(), at)
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return nil, err
	}
	var out []Write
	lines := bufio.NewReader(f)
	for { // Exits: the end of the file, be it in a line that is being written; what is no line of the log.
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		var w Write
		if err := json.Unmarshal(line, &w); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", log, err, line)
		}
		out = append(out, w)
	}
}
