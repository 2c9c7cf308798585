// Command crdgen writes the schema of a protobuf message, with the ranges that its
// buf.validate rules give, into the spec of a CustomResourceDefinition. Unknown fields
// stay preserved on every level, so a newer field needs no newer CRD.
//
//	crdgen -proto FILE.proto -message full.Name CRD.yaml
//
// It must run at the repository's root. A rule that has no word in a schema is an
// error, so that no rule is lost in silence.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	"aether.io/aether/tools/internal/protofile"
)

func main() {
	file := flag.String("proto", "", "the .proto file that has the message")
	message := flag.String("message", "", "full name of the message")
	flag.Parse()
	if err := run(context.Background(), *file, *message, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "crdgen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, message, crd string) error {
	files, err := protofile.Compile(ctx, file)
	if err != nil {
		return err
	}
	md, ok := files[0].FindDescriptorByName(protoreflect.FullName(message)).(protoreflect.MessageDescriptor)
	if !ok {
		return fmt.Errorf("%s has no message %q", file, message)
	}
	spec, err := messageSchema(md, comment(md))
	if err != nil {
		return err
	}
	old, err := os.ReadFile(crd)
	if err != nil {
		return err
	}
	var doc map[string]any
	if err := yaml.Unmarshal(old, &doc); err != nil {
		return fmt.Errorf("read %s: %w", crd, err)
	}
	if err := setSpec(doc, spec); err != nil {
		return fmt.Errorf("%s: %w", crd, err)
	}
	out, err := yaml.Marshal(doc)
	if err != nil {
		return err
	}
	return os.WriteFile(crd, append([]byte("---\n"), out...), 0o644)
}

// setSpec replaces the schema of spec in each version of the definition.
func setSpec(doc, spec map[string]any) error {
	top, _ := doc["spec"].(map[string]any)
	versions, _ := top["versions"].([]any)
	for _, v := range versions {
		at, _ := v.(map[string]any)
		for _, key := range []string{"schema", "openAPIV3Schema", "properties"} {
			next, ok := at[key].(map[string]any)
			if !ok {
				return fmt.Errorf("a version has no %s", key)
			}
			at = next
		}
		at["spec"] = spec
	}
	if len(versions) == 0 {
		return fmt.Errorf("no versions")
	}
	return nil
}
