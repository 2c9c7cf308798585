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

	cakube "aether.io/aether/internal/ca/kube"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/source"
)

// mostNamed bounds the documents that are named when they are told not to be read.
const mostNamed = 5

// problems is what is wrong with the manifests and with the controller itself at present.
// New ones are told once.
type problems struct {
	dir     string // of the manifests; empty: they are a cluster's
	release string // namespace
	moments *journal.Journal
	log     *slog.Logger

	mu       sync.Mutex
	manifest []source.Problem          // the source's
	ca       []source.Problem          // at most one
	lease    []source.Problem          // at most one
	claims   []source.Problem          // at most one
	overlap  []source.Problem          // at most one
	exports  []source.Problem          // at most one
	memory   map[string]source.Problem // of what is left to the next process, by place
	ahead    []source.Problem          // at most one
	trust    []source.Problem          // one for each place of a trust bundle that is taken
}

// set takes what is wrong with the source.
func (p *problems) set(list []source.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[told]bool{}
	for _, old := range p.manifest {
		known[told{old.String(), old.Since}] = true
	}
	var fresh, unread []source.Problem
	for _, now := range list {
		switch {
		case known[told{now.String(), now.Since}]:
		case now.Severity == source.Ignored:
			unread = append(unread, now)
		default:
			fresh = append(fresh, now)
			p.moments.Add(time.Now(), journal.Problem, now.String(), now)
			p.log.Warn("problem with a manifest", logkey.File, now.File, logkey.Object, now.Object, logkey.Path, now.Path, logkey.Reason, now.Message)
		}
	}
	if len(unread) > 0 {
		p.moments.Add(time.Now(), journal.Unread, notRead(unread), unread)
		p.log.Info("documents are not read", logkey.Count, len(unread), logkey.File, unread[0].File, logkey.Reason, unread[0].Message)
	}
	for _, gone := range mended(p.manifest, list, fresh) {
		text := gone.String()
		if p.isGone(gone.file) {
			if gone.about != "" { // the file is told of
				continue
			}
			text = gone.name() + " is gone, and what was wrong with it"
		}
		p.moments.Add(time.Now(), journal.Mended, text, nil)
		p.log.Info("nothing is wrong with a manifest any more", logkey.File, gone.file, logkey.Reason, text)
	}
	p.manifest = list
}

// isGone reports whether a file is not there any more. That of an object in no file is.
func (p *problems) isGone(file string) bool {
	if file == "" {
		return false
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(p.dir, file)
	}
	_, err := os.Lstat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// told is a problem that was told: written anew, it is told anew.
type told struct {
	line  string
	since time.Time
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

// tell puts what is wrong in its place, where there is one problem at most, and in the journal. Who
// found it logs it. The caller holds mu.
func (p *problems) tell(place *[]source.Problem, now source.Problem) {
	now.Since = time.Now()
	*place = []source.Problem{now}
	p.moments.Add(now.Since, journal.Problem, now.String(), now)
}

// restate tells of a problem whose message changes while it lasts: only its beginning is for the
// journal. The caller holds mu.
func (p *problems) restate(place *[]source.Problem, now source.Problem) {
	if *place == nil {
		p.tell(place, now)
		return
	}
	now.Since = (*place)[0].Since
	*place = []source.Problem{now}
}

// mend empties a place, and says how that is told if there was something. The caller holds mu.
func (p *problems) mend(place *[]source.Problem, kind journal.Kind, text string) {
	if *place != nil {
		p.moments.Add(time.Now(), kind, text, nil)
	}
	*place = nil
}

// warn puts in its place what is wrong with an object, and with what consequence; nil: nothing. It
// is not for the journal, and who found it logs it.
func (p *problems) warn(place *[]source.Problem, object, consequence string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*place = nil
	if err != nil {
		*place = []source.Problem{{Severity: source.Warning, Object: object, Since: time.Now(), Message: consequence + ": " + err.Error()}}
	}
}

// setCA takes what is wrong with the CA that is stored in a directory; nil: nothing.
func (p *problems) setCA(dir string, err error, inUse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.mend(&p.ca, journal.CAReady, "CA is good again")
		return
	}
	consequence := "no proxy can join until it is mended"
	if inUse {
		consequence = "the last good one stays in use, until a restart"
	}
	what := strings.TrimPrefix(err.Error(), dir+": ") // the place is said once
	p.tell(&p.ca, source.Problem{Severity: source.Refused, File: dir, Message: what + "; " + consequence})
}

// setOverlap takes which other release has what this one is to serve; nil: none.
func (p *problems) setOverlap(lack error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lack == nil {
		p.mend(&p.overlap, journal.Mended, "no other release has what this one is to serve any more")
		return
	}
	p.tell(&p.overlap, source.Problem{
		Severity: source.Refused, Object: "Deployment/" + deployment,
		Message: lack.Error() + ". This one writes nothing and is not Ready; its proxies keep what they have",
	})
}

// setLease takes why the Lease of the leader cannot be read or written; nil: it can. The journal
// has who leads.
func (p *problems) setLease(lease string, err error) {
	p.warn(&p.lease, lease, "the API cannot be written to, and nobody leads for long: statuses, Services and Events wait, and proxies are served as before", err)
}

// setClaims takes why Leases of releases cannot be read or written; nil: they can.
func (p *problems) setClaims(err error) {
	p.warn(&p.claims, "Leases of releases", "it is not seen whether another release has what this one serves; it stays as it is", err)
}

// setCollector takes what is wrong with what proxies export to the collector at an address;
// "": nothing. Who says so logs it.
func (p *problems) setCollector(address, wrong string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place := "Collector/" + address
	if wrong == "" {
		p.mend(&p.exports, journal.Mended, place+": what is exported arrives again")
		return
	}
	p.restate(&p.exports, source.Problem{Severity: source.Warning, Object: place, Message: wrong})
}

// setMemory takes what is not left, at a place, to the controller that comes next; nil: everything is.
func (p *problems) setMemory(place string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, was := p.memory[place]
	if err == nil {
		if was {
			delete(p.memory, place)
			p.moments.Add(time.Now(), journal.Mended, place+": nothing is wrong with it any more", nil)
		}
		return
	}
	if was && old.Message == err.Error() {
		return
	}
	now := source.Problem{Severity: source.Warning, Object: place, Message: err.Error(), Since: time.Now()}
	p.moments.Add(time.Now(), journal.Problem, now.String(), now)
	p.log.Warn("not everything survives a restart", logkey.Object, place, logkey.Reason, now.Message)
	if p.memory == nil {
		p.memory = map[string]source.Problem{}
	}
	p.memory[place] = now
}

// trustTaken is what is wrong where a ConfigMap of somebody else is in the trust bundle's place.
const trustTaken = "ConfigMap " + cakube.BundleName + " was not made by Aether and is left alone: proxies of dedicated Gateways in this namespace trust what it says, " +
	"and those that start cannot join. Delete it, and it is made anew"

// setTrust takes the namespaces in which the trust bundle's place is taken, and returns those that
// are new among them.
func (p *problems) setTrust(namespaces []string) (fresh []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := map[string]source.Problem{}
	for _, old := range p.trust {
		before[old.Object] = old
	}
	p.trust = nil
	for _, ns := range namespaces {
		at := "ConfigMap/" + ns + "/" + cakube.BundleName
		now, known := before[at]
		delete(before, at)
		if !known {
			fresh = append(fresh, ns)
			now = source.Problem{Severity: source.Warning, Object: at, Message: trustTaken, Since: time.Now()}
			p.moments.Add(time.Now(), journal.Problem, now.String(), now)
			p.log.Warn("the trust bundle cannot be published", logkey.Object, at, logkey.Reason, trustTaken)
		}
		p.trust = append(p.trust, now)
	}
	for _, at := range slices.Sorted(maps.Keys(before)) {
		p.moments.Add(time.Now(), journal.Mended, at+": nothing is wrong with it any more", nil)
	}
	return fresh
}

func (p *problems) get() []source.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	memory := slices.SortedFunc(maps.Values(p.memory), func(a, b source.Problem) int { return strings.Compare(a.Object, b.Object) })
	return slices.Concat([]source.Problem{}, p.ca, p.overlap, p.lease, p.claims, p.ahead, p.trust, p.exports, memory, p.manifest)
}
