package client

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
)

// reportEvery spaces the reports of one stream: what changes meanwhile goes with the next.
const reportEvery = 50 * time.Millisecond

func (v *supervisor) facts() health.Facts {
	id := v.cfg.Identity.Current()
	var others []fleet.Check
	if v.cfg.Watch != nil {
		others = v.cfg.Watch.Checks()
	}
	return health.Facts{
		Configured: v.observed.Configured,
		Version:    v.observed.Version,
		Refused:    len(v.observed.Refused) + len(v.refused),
		Envoy:      v.observed.EnvoyConnected,
		Streaming:  v.current != nil,
		Skewed:     v.skew != nil,
		HasSVID:    id != nil,
		Expired:    id != nil && id.ExpiredAt(v.cfg.Now()),
		NoSVID:     v.cfg.Identity.Failure(),
		NoStream:   v.trouble,
		Others:     others,
	}
}

// publish makes the state known.
func (v *supervisor) publish() {
	old := v.State()
	s := old.Next(v.facts(), v.cfg.Now())
	v.setState(s)
	if !slices.Equal(s.Checks, old.Checks) {
		v.touched()
	}
	if s.State == old.State && s.Reason == old.Reason {
		return
	}
	v.metrics.state(s.State)
	v.cfg.Log.Info("proxy state", logkey.State, s.State, logkey.Reason, s.Reason, logkey.Version, s.Version)
	if v.cfg.OnState != nil {
		v.cfg.OnState(s)
	}
}

// touched notes that there may be something to report.
func (v *supervisor) touched() {
	if v.current != nil {
		v.current.dirty = true
	}
}

// reportDue returns when the next report may leave, if there is one to make.
func (v *supervisor) reportDue() (time.Time, bool) {
	if v.current == nil || !v.current.dirty {
		return time.Time{}, false
	}
	return v.current.reportedAt.Add(reportEvery), true
}

// report tells the controller what we observe of ourselves, if it differs from what
// was told before on this stream.
func (v *supervisor) report(now time.Time) {
	due, ok := v.reportDue()
	if !ok || now.Before(due) {
		return
	}
	s := v.current
	s.dirty = false
	mounted, pushed := v.cfg.Identity.Roots()
	m := discovery.StatusToProto(v.observed.BoundPorts, fleet.Status{
		EnvoyVersion: v.observed.EnvoyVersion, SVIDSerial: s.svid.Serial(), IssuerKeyID: s.svid.IssuerKeyID(), SVIDNotAfter: s.svid.NotAfter(),
		MountedRoots: mounted, PushedRoots: pushed, Checks: v.State().Checks,
	})
	if s.reported != nil && proto.Equal(m, s.reported) {
		return
	}
	s.reported, s.reportedAt = m, now
	s.Report(m)
}
