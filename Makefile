# Every target does its own set-up; on a fresh machine that takes a minute or two, afterwards nothing.

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin

# Which versions are installed: `pinned` (the ones that are developed with), `lowest` (the least that
# pyproject.toml allows) or `newest`. Another choice needs another .venv: `make clean` first.
DEPENDENCIES ?= pinned
VERSIONS_pinned := -c constraints.txt
VERSIONS_lowest := -c constraints-lowest.txt
VERSIONS_newest := --upgrade
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(VERSIONS_$(DEPENDENCIES))

# Tests start hundreds of processes, each of which would compile the package once more.
unexport PYTHONDONTWRITEBYTECODE

STAMP := .venv/.installed
INPUTS := pyproject.toml constraints.txt constraints-lowest.txt

# More options for pytest, such as `-k name`, or `--randomly-seed=N`, which repeats the order of a run.
TESTS ?=
PYTEST := $(BIN)/python -m pytest

.PHONY: setup demo test test-all test-wheel executors dist slim faults fuzz lint types check format bench performance messages docs site pictures man lowest schema clean

setup: $(STAMP)

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(STAMP): $(INPUTS) | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	touch $@ .venv/.demo

# What writes the fixtures of the tests is large; the demo does without.
.venv/.demo: $(INPUTS) | $(BIN)/python
	$(INSTALL) -e '.[demo]'
	touch $@

demo: .venv/.demo
	$(BIN)/python examples/demo.py

# Where tests marked `faults` count what they have tried, for the table in docs/reliability.md.
COUNTS := .faults
COUNTING := EXAMPLES=random FAULTS_TALLY=$(abspath $(COUNTS))
TABLE := $(BIN)/python -m tests.faults.tally $(COUNTS)

# Tests marked `machine` measure a whole process, so they run alone, after the others. Without TESTS only
# their files are collected. Exit status 5 says that TESTS selects none of them.
MACHINE = $(or $(TESTS),$(shell grep -rl 'mark.machine' tests --include='test_*.py'))

test: $(STAMP)
	$(PYTEST) -n $(JOBS) -m 'not slow and not machine and not faults' $(TESTS)
	$(PYTEST) -m 'machine and not slow and not faults' $(MACHINE) || [ $$? -eq 5 ]

# What every executor promises, by the two that `make test` leaves out; part of test-all.
BY_EXECUTOR := tests/end_to_end/test_executors.py
executors: $(STAMP)
	EXECUTOR=shards $(PYTEST) $(BY_EXECUTOR)
	EXECUTOR=dask $(PYTEST) $(BY_EXECUTOR)

test-all: executors
	rm -rf $(COUNTS)
	$(COUNTING) $(PYTEST) -n $(JOBS) -m 'not machine' $(TESTS)
	$(PYTEST) -m machine $(MACHINE) || [ $$? -eq 5 ]
	$(TABLE)

# The source distribution and the wheel, checked as a package index reads them.
dist: .venv/.release
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/pyroma --min 10 .

.venv/.release: $(INPUTS) | $(BIN)/python
	$(INSTALL) 'build>=1.2' 'pyroma>=5.0' 'twine>=6.0'
	touch $@

# The tests of the last commit on the wheel of `make dist`, in an environment of their own, beside no package.
# Those of the checkout itself are left out.
UNPACKED := build/wheel
OF_CHECKOUTS := --ignore=tests/test_contributing.py --ignore=tests/test_layers.py
test-wheel:
	rm -rf $(UNPACKED)
	mkdir -p $(UNPACKED)
	git archive HEAD | tar -x -C $(UNPACKED)
	rm -r $(UNPACKED)/ckpt_surgery
	$(PYTHON) -m venv $(UNPACKED)/.venv
	$(UNPACKED)/$(INSTALL) "$$(echo dist/*.whl)[test]"
	cd $(UNPACKED) && $(PYTEST) -n $(JOBS) $(OF_CHECKOUTS) $(TESTS)

# The commands in an installation without jax and Orbax, as docs/ci.md makes it.
SLIM := build/slim
slim: $(STAMP)
	rm -rf $(SLIM)
	$(PYTHON) -m venv $(SLIM)
	$(BIN)/python .ci/slim.py > $(SLIM)/requirements.txt
	$(SLIM)/bin/python -m pip install --quiet --disable-pip-version-check $(VERSIONS_$(DEPENDENCIES)) \
		-r $(SLIM)/requirements.txt
	$(SLIM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps .
	SLIM_PYTHON=$(abspath $(SLIM))/bin/python $(PYTEST) -n $(JOBS) tests/test_slim.py $(TESTS)

# The tests that disturb runs, alone; part of test-all.
faults: $(STAMP)
	rm -rf $(COUNTS)
	$(COUNTING) $(PYTEST) -n $(JOBS) -m 'faults or not faults' tests/faults $(TESTS)
	$(TABLE)

# Random damage to the files of every format, and random recipes, for this long in seconds per target.
SECONDS ?= 60
fuzz: $(STAMP)
	EXAMPLES=random FUZZ_SECONDS=$(SECONDS) $(PYTEST) -n $(JOBS) tests/fuzz $(TESTS)

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
bench: $(STAMP)
	$(BIN)/python -m benchmarks.bench --size $(SIZE) $(BENCH)

# docs/performance.md with its pictures, and the table in README.md, from this run and earlier ones.
MEASURED := benchmarks/results/page
performance: $(STAMP)
	$(BIN)/python -m benchmarks.bench --size $(SIZE) --results $(MEASURED) $(BENCH)
	$(BIN)/python -m benchmarks.performance $(MEASURED)

# The wording of all messages, in tests/data/messages, as it is now. Review the difference.
messages: $(STAMP)
	$(BIN)/python -m tests.support.messages

docs: $(STAMP)
	$(BIN)/python .ci/reference.py > docs/reference.md
	$(BIN)/python .ci/json_page.py > docs/json.md
	$(BIN)/python .ci/models.py > docs/models.md

# The documentation as a site, in site/. What mkdocs-material says about its own future is left out.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pictures of the terminal in docs/pictures, from real runs.
pictures: $(STAMP)
	$(BIN)/python .ci/pictures.py docs/pictures

man: $(STAMP)
	$(BIN)/python .ci/man.py build/man

# After a change of a lower bound in pyproject.toml. Needs no installation, as installations need its result.
lowest:
	$(PYTHON) .ci/lowest.py > constraints-lowest.txt.new
	mv constraints-lowest.txt.new constraints-lowest.txt

schema: $(STAMP)
	$(BIN)/ckpt-surgery schema > recipe.schema.json

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .faults recipe.schema.json
