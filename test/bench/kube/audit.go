package kube

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// write is a line of the API server's audit log.
type write struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// size is where the log ends.
func size(log string) (int64, error) {
	info, err := os.Stat(log)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// writesSince reads what was logged after a place.
func writesSince(log string, at int64) ([]write, error) {
	f, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(at, 0); err != nil {
		return nil, err
	}
	var out []write
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var w write
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			return nil, fmt.Errorf("%s: %w", log, err)
		}
		out = append(out, w)
	}
	return out, lines.Err()
}
