package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

const commandsHead = `# Commands

<!-- Made by "make generate" from what the programs say with --help. -->

` + "`aetherctl`" + ` is for people. The other two are started by it, or by Kubernetes; a flag of the
controller is handed on with ` + "`aetherctl standalone --controller-flag`" + `.
`

// The programs, by the folders of their code.
var programs = []string{"aetherctl", "aether-controller", "aether-proxy"}

// commands is the page of programs and their flags.
func commands(ctx context.Context) (string, error) {
	var b strings.Builder
	b.WriteString(commandsHead)
	for _, name := range programs {
		if err := describe(ctx, &b, name); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// describe writes a program's help, or, if it has commands, theirs; both if it does something
// without one of them too.
func describe(ctx context.Context, b *strings.Builder, words ...string) error {
	text, err := help(ctx, words)
	if err != nil {
		return err
	}
	below := subcommands(text)
	if len(below) == 0 || strings.Contains(text, "\n  "+strings.Join(words, " ")+" [flags]\n") {
		fmt.Fprintf(b, "\n## %s\n\n```\n%s\n```\n", strings.Join(words, " "), strings.TrimSpace(text))
	}
	for _, name := range below {
		if err := describe(ctx, b, slices.Concat(words, []string{name})...); err != nil {
			return err
		}
	}
	return nil
}

// help runs a command with --help.
func help(ctx context.Context, words []string) (string, error) {
	args := slices.Concat([]string{"run", "./cmd/" + words[0]}, words[1:], []string{"--help"})
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return "", fmt.Errorf("run %s --help: %w", strings.Join(words, " "), err)
	}
	return string(out), nil
}

// subcommands lists what a help text calls the commands, without those that every program has.
func subcommands(text string) []string {
	_, list, found := strings.Cut(text, "Available Commands:\n")
	if !found {
		return nil
	}
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for line := range strings.Lines(list) {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "completion" && words[0] != "help" {
			names = append(names, words[0])
		}
	}
	return names
}
