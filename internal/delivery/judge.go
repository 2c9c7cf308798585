package delivery

import "time"

// How long evidence must be of one kind before what is said changes.
const (
	// DefaultConfirm is how long nothing may arrive, or everything.
	DefaultConfirm = 10 * time.Second
	// restless is how soon after it was well a collector must fail again for it to be believed
	// well later, doubled each time, up to maxConfirm: one that comes and goes is not well.
	restless   = 10 * time.Minute
	maxConfirm = 160 * time.Second
)

// judge says whether what is sent arrives, from one while after the other. It does not say
// something else for less than confirm, and remembers what it said while nothing is sent.
// One that has no more than confirm knows nothing.
type judge struct {
	confirm time.Duration
	said    outcome // idle: nothing is known
	since   time.Time
	cause   Cause
	turning time.Time     // when the first evidence against what is said came, none for it since; zero: there is none
	failed  counts        // what failed since then, or, while that is what is said, since cause was last settled
	settled time.Time     // when cause was
	patient time.Duration // before it is said that all is well again
	well    time.Time     // when that was said last
}

// take brings a while that ended now into the judgement.
func (j *judge) take(now time.Time, of counts) {
	switch was := of.outcome(); {
	case was == idle:
	case was == j.said:
		j.turning = time.Time{}
		if was == bad {
			j.recast(now, of)
		}
	case was == good && j.said == idle:
		j.said, j.since, j.turning = good, now, time.Time{}
	default:
		if j.turning.IsZero() {
			j.turning = now
			if was == bad {
				j.failed = counts{}
			}
		}
		if was == bad {
			j.failed = j.failed.plus(of)
		}
	}
	if !j.turning.IsZero() && now.Sub(j.turning) >= j.patience() {
		j.turn(now)
	}
}

// patience is how long evidence against what is said has to last.
func (j *judge) patience() time.Duration {
	if j.said == bad {
		return max(j.confirm, j.patient)
	}
	return j.confirm
}

// turn says the contrary of what was said.
func (j *judge) turn(now time.Time) {
	if j.said == bad {
		*j = judge{confirm: j.confirm, said: good, since: j.turning, patient: j.patient, well: now}
		return
	}
	patient := j.confirm
	if !j.well.IsZero() && now.Sub(j.well) < restless {
		patient = min(2*max(j.patient, j.confirm), max(maxConfirm, j.confirm))
	}
	*j = judge{confirm: j.confirm, said: bad, since: j.turning, cause: j.failed.cause(), settled: now, patient: patient}
}

// recast takes the cause of all that failed for as long as it takes to confirm: a while by
// itself may show but a part of what is wrong, as the overflow behind requests that hang. That
// begins with a failure, so of rare ones it takes two.
func (j *judge) recast(now time.Time, of counts) {
	if j.failed == (counts{}) && now.Sub(j.settled) >= j.confirm {
		j.settled = now
	}
	j.failed = j.failed.plus(of)
	if now.Sub(j.settled) < j.confirm {
		return
	}
	j.cause, j.failed, j.settled = j.failed.cause(), counts{}, now
}
