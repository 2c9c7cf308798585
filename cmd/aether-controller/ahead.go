package main

import (
	"fmt"
	"strings"

	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/source"
)

// aheadHelp is what is to be done about proxies that are ahead.
func (p *problems) aheadHelp() string {
	if p.dir != "" {
		return "the state directory is an earlier one than theirs: stop, remove it, and start again"
	}
	return "another replica may be about to catch up; if the API was restored from a backup they wait for: aetherctl discovery reset-epoch --release-namespace " + p.release
}

// setAhead takes the proxies that have newer configuration than this controller. Their watch
// logs it.
func (p *problems) setAhead(ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(ids) == 0 {
		p.mend(&p.ahead, journal.Mended, "no proxy has newer configuration than this controller any more")
		return
	}
	named := strings.Join(ids[:min(len(ids), mostNamed)], ", ")
	if more := len(ids) - mostNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	p.restate(&p.ahead, source.Problem{
		Severity: source.Warning, Object: "Proxies that are ahead",
		Message: fmt.Sprintf("%s: newer configuration than this controller has, so they take nothing from it and serve what they have; %s", named, p.aheadHelp()),
	})
}
