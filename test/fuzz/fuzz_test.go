package fuzz_test

import (
	"encoding/binary"
	"flag"
	"slices"
	"testing"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/test/admit"
)

var (
	firstSeed = flag.Uint64("seed", 1, "seed of the first set of objects")
	sets      = flag.Int("sets", 30, "number of sets of objects, each with the seed after the one before")
)

func seeded(seed uint64) []byte { return binary.BigEndian.AppendUint64(nil, seed) }

// FuzzObjects: whatever is admitted compiles to what Envoy's definitions allow, or to
// conditions, the same in whatever order it comes.
func FuzzObjects(f *testing.F) {
	server, err := admit.New()
	if err != nil {
		f.Fatal(err)
	}
	all := definitions(f)
	for seed := range uint64(2) {
		f.Add(seeded(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects := newGenerator(t, server, all).set(data)
		if err := check(all, objects); err != nil {
			t.Errorf("%v\n%s", err, describe(reduce(objects, func(o []object.Object) bool { return check(all, o) != nil })))
		}
	})
}

// The same without a fuzzer, from seeds: part of every test run.
func TestWhatIsAdmittedCompiles(t *testing.T) {
	server, err := admit.New()
	if err != nil {
		t.Fatal(err)
	}
	all := definitions(t)
	kinds := map[object.Kind]int{}
	for i := range *sets {
		seed := *firstSeed + uint64(i)
		objects := newGenerator(t, server, all).set(seeded(seed))
		for _, o := range objects {
			kinds[admit.Key(o).Kind]++
		}
		if err := check(all, objects); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, describe(reduce(objects, func(o []object.Object) bool { return check(all, o) != nil })))
		}
	}
	// A generator that makes nothing finds nothing.
	for _, k := range []object.Kind{object.Gateway, object.HTTPRoute} {
		if kinds[k] < *sets/2 {
			t.Errorf("of %d sets, %d objects are %ss: %v", *sets, kinds[k], k, kinds)
		}
	}
	t.Logf("%v", kinds)
}

// reduce takes out objects that a finding does not need.
func reduce(objects []object.Object, found func([]object.Object) bool) []object.Object {
	for i := range slices.Backward(objects) {
		less := append(append([]object.Object{}, objects[:i]...), objects[i+1:]...)
		if found(less) {
			objects = less
		}
	}
	return objects
}
