// Package dossier reads manifests once, for an analysis: files, folders of files, a stream, or
// objects as an API server lists them. Documents come out with everything that is wrong with
// each and with the line that it is at. It follows nothing and keeps nothing: that is for the
// source which serves manifests, and reads them by the same decoder.
package dossier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/source/manifest"
	"aether.io/aether/internal/source/material"
	"aether.io/aether/internal/source/tree"
)

// Stdin is the name that stands for the standard input.
const Stdin = "-"

// Reader reads documents.
type Reader struct {
	decoder *manifest.Decoder
	stdin   io.Reader
}

// New compiles nothing yet. crd.ErrMissing if the binary lacks the Gateway API's definitions.
func New(stdin io.Reader) (*Reader, error) {
	v, err := crd.New()
	if err != nil {
		return nil, err
	}
	return &Reader{decoder: manifest.NewDecoder(v), stdin: stdin}, nil
}

// Read reads what is named: files, folders with all below them that standalone mode would read,
// and Stdin. What is named and cannot be opened is an error; a file whose content is wrong is a
// document that says so.
func (r *Reader) Read(ctx context.Context, names []string) ([]analyze.Document, error) {
	var out []analyze.Document
	for _, name := range names {
		paths, err := files(name)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			docs, err := r.file(ctx, p)
			if err != nil {
				return nil, err
			}
			out = append(out, docs...)
		}
	}
	return out, nil
}

// files is a file itself, and of a folder those below it, in the order of their paths.
func files(name string) ([]string, error) {
	if name == Stdin {
		return []string{name}, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var out []string
	err = filepath.WalkDir(name, func(p string, d fs.DirEntry, err error) error {
		hidden := p != name && strings.HasPrefix(d.Name(), ".")
		switch {
		case err != nil:
			return err
		case hidden && d.IsDir():
			return filepath.SkipDir
		case hidden || d.IsDir():
		case slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(p))):
			out = append(out, p)
		}
		return nil
	})
	return out, err
}

func (r *Reader) file(ctx context.Context, name string) ([]analyze.Document, error) {
	in := r.stdin
	if name != Stdin {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, tree.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > tree.MaxFile {
		return nil, fmt.Errorf("read %s: has more than the %d bytes that are read", name, tree.MaxFile)
	}
	parse := manifest.Parse
	if strings.EqualFold(filepath.Ext(name), ".json") {
		parse = manifest.ParseJSON
	}
	docs, err := parse(data)
	if errors.Is(err, manifest.ErrEmpty) {
		return nil, nil // it holds nothing that could be wrong
	}
	where := &outline{text: data}
	if syntax, is := errors.AsType[*manifest.SyntaxError](err); is {
		return []analyze.Document{{
			File: name, Line: where.broken(syntax),
			Wrong: []analyze.Wrong{{Message: syntax.Err.Error(), Refused: true}},
		}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	out := make([]analyze.Document, 0, len(docs))
	for i := range docs {
		d := r.decode(ctx, &docs[i])
		d.File, d.Line = name, where.of(docs[i].Number, docs[i].Key)
		out = append(out, d)
	}
	return out, nil
}

// decode reads one document as standalone mode would take it.
func (r *Reader) decode(ctx context.Context, doc *manifest.Document) analyze.Document {
	d := analyze.Document{Key: doc.Key}
	found := doc.Findings
	if doc.Key.Kind != "" {
		a := r.decoder.Decode(ctx, doc, nil)
		d.Object, found = a.Object, a.Findings
		if a.Object != nil {
			if why := material.Problem(a.Object); why != "" {
				d.Object = nil
				found = append(found, manifest.Finding{Severity: manifest.Refused, Path: "data", Message: why})
			}
		}
	}
	for _, f := range found {
		d.Wrong = append(d.Wrong, analyze.Wrong{
			Path: f.Path, Message: f.Message, Unknown: f.Unknown,
			Refused: f.Severity == manifest.Refused, Ignored: f.Severity == manifest.Ignored,
		})
	}
	return d
}
