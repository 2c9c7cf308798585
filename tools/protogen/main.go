// Command protogen compiles the .proto files named on its command line and hands
// them to the Go generators.
//
//	protogen -plugins DIR FILE.proto…
//
// It must run at the repository's root; each file's output is written beside it.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	"aether.io/aether/tools/internal/protofile"
)

func main() {
	plugins := flag.String("plugins", "", "directory of protoc-gen-go and protoc-gen-go-grpc")
	flag.Parse()
	if err := run(context.Background(), *plugins, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, plugins string, files []string) error {
	compiled, err := protofile.Compile(ctx, files...)
	if err != nil {
		return err
	}
	req := &pluginpb.CodeGeneratorRequest{FileToGenerate: files, Parameter: proto.String("paths=source_relative")}
	seen := map[string]bool{}
	for _, f := range compiled {
		appendFile(req, f, seen)
	}
	for _, name := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := generate(ctx, filepath.Join(plugins, name), req); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// appendFile adds f after everything it imports, as the plugin protocol wants it.
func appendFile(req *pluginpb.CodeGeneratorRequest, f protoreflect.FileDescriptor, seen map[string]bool) {
	if seen[f.Path()] {
		return
	}
	seen[f.Path()] = true
	for i := range f.Imports().Len() {
		appendFile(req, f.Imports().Get(i).FileDescriptor, seen)
	}
	req.ProtoFile = append(req.ProtoFile, descriptor(f))
}

// descriptor keeps the comments, which become the generated code's docs.
func descriptor(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if r, ok := f.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}); ok {
		return r.FileDescriptorProto()
	}
	return protodesc.ToFileDescriptorProto(f)
}

func generate(ctx context.Context, plugin string, req *pluginpb.CodeGeneratorRequest) error {
	in, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return err
	}
	if resp.Error != nil {
		return fmt.Errorf("%s", resp.GetError())
	}
	for _, f := range resp.GetFile() {
		if err := os.WriteFile(f.GetName(), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
