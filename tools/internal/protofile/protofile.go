// Package protofile compiles .proto files. Imports that no file of ours satisfies come
// from the descriptors that Go packages register, so no schema registry is needed.
package protofile

import (
	"context"

	_ "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate" // registers buf/validate/validate.proto
	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Compile reads the files named, by paths relative to the working directory, with their comments.
func Compile(ctx context.Context, files ...string) (linker.Files, error) {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{},
			protocompile.ResolverFunc(registered),
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	return compiler.Compile(ctx, files...)
}

// registered finds a file among those that the imported Go packages registered.
func registered(path string) (protocompile.SearchResult, error) {
	fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil {
		return protocompile.SearchResult{}, err
	}
	return protocompile.SearchResult{Desc: fd}, nil
}
