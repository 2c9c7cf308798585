# Aether's build. `make help` lists what there is.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS   += --no-builtin-rules --no-print-directory

GO    ?= go
# The version is stamped below; the go command need not ask the repository, and can't always.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)
# What is fetched or built once for a machine, keyed by version.
CACHE := $(or $(AETHER_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/aether)
# Tools of others, at the versions of tools/go.mod. Built once: the linter takes a minute or two.
TOOLS := $(CACHE)/tools/$(shell { $(GO) env GOVERSION; cat tools/go.mod tools/go.sum; } | sha256sum | cut -c1-16)
# Tools of our own, built with the tree.
OWN   := .build/tools

include tools/versions.env
export AETHER_ENVOY ?= $(CACHE)/envoy/$(ENVOY_VERSION)/envoy

VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION := $(shell git rev-parse HEAD 2>/dev/null)
VERSION_PKG := aether.io/aether/internal/version
LDFLAGS  := -s -w -X $(VERSION_PKG).number=$(VERSION) -X $(VERSION_PKG).revision=$(REVISION) -X main.envoyVersion=$(ENVOY_VERSION)

COMMANDS  := $(notdir $(wildcard cmd/*))
# The Gateway API's definitions, copied from its module: embedded, so everything that compiles needs them.
EMBEDDED  := internal/crd/gateway-api/.from-go-mod
PROTOS    := $(wildcard api/*/v1/*.proto)
GENERATED := $(wildcard api/*/v1/*.pb.go api/*/v1/zz_generated.*.go charts/crds/templates/*.yaml examples/README.md docs/reference/features.md \
             docs/reference/configuration.md docs/reference/commands.md docs/reference/codes.md docs/reference/values.md)
# The tests that need a real Envoy, by name: those of the files named so.
COMPONENT_FILES := $(shell find . -name '*_component_test.go' -not -path './.build/*' -not -path './tools/*')
# The test runner has a directory of its own: tests need none of the other tools.
RUNNER    := $(CACHE)/runner/$(notdir $(TOOLS))
GOTESTSUM := $(RUNNER)/gotestsum --format pkgname --format-hide-empty-pkg --
TESTFLAGS ?=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

.PHONY: build
build: $(EMBEDDED) ## build the programs into bin/
	@mkdir -p bin && echo "building $(addprefix bin/,$(COMMANDS))"
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ $(addprefix ./cmd/,$(COMMANDS))

.PHONY: demo
demo: build envoy ## show the product doing its job (KEEP=1 keeps it running)
	@$(GO) build -o .build/demo ./test/demo
	@.build/demo $(if $(KEEP),-keep)

.PHONY: test
test: lint check-generate demo apiserver-test $(RUNNER) ## everything, as root: lint, generated code, the demo, Kubernetes, all tests with a real Envoy
	@mkdir -p .build/test
	@nice $(MAKE) unit-and-component >.build/test/all.log 2>&1 & beside=$$!; trap 'kill $$beside 2>/dev/null' EXIT; \
	  pods=0; $(MAKE) on-cluster || pods=$$?; \
	  rest=0; wait $$beside || rest=$$?; trap - EXIT; cat .build/test/all.log; exit $$((pods | rest))

.PHONY: unit
unit: $(EMBEDDED) $(RUNNER) ## the tests that need nothing but Go
	$(GOTESTSUM) -race $(TESTFLAGS) ./...

.PHONY: unit-and-component
unit-and-component: $(EMBEDDED) $(RUNNER) # both at once
	$(GOTESTSUM) -race -tags component $(TESTFLAGS) ./...

.PHONY: component
component: build envoy $(RUNNER) ## the tests that need a real Envoy
ifeq ($(COMPONENT_FILES),)
	@echo "no component tests"
else
	$(GOTESTSUM) -race -tags component $(TESTFLAGS) \
	  -run '^($(shell grep -hoE '^func Test[A-Za-z0-9_]+' $(COMPONENT_FILES) | grep -v TestMain | sed 's/^func //' | paste -sd'|'))$$' \
	  $(sort $(dir $(COMPONENT_FILES)))
endif

.PHONY: lint
lint: $(EMBEDDED) $(TOOLS) ## gofumpt, vet and the linters of .golangci.yml
	$(TOOLS)/golangci-lint run ./...
	cd tools && $(TOOLS)/golangci-lint run --config ../.golangci.yml ./...
	cd test/conformance && $(TOOLS)/golangci-lint run --config ../../.golangci.yml ./...

.PHONY: format
format: $(TOOLS) ## format the Go code
	$(TOOLS)/golangci-lint fmt ./...

.PHONY: generate
generate: $(TOOLS) $(OWN) ## generate code and definitions
	$(OWN)/protogen -plugins $(TOOLS) $(PROTOS)
	$(TOOLS)/controller-gen object paths=./api/config/v1
	$(TOOLS)/controller-gen crd:allowDangerousTypes=true paths=./api/config/v1 output:crd:dir=charts/crds/templates
	$(OWN)/crdgen -proto api/config/v1/meshconfig.proto -message aether.config.v1.MeshConfigSpec \
	  charts/crds/templates/config.aether.io_meshconfigs.yaml
	@rm -f $(EMBEDDED)
	@$(MAKE) $(EMBEDDED)
	$(GO) run ./test/features/catalog
	$(OWN)/refgen docs/reference

.PHONY: check-generate
check-generate: ## fail if generated code is not what its sources give (and correct it)
	@mkdir -p .build && sha256sum $(GENERATED) > .build/generated.before
	@$(MAKE) generate
	@$(MAKE) compare-generated

# A call of its own: the list of generated files is read anew.
.PHONY: compare-generated
compare-generated:
	@sha256sum $(GENERATED) > .build/generated.after
	@diff .build/generated.before .build/generated.after || \
	  { echo "generated files were not up to date; they are now: commit them" >&2; exit 1; }

FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: $(EMBEDDED) ## run every fuzz test for FUZZTIME (30s)
	@grep -rlE '^func Fuzz' --include='*_test.go' . | grep -v '^./tools/' | sort | while read -r file; do \
	  grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$$file" | sed 's/^func //' | while read -r name; do \
	    echo "== $$(dirname "$$file") $$name"; \
	    $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"; \
	  done; \
	done

.PHONY: bench
bench: build envoy cluster-programs ## measure, never a pass or a fail (BENCHFLAGS="-only routes"; on the test cluster: "-cluster .build/cluster -only routes,burst,rest")
	@$(GO) build -o .build/bench ./test/bench
	@.build/bench $(BENCHFLAGS)

.PHONY: envoy
envoy: $(AETHER_ENVOY) ## get the pinned Envoy into the cache
	@:

$(CACHE)/envoy/$(ENVOY_VERSION)/envoy:
	@$(MAKE) $(OWN)
	@AETHER_CACHE='$(CACHE)' $(OWN)/fetch-envoy >/dev/null

# The test cluster: test/cluster. What it is made of is built once for a machine.
CLUSTER := .build/cluster-tools/ctl
WITH_SPIRE := $(if $(SPIRE),-spire)

.PHONY: cluster-up
cluster-up: $(CLUSTER) $(if $(filter none,$(CHART)),,build envoy) ## a real Kubernetes with Aether (CHART=none: without; NODES=2; VALUES=file; SPIRE=1)
	@$(CLUSTER) $(WITH_SPIRE) $(if $(NODES),-nodes $(NODES)) up
	@$(if $(filter none,$(CHART)),,$(CLUSTER) $(WITH_SPIRE) -envoy $(AETHER_ENVOY) -values '$(VALUES)' install)

.PHONY: cluster-down
cluster-down: $(CLUSTER) ## remove it with all that is in it
	@$(CLUSTER) down

.PHONY: cluster-load
cluster-load: $(CLUSTER) ## load images into it (IMAGES="OCI archives")
	@$(CLUSTER) load $(IMAGES)

.PHONY: cluster-programs
cluster-programs: $(CLUSTER) ## build what it is made of into the cache (SPIRE=1: that, too)
	@$(CLUSTER) $(WITH_SPIRE) programs >/dev/null

# The tests that need Kubernetes are in files named so: those that make what they need of it, and
# those that need Aether on the cluster of cluster-up. They share one network.
CLUSTER_FILES := $(shell find . -name '*_cluster_test.go' -not -path './.build/*')
PODS_FILES    := $(shell find . -name '*_pods_test.go' -not -path './.build/*')
CLUSTER_TEST  := $(GO) test -count=1 -timeout 30m -tags cluster $(TESTFLAGS)
# Those of the cluster itself see that nothing is left on the machine: nothing may be beside them.
ALONE         := ./test/cluster/ ./test/cluster/machine/ ./test/cluster/network/

.PHONY: cluster-test
cluster-test: apiserver-test pods-and-spire-test ## the tests that need Kubernetes; no cluster may be up

.PHONY: apiserver-test
apiserver-test: cluster-programs envoy $(EMBEDDED) ## those of them that make what they need of it; no cluster may be up
	$(CLUSTER_TEST) -p 1 $(ALONE)
	$(CLUSTER_TEST) -p 2 -parallel 3 -skip '^TestPods' $(filter-out $(ALONE),$(sort $(dir $(CLUSTER_FILES))))

.PHONY: pods-and-spire-test
pods-and-spire-test:
	@$(MAKE) cluster-up
	@$(MAKE) pods-test
	@$(MAKE) spire-test
	@$(MAKE) cluster-down

.PHONY: pods-test
pods-test: ## those of them that need the cluster of cluster-up
	$(CLUSTER_TEST) -p 1 -run '^TestPods' $(sort $(dir $(PODS_FILES)))

# A target of its own: who runs the others need not build SPIRE.
.PHONY: spire-test
spire-test: ## Aether with SPIRE, which the test brings to the cluster of cluster-up and takes away again
	@$(MAKE) cluster-programs SPIRE=1
	$(CLUSTER_TEST) ./test/spire

# A cluster of their own, which is brought up with the release of another revision.
PREVIOUS ?= HEAD~1

.PHONY: chaos
chaos: build envoy cluster-programs ## what Aether runs on taken away under traffic (PREVIOUS=HEAD~1); no cluster may be up
	$(CLUSTER_TEST) -v ./test/chaos -args -previous='$(PREVIOUS)'

RUNS   ?= 2
REPORT ?= test/conformance/report.yaml

.PHONY: conformance
conformance: cluster-up ## the Gateway API's conformance suite on the test cluster, twice (RUNS=1, REPORT=file, TESTS=regexp)
	@$(GO) build -o .build/conform ./test/conform
	@.build/conform -version '$(VERSION)' -runs $(RUNS) -report $(REPORT) -run '$(TESTS)'

# What needs pods, conformance among it. The report that is kept is that of a run of its own.
.PHONY: on-cluster
on-cluster: pods-and-spire-test
	@$(MAKE) conformance RUNS=1 REPORT=.build/conformance/report.yaml
	@$(MAKE) cluster-down

.PHONY: $(CLUSTER)
$(CLUSTER):
	@mkdir -p $(dir $(CLUSTER)) && $(GO) build -o $(CLUSTER) ./test/cluster/ctl
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(dir $(CLUSTER)) ./test/cluster/pause ./test/cluster/probe

.PHONY: clean
clean: ## remove what was built here (the cache stays)
	@if [ -e .build/cluster ]; then $(MAKE) cluster-down; fi
	rm -rf bin .build internal/crd/gateway-api/*.yaml $(EMBEDDED)

# Tools. A directory appears complete or not at all.
$(TOOLS):
	@echo "building tools (once for these versions)"
	@mkdir -p $(dir $(TOOLS)) && tmp=$$(mktemp -d $(dir $(TOOLS))tmp.XXXXXX) && \
	  GOBIN=$$tmp $(GO) -C tools install -trimpath tool && chmod 755 $$tmp && \
	  { mv -T $$tmp $(TOOLS) 2>/dev/null || rm -rf $$tmp; }

$(RUNNER):
	@echo "building the test runner (once for this version)"
	@mkdir -p $(dir $(RUNNER)) && tmp=$$(mktemp -d $(dir $(RUNNER))tmp.XXXXXX) && \
	  GOBIN=$$tmp $(GO) -C tools install -trimpath gotest.tools/gotestsum && chmod 755 $$tmp && \
	  { mv -T $$tmp $(RUNNER) 2>/dev/null || rm -rf $$tmp; }

.PHONY: $(OWN)
$(OWN):
	@mkdir -p $(OWN) && $(GO) -C tools build -o $(CURDIR)/$(OWN)/ ./...

$(EMBEDDED): go.mod
	@cd internal/crd && $(GO) generate . && touch $(notdir $(patsubst %/,%,$(dir $(EMBEDDED))))/$(notdir $(EMBEDDED))
