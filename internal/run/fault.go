package run

// Fault is what is wrong with something that is tried again and again, so that the same is told
// once and not with each try. The zero Fault is nothing.
type Fault struct{ text string }

// Becomes notes how a try ended, and reports whether that is something else than before.
func (f *Fault) Becomes(err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	before := f.text
	f.text = text
	return text != before
}
