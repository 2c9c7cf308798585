// Command catalog writes the documents that are made of the feature examples: the list
// of examples and the table of features. It is run in the repository's root.
package main

import (
	"fmt"
	"os"

	"aether.io/aether/internal/routing/report"
	"aether.io/aether/test/features/example"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write() error {
	all, err := example.ReadAll(folder)
	if err != nil {
		return err
	}
	for path, text := range files(all, report.SupportedFeatures()) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
