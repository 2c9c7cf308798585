package main

import (
	"fmt"
	"time"
)

// duration is a flag's value that says how a duration is written.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }

func (d *duration) Type() string { return "duration" }

// Set takes what time.ParseDuration takes.
func (d *duration) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is no duration: write a number with its unit, as in 500ms, 5s, 1m", s)
	}
	*d = duration(v)
	return nil
}
