package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"aether.io/aether/internal/source"
)

// mend is something of which a problem was told, with which nothing is wrong any more: a
// file, or a part of one in which there is more.
type mend struct {
	file    string
	about   string // the object, or the document; empty: the file as a whole
	path    string // of the field, if it is one of several things
	refused bool   // it was not in effect
}

func (m mend) name() string {
	if name := strings.TrimSpace(m.file + " " + m.about); name != "" {
		return name
	}
	return "the directory"
}

// String is what is told of it.
func (m mend) String() string {
	switch {
	case m.path != "":
		return m.name() + ": " + m.path + " is mended"
	case m.about == "" && m.refused:
		return m.name() + " is read again"
	}
	return m.name() + ": nothing is wrong with it any more"
}

// mended lists what is well now, each thing once: a file if nothing is wrong with all of it,
// else an object, else a field. That what is read differs from what is in effect already
// is told with the change, if it does. What a worse problem only hides is not mended: of a
// file that cannot be read now, and of an object of which there is something new, nothing
// is listed.
func mended(before, now, fresh []source.Problem) []mend {
	still, silent := map[mend]bool{}, map[mend]bool{}
	for _, p := range wrong(now) {
		file, object, field := places(p)
		still[file], still[object], still[field] = true, true, true
		if object == file && p.Severity == source.Refused {
			silent[file] = true
		}
		still[refusals(file)] = still[refusals(file)] || p.Severity == source.Refused
	}
	for _, p := range wrong(fresh) {
		_, object, _ := places(p)
		silent[object] = true
	}
	gone := map[mend]bool{} // and whether it was refused
	for _, p := range wrong(before) {
		file, object, field := places(p)
		refused := p.Severity == source.Refused
		switch {
		case !still[file], refused && !still[refusals(file)]:
			gone[file] = gone[file] || refused
		case silent[file] || silent[object]:
		case !still[object]:
			gone[object] = gone[object] || refused
		case !still[field]:
			gone[field] = gone[field] || refused
		}
	}
	out := make([]mend, 0, len(gone))
	for m, refused := range gone {
		m.refused = refused
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b mend) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.about, b.about), cmp.Compare(a.path, b.path))
	})
	return out
}

// places are what a problem is about, the narrower the later.
func places(p source.Problem) (file, object, field mend) {
	file = mend{file: p.File}
	if p.File == "" { // an object that is in no file
		file.about = p.Object
	}
	object = file
	if object.about = p.Object; p.Object == "" && p.Document > 0 {
		object.about = fmt.Sprintf("document %d", p.Document)
	}
	field = object
	field.path = p.Path
	return file, object, field
}

// refusals stands for all of a file that is not in effect.
func refusals(file mend) mend { file.refused = true; return file }

// wrong leaves out documents that are not read, with which nothing is wrong.
func wrong(list []source.Problem) []source.Problem {
	return slices.DeleteFunc(slices.Clone(list), func(p source.Problem) bool { return p.Severity == source.Ignored })
}
