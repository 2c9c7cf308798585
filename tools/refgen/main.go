// Command refgen writes the reference pages that follow from code: the fields of our own
// objects, from their definitions, the commands, from what their --help says, the values of
// the chart, from their comments, and the codes of an analysis, from what explains them.
//
//	refgen docs/reference
//
// It must run at the repository's root, with definitions that are up to date.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: refgen DIRECTORY")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "refgen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string) error {
	fields, err := configuration()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "configuration.md"), []byte(fields), 0o644); err != nil {
		return err
	}
	flags, err := commands(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "commands.md"), []byte(flags), 0o644); err != nil {
		return err
	}
	explained, err := codes(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "codes.md"), []byte(explained), 0o644); err != nil {
		return err
	}
	chart, err := values()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "values.md"), []byte(chart), 0o644)
}
