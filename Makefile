.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: install build ## play what can go wrong with paid work, in about a minute (KEEP=1 leaves it running for the Web UI; SERVER=postgres: docs/compose.md)
	@bin/worker demo $(if $(KEEP),--keep) $(if $(SERVER),--server $(SERVER))

.PHONY: dev
dev: install build ## run everything on this machine until Ctrl-C (ARGS="--fresh" deletes the kept data; more: bin/worker dev --help)
	@bin/worker dev $(ARGS)

.PHONY: build
build: go
	@echo "building (the first time takes minutes)…"
	@go build -v -o bin/ ./worker ./starter

# Go switches to the version that go.mod names by itself, where it may download it; without the message that silence
# would look like a hang.
.PHONY: go
go:
	@command -v go >/dev/null || { echo "Go is missing: install $(GO_NEEDED) or newer from https://go.dev/dl" >&2; exit 1; }
	@GOTOOLCHAIN=local go list -m >/dev/null 2>&1 || echo "fetching $(GO_NEEDED)…"
	@go list -m >/dev/null 2>&1 || { echo "`GOTOOLCHAIN=local go env GOVERSION` is too old: install $(GO_NEEDED) or newer from https://go.dev/dl" >&2; exit 1; }

GO_NEEDED = Go $(shell awk '$$1 == "go" { print $$2 }' go.mod)

# Tools are built once into the ignored folder .cache, each at the version named here.
TOOLS := $(CURDIR)/.cache/bin
GOTESTSUM := $(TOOLS)/gotestsum-1.13.0
GOLANGCI := $(TOOLS)/golangci-lint-2.15.0
WORKFLOWCHECK := $(TOOLS)/workflowcheck-0.6.0
SQLC := $(TOOLS)/sqlc-1.31.1
GOVULNCHECK := $(TOOLS)/govulncheck-1.9.0
STRIPE_MOCK := $(TOOLS)/stripe-mock-0.203.0
$(GOTESTSUM): PACKAGE = gotest.tools/gotestsum@v1.13.0
$(GOLANGCI): PACKAGE = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
$(WORKFLOWCHECK): PACKAGE = go.temporal.io/sdk/contrib/tools/workflowcheck@v0.6.0
$(SQLC): PACKAGE = github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1
$(GOVULNCHECK): PACKAGE = golang.org/x/vuln/cmd/govulncheck@v1.9.0
$(STRIPE_MOCK): PACKAGE = github.com/stripe/stripe-mock@v0.203.0
$(GOTESTSUM) $(GOLANGCI) $(WORKFLOWCHECK) $(SQLC) $(GOVULNCHECK) $(STRIPE_MOCK): | go
	@echo "building $(PACKAGE) (once; it may take minutes)…"
	@mkdir -p $@.build && GOBIN=$@.build go install $(PACKAGE) && mv $@.build/* $@ && rmdir $@.build

# The other mock of Stripe that the tests run against, with all that it needs as the lock file names it. npm writes the
# target last.
STATEFUL_MOCK := $(CURDIR)/.cache/npm/node_modules/.package-lock.json
STATEFUL_MOCK_LOCK := activities/channel/stripe/testdata/stateful-mock/package-lock.json
$(STATEFUL_MOCK): $(STATEFUL_MOCK_LOCK) | install-for-tests
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
		echo "installing stripe-stateful-mock (once)…" && mkdir -p .cache/npm && \
		cp $(<D)/package.json $(<D)/package-lock.json .cache/npm && \
		npm ci --prefix .cache/npm --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null && touch $@; \
	else echo "Node.js or npm is missing: the tests against stripe-stateful-mock are skipped"; fi

# What the example worker in TypeScript needs. Its tests compile it themselves.
TYPESCRIPT := $(CURDIR)/.cache/typescript/node_modules/.package-lock.json
TYPESCRIPT_EXAMPLE := worker/examples/typescript
$(TYPESCRIPT): $(TYPESCRIPT_EXAMPLE)/package-lock.json | install-for-tests
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
		echo "installing the packages of $(TYPESCRIPT_EXAMPLE) (once)…" && mkdir -p .cache/typescript && \
		cp $(<D)/package.json $(<D)/package-lock.json .cache/typescript && \
		npm ci --prefix .cache/typescript --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null && touch $@; \
	else echo "Node.js or npm is missing: the tests of the example in TypeScript are skipped"; fi

.PHONY: typescript
typescript: $(TYPESCRIPT) ## run the example work worker in TypeScript (ARGS="--task-queue words --results FOLDER")
	@cp -R $(TYPESCRIPT_EXAMPLE)/src $(TYPESCRIPT_EXAMPLE)/tsconfig.json .cache/typescript
	@.cache/typescript/node_modules/.bin/tsc --project .cache/typescript
	@exec node .cache/typescript/dist/worker.js $(ARGS)

# What checks the description of the HTTP routes, and asks a door by it.
OPENAPI_TOOLS := $(CURDIR)/.cache/openapi/node_modules/.package-lock.json
OPENAPI_TOOLS_LOCK := starter/api/testdata/openapi-tools/package-lock.json
$(OPENAPI_TOOLS): $(OPENAPI_TOOLS_LOCK) | install-for-tests
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
		echo "installing the checks of the OpenAPI description (once)…" && mkdir -p .cache/openapi && \
		cp $(<D)/package.json $(<D)/package-lock.json .cache/openapi && \
		npm ci --prefix .cache/openapi --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null && touch $@; \
	else echo "Node.js or npm is missing: the checks of the OpenAPI description are skipped"; fi

# Prometheus and promtool, which the tests hold the alert rules against. Debian's package is only unpacked: installed, it would
# start a server, and building them takes far longer.
PROMETHEUS := $(CURDIR)/.cache/prometheus/usr/bin/promtool
$(PROMETHEUS): | install-for-tests
	@if command -v prometheus >/dev/null && command -v promtool >/dev/null; then :; \
	elif command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
		echo "unpacking Debian's prometheus (once)…" && rm -rf .cache/prometheus && mkdir -p .cache/prometheus && cd .cache/prometheus && \
		{ { apt-get download -q prometheus >/dev/null 2>&1 || { apt-get update -q >/dev/null && apt-get download -q prometheus >/dev/null; }; } && \
		dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb && touch $@ || \
		echo "the package manager has no prometheus: the tests of the alert rules are skipped"; }; \
	else echo "prometheus and promtool are missing: the tests of the alert rules are skipped"; fi

.PHONY: prepare
prepare: install-for-tests build $(STRIPE_MOCK) $(STATEFUL_MOCK) $(TYPESCRIPT) $(OPENAPI_TOOLS) $(PROMETHEUS) ## build and install what the tests need
	@bin/worker prepare

.PHONY: install
install:
	@worker/localstack/install.sh

.PHONY: install-for-tests
install-for-tests:
	@worker/localstack/install.sh tests

# The race detector needs a C compiler; where there is none, the tests run without it and say so.
RACE = $(if $(shell command -v gcc || command -v clang),-race,$(info no C compiler: the race detector is off))

.PHONY: test
test: prepare $(GOTESTSUM) ## run every test, with the race detector (the ones that kill servers: make test-faults)
	@echo "compiling and running the tests (the first time takes minutes)…"
	@$(GOTESTSUM) --format pkgname --format-hide-empty-pkg --jsonfile .cache/test.json -- $(RACE) -timeout 15m ./...
	@echo "what the model checker tried (docs/model.md):"
	@sed -nE 's/.*"Output":" *model_test.go:[0-9]+: (.*)\\n".*/  \1/p' .cache/test.json

.PHONY: test-faults
test-faults: prepare $(GOTESTSUM) ## kill workers and stop servers in the middle of jobs, try the Web UI in a browser, and play the demo on a full Temporal server (minutes)
	@echo "building the full Temporal server beside the tests, where there is none yet…"
	@nice -n 19 bin/worker prepare --server postgres >.cache/server.log 2>&1 & building=$$!; \
		trap 'kill $$building 2>/dev/null; wait $$building' EXIT; trap 'exit 1' INT TERM; \
		RECLAIM_FAULTS=1 $(GOTESTSUM) --format testname --hide-summary=skipped -- $(RACE) -count=1 -timeout 25m ./worker/faults/... || exit 1; \
		trap - EXIT
	@bin/worker prepare --server postgres
	@RECLAIM_FAULTS=1 $(GOTESTSUM) --format testname --hide-summary=skipped -- -p 1 -count=1 -timeout 15m ./worker/webui ./worker/deploy

.PHONY: crash
crash: prepare ## cross every story with every crash and print the table (docs/proof.md; 10 to 25 minutes)
	@cd worker/faults && RECLAIM_CRASH=1 go test -count=1 -timeout 45m -run TestCrashMatrix

.PHONY: soak
soak: prepare ## thousands of jobs and refunds under random faults (SEED=n JOBS=5000 REFUNDS=1000; docs/proof.md; 5 to 20 minutes)
	@cd worker/faults && RECLAIM_CRASH=1 SEED=$(SEED) JOBS=$(JOBS) REFUNDS=$(REFUNDS) go test -count=1 -timeout 35m -run 'TestSoak|TestTheShiftedClock'

.PHONY: model
model: install-for-tests ## let spin try every behaviour of the models of jobs and refunds (docs/model.md)
	@activities/model/check.sh

.PHONY: model-tables
model-tables: install-for-tests go ## make the models' tables anew from what the guards do in Postgres
	@RECLAIM_RECORD_MODEL=1 go test -count=1 -run TestTheModelOf ./activities

.PHONY: pictures
pictures: prepare ## take the pictures in docs/pictures anew, of the Web UI in a browser
	@rm -f docs/pictures/*.png
	@RECLAIM_FAULTS=1 RECLAIM_PICTURES=$(CURDIR)/docs/pictures go test -count=1 -timeout 15m -run WebUI ./worker/webui

.PHONY: bench
bench: install build ## measure jobs against plain workflows, and the guards against pgbench (docs/benchmarks.md)
	@bin/worker dev --ephemeral -- sh -c 'bin/starter bench --jobs 2000 && bin/starter bench --guards --jobs 12000 --concurrency 16 && \
		bin/starter bench --door --jobs 800 && bin/starter bench --enqueue'

.PHONY: lint
lint: $(GOLANGCI) $(WORKFLOWCHECK) ## hold the code's rules: vet, linters, import arrows, deterministic workflows
	@$(GOLANGCI) run ./...
	@$(WORKFLOWCHECK) -config .workflowcheck.yaml ./workflows/...

.PHONY: vuln
vuln: $(GOVULNCHECK) ## look the dependencies up in Go's vulnerability database
	@$(GOVULNCHECK) ./...

.PHONY: generate
generate: $(SQLC) ## make the typed SQL anew from schema/queries
	@cd schema && $(SQLC) generate

.PHONY: histories
histories: prepare ## record the workflow histories anew that the tests replay (see workflows/ladder.go)
	@RECLAIM_RECORD_HISTORIES=1 go test -count=1 ./worker/histories

.PHONY: fuzz
fuzz: go ## fuzz each parser for 20 s
	@for package in workflows/contract workflows/contract/codec activities/channel/stripe starter/client starter/api; do \
		for target in `grep -hoE 'func Fuzz[A-Za-z]+' $$package/*_test.go | cut -d' ' -f2`; do \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime 20s ./$$package || exit 1; done; done
