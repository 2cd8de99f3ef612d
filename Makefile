# Everything a developer runs. `make` alone lists it.
# Needs Rust (with rustfmt and clippy) and make; scripts/deps.sh brings the rest from Debian's packages.

CARGO ?= cargo
# Where the demo and the tests find a Redis: a redis-server on PATH, or TIDEGATE_TEST_REDIS_URL for the tests.
SOAK_SECONDS ?= 180
FUZZ_SECONDS ?= 300
PROTOCOL_SECONDS ?= 3600
PROTOCOL_SEED ?= $(shell date +%s)

.DEFAULT_GOAL := help
.PHONY: help deps build demo test lint fmt doc bench check-protocol soak fuzz test-clients test-docker up down ci

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | while IFS="$$(printf '\t')" read -r name what; do printf '  make %-15s %s\n' "$$name" "$$what"; done

deps: ## redis-server and redis-sentinel, if they are missing (Debian packages)
	@scripts/deps.sh redis-server redis-sentinel

build: ## the binary: target/release/tidegate
	$(CARGO) build --release --locked

demo: deps ## a whole fleet here: Redis, two frontends, three workers, a load that rises and falls
	$(CARGO) run --locked -- demo

test: deps ## all tests, each on its own Redis
	$(CARGO) test --locked

lint: ## format, clippy, scripts: as CI does
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	scripts/lint-lua.sh
	scripts/lint-shell.sh

fmt: ## formats the Rust sources
	$(CARGO) fmt

doc: ## the library's documentation, with warnings as errors
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --locked --no-deps --document-private-items

bench: deps ## the figures that are promised, as ratios of one run
	$(CARGO) bench --locked

check-protocol: deps ## the model and the scripts under random faults, for PROTOCOL_SECONDS=3600 each
	TIDEGATE_PROTOCOL_SECONDS=$(PROTOCOL_SECONDS) TIDEGATE_PROTOCOL_SEED=$(PROTOCOL_SEED) \
		$(CARGO) test --locked --profile search --test it -- protocol:: parity:: --nocapture

soak: deps ## kills, freezes, flushes and config changes on a fleet under load: SOAK_SECONDS=180
	TIDEGATE_SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test --locked --test it -- soak --include-ignored --nocapture

fuzz: deps ## random bytes at every listener and parser: FUZZ_SECONDS=300
	TIDEGATE_FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --locked --test it -- fuzz --include-ignored --nocapture

test-clients: deps ## the official openai and anthropic packages, curl and HAProxy against a fleet
	scripts/deps.sh haproxy curl python3
	$(CARGO) build --locked
	tests/clients/run.sh

test-docker: ## the fleet in containers, end to end
	docker/e2e.sh

up: ## the fleet in containers: http://127.0.0.1:18000
	docker/fleet.sh up

down: ## takes it down
	docker/fleet.sh down

ci: ## what CI runs
	.ci/run
