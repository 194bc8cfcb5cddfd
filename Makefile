# Every task of the project; `make` alone lists them.
# Tools live in .venv and .tools, results in target and dist; `make clean` removes all four.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(CURDIR)/.tools/bin:$(PATH)
export PYO3_PYTHON := $(CURDIR)/.venv/bin/python

# The binding links only inside an interpreter; pytest tests it.
crates := --workspace --exclude clika-python
nextest := cargo nextest run --cargo-profile checked
loom := RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom
shuttle := RUSTFLAGS='--cfg shuttle' CARGO_TARGET_DIR=target/shuttle

# A promise must hold with one worker, with two, and with one for each core.
cores := $(shell nproc)
other_counts := $(filter-out $(cores),1 2)
rust_promises := test(promise) + binary(~promise)

.PHONY: help setup develop format check test demo bench docs wheel loom asan tsan soak clean

help: ## list the tasks
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: .venv/complete ## install the tools: Debian packages, Python packages, cargo commands

.venv/complete: scripts/setup.sh requirements-dev.txt
	scripts/setup.sh $(PYTHON)
	touch $@

develop: .venv/complete ## build the extension, optimised, into .venv
	maturin develop --release --quiet

format: .venv/complete ## format all code
	cargo fmt --all
	ruff format --quiet
	ruff check --quiet --select I --fix

check: check-rust check-models check-python docs ## formats, lints, licences, types, stubs, documentation

.PHONY: check-rust check-models check-python
check-rust: .venv/complete
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo deny --log-level error --workspace check licenses bans sources

check-models: .venv/complete
	$(loom) cargo clippy -p clika-executor --lib --profile test -- -D warnings
	$(shuttle) cargo clippy -p clika-executor -p clika-runtime --lib --profile test -- -D warnings

check-python: develop
	ruff format --check
	ruff check
	mypy
	stubtest clika_runtime --mypy-config-file pyproject.toml \
		--allowlist scripts/stubtest-allowlist.txt --ignore-unused-allowlist

test: test-rust test-models test-python test-examples ## all tests, the models with small bounds

.PHONY: test-rust test-models test-python test-examples
test-rust: .venv/complete
	CLIKA_WORKERS=$(cores) $(nextest) $(crates)
	for n in $(other_counts); do CLIKA_WORKERS=$$n $(nextest) $(crates) -E '$(rust_promises)'; done
	cargo test --doc --profile checked $(crates)

test-models: .venv/complete
	$(loom) LOOM_MAX_PREEMPTIONS=2 $(nextest) -p clika-executor --lib loom_
	$(shuttle) $(nextest) -p clika-executor -p clika-runtime --lib shuttle_

test-python: develop
	CLIKA_WORKERS=$(cores) pytest
	for n in $(other_counts); do CLIKA_WORKERS=$$n pytest -m "promise and not once"; done

test-examples: develop
	python scripts/run_examples.py

demo: develop ## a photo pipeline on one stream, then on several
	python demo/photo_pipeline.py

bench: develop ## the budgets, side by side with other libraries
	python benches/run.py

docs: develop build-docs ## the documentation site, into target/docs

.PHONY: build-docs
build-docs:
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --quiet
	rm -rf target/docs
	sphinx-build --quiet --fresh-env --fail-on-warning --keep-going -d target/doctrees docs target/docs
	cp -r target/doc target/docs/rust

wheel: .venv/complete ## the wheel, into dist
	pip wheel --quiet --no-deps --wheel-dir dist .

loom: .venv/complete ## the loom models with larger bounds (minutes)
	$(loom) LOOM_MAX_PREEMPTIONS=3 $(nextest) --profile soak -p clika-executor --lib loom_

asan: .venv/complete ## the Rust tests under AddressSanitizer and LeakSanitizer
	scripts/sanitize.sh address

tsan: .venv/complete ## the Rust tests under ThreadSanitizer
	scripts/sanitize.sh thread

soak: develop ## the stress tests for much longer (CLIKA_SOAK=1)
	CLIKA_SOAK=1 $(nextest) --profile soak $(crates)
	CLIKA_SOAK=1 pytest --timeout=3600

clean: ## remove all that the other tasks made
	rm -rf target dist .venv .tools python/clika_runtime/_core*.so
