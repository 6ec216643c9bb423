# The list of commands. `make` alone prints it.
.DEFAULT_GOAL := help
.PHONY: help run test check bench web

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## build the server and start it; ARGS="--listen 127.0.0.1:9000" is passed on
	@scripts/setup run
	@$(MAKE) --no-print-directory web
	cargo build --release -p threadkeep-server --bin threadkeep
	@exec "$${CARGO_TARGET_DIR:-target}/release/threadkeep" serve $(ARGS)

test: ## set up what is missing, then everything continuous integration checks
	@scripts/test

# In CI a Cargo.lock that does not match is an error; elsewhere it is brought up to date.
check: ## format and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(if $(CI),--locked) -- -D warnings

# Turns have a peer to install, and are measured unless something else is named. Streams that are held open need two
# files each.
bench: ## measure the store at growing sizes, turns beside their peers, and files; ARGS=store, turns or files: that alone; ARGS=web: the web app
	@scripts/setup test
ifeq ($(ARGS),web)
	@$(MAKE) --no-print-directory web
	cargo build --release -p threadkeep-server --bin threadkeep
	THREADKEEP_BIN="$${CARGO_TARGET_DIR:-$(CURDIR)/target}/release/threadkeep" npm --prefix web run --silent bench
else
	cargo build --release -p threadkeep-server --bin threadkeep
	cargo build --release -p threadkeep-bench
	ulimit -n "$$(ulimit -Hn)"; scripts/postgres run --durable -- cargo run --release -p threadkeep-bench -- \
		--server "$${CARGO_TARGET_DIR:-target}/release/threadkeep" \
		$(if $(filter turns,$(ARGS))$(if $(filter store files transfer,$(ARGS)),,all),$$(bench/peers/install node)) $(ARGS)
endif

# The web app is part of the server's binary, so it is built first.
web: web/dist/index.html ## build the web app into web/dist

web_sources := $(shell find web/src web/public web/scripts -type f) $(wildcard web/*.html web/*.ts web/package.json)
web/dist/index.html: web/node_modules/.package-lock.json $(web_sources)
	cd web && npm run --silent build

web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci --no-audit --no-fund
