# Every target does its own set-up; on a fresh machine that takes a minute or two, afterwards nothing.

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test test-all lint types check format bench docs schema clean

setup: $(STAMP)

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	touch $@ .venv/.demo

# What writes the fixtures of the tests is large; the demo does without.
.venv/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[demo]'
	touch $@

demo: .venv/.demo
	$(BIN)/python examples/demo.py

# TESTS: more options, such as `-k name`, or `--randomly-seed=N`, which repeats the order of a run.
TESTS ?=

test: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) $(TESTS)

test-all: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) -m '' $(TESTS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

SIZE ?= 1GB
BENCH ?=

# BENCH: more options, such as `--only cast --runs 1 --scratch DIR`.
bench: .venv/.bench
	$(BIN)/python -m benchmarks.bench --size $(SIZE) $(BENCH)

.venv/.bench: $(STAMP)
	$(INSTALL) -e '.[bench]'
	touch $@

docs: $(STAMP)
	$(BIN)/python -m ckpt_surgery.language.reference > docs/reference.md

schema: $(STAMP)
	$(BIN)/ckpt-surgery schema > recipe.schema.json

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis recipe.schema.json
