package ca

import "context"

// Refresh is one look at the store, for the fuzzer.
func (a *Authority) Refresh(ctx context.Context) error { return a.refresh(ctx) }
