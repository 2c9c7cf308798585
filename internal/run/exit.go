package run

import "errors"

// ExitUsage is the exit code of a process that was started wrongly and will do no better if it is
// started again: EX_USAGE of sysexits.h. A panic of Go's has 2.
const ExitUsage = 64

// failure is what ended a process that was started rightly.
type failure struct{ error }

// Unwrap has the error itself found.
func (f failure) Unwrap() error { return f.error }

// Failed marks err as what ended a process whose flags and environment are right: nil stays nil.
func Failed(err error) error {
	if err == nil {
		return nil
	}
	return failure{err}
}

// ExitCode is that of a program of ours that ended with err: 0 without one, 1 for what is marked
// by Failed. Anything else is found before there is a process to speak of, by who reads flags.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if _, failed := errors.AsType[failure](err); failed {
		return 1
	}
	return ExitUsage
}
