package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/source"
)

// mostNamed bounds the documents that are named when they are told not to be read.
const mostNamed = 5

// problems is what is wrong with the manifests and with the controller itself at present.
// New ones are told once.
type problems struct {
	dir     string // of the manifests
	moments *journal.Journal
	log     *slog.Logger

	mu       sync.Mutex
	manifest []source.Problem // the source's
	ca       []source.Problem // at most one
}

// set takes what is wrong with the source.
func (p *problems) set(list []source.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[string]bool{}
	for _, old := range p.manifest {
		known[old.String()] = true
	}
	var unread []source.Problem
	for _, now := range list {
		switch {
		case known[now.String()]:
		case now.Severity == source.Ignored:
			unread = append(unread, now)
		default:
			p.moments.Add(time.Now(), journal.Problem, now.String(), now)
			p.log.Warn("problem with a manifest", logkey.File, now.File, logkey.Object, now.Object, logkey.Path, now.Path, logkey.Reason, now.Message)
		}
	}
	if len(unread) > 0 {
		p.moments.Add(time.Now(), journal.Unread, notRead(unread), unread)
		p.log.Info("documents are not read", logkey.Count, len(unread), logkey.File, unread[0].File, logkey.Reason, unread[0].Message)
	}
	for _, file := range mended(p.manifest, list) {
		text := "is read again"
		if _, err := os.Lstat(filepath.Join(p.dir, file)); errors.Is(err, fs.ErrNotExist) {
			text = "is gone, and what was wrong with it"
		}
		if file == "" {
			file = "the directory"
		}
		p.moments.Add(time.Now(), journal.Mended, file+" "+text, nil)
		p.log.Info("nothing is wrong with a manifest any more", logkey.File, file)
	}
	p.manifest = list
}

// mended lists the files of which something was refused, and is no more. That what is read
// differs from what is in effect already is told with the change, if it does.
func mended(before, now []source.Problem) []string {
	refused := func(list []source.Problem) map[string]bool {
		out := map[string]bool{}
		for _, p := range list {
			if p.Severity == source.Refused {
				out[p.File] = true
			}
		}
		return out
	}
	still := refused(now)
	files := refused(before)
	maps.DeleteFunc(files, func(file string, _ bool) bool { return still[file] })
	return slices.Sorted(maps.Keys(files))
}

// notRead names documents that are none of ours.
func notRead(list []source.Problem) string {
	var names []string
	for _, p := range list[:min(len(list), mostNamed)] {
		names = append(names, p.String())
	}
	text := "not read: " + strings.Join(names, "; ")
	if more := len(list) - len(names); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// setCA takes what is wrong with the CA that is stored in a directory; nil: nothing.
func (p *problems) setCA(dir string, err error, inUse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		if p.ca != nil {
			p.moments.Add(time.Now(), journal.CAReady, "CA is good again", nil)
		}
		p.ca = nil
		return
	}
	consequence := "no proxy can join until it is mended"
	if inUse {
		consequence = "the last good one stays in use, until a restart"
	}
	now := source.Problem{Severity: source.Refused, File: dir, Message: fmt.Sprintf("%v; %s", err, consequence), Since: time.Now()}
	p.moments.Add(time.Now(), journal.Problem, now.String(), now) // the authority logs it
	p.ca = []source.Problem{now}
}

func (p *problems) get() []source.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat([]source.Problem{}, p.ca, p.manifest)
}
