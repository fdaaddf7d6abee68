# Each target sets up as much of .venv as it needs. `make demo` first; `make check test test-rest` is what CI runs.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# Every process of a test imports the library. With this variable set, each of them would compile it again.
unexport PYTHONDONTWRITEBYTECODE

# Tests wait for processes more than they compute, so there are more of them at once than cores.
PARALLEL ?= -n 4 --dist loadfile --no-loadscope-reorder

# What the tests need beside .venv: the first tier, and the other one. They are made side by side.
NEEDED := .node/installed .venv/browser
OTHERS := $(NEEDED) .venv/mcp-1/installed .venv/fastmcp-2/installed .venv/fastmcp-3/installed

.PHONY: demo test test-all test-rest test-again test-long test-pythons test-adopt fuzz soak release-check check bench format reference map site tour screenshots clean

demo: .venv/installed
	$(BIN)/python examples/demo.py

# The first tier, in four minutes: the official suite, the design documents, each public feature once. One file as a
# whole: ARGS=tests/cli/test_call.py.
test: .venv/tested
	$(MAKE) --jobs 3 $(NEEDED)
	$(BIN)/python -m pytest --tier first $(PARALLEL) $(ARGS)

# Everything: each behaviour in every version, transport and store.
test-all: .venv/tested
	$(MAKE) --jobs 3 $(OTHERS)
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

# What `make test` leaves, for CI, which runs both.
test-rest: .venv/tested
	$(MAKE) --jobs 3 $(OTHERS)
	$(BIN)/python -m pytest --tier other $(PARALLEL) $(ARGS)

# RUNS runs of a target beside BUSY busy loops, until one fails: a test that depends on a time is found by it.
RUNS ?= 10
BUSY ?= 2
TARGET ?= test
test-again: .venv/tested
	$(BIN)/python scripts/test_again.py --runs $(RUNS) --busy $(BUSY) $(MAKE) $(TARGET)

# The tests whose sizes show more the longer they run, in full. Before a release.
test-long: .venv/tested
	LONG_TESTS=1 $(BIN)/python -m pytest -m long $(PARALLEL) $(ARGS)

# The fast part of the tests, on each of Python 3.11 to 3.14 that this machine has.
test-pythons:
	$(PYTHON) scripts/test_pythons.py $(ARGS)

# Real servers, unmodified, on each version: their lists, and a call. Those of PyPI are adopted, those of npm are behind
# a gateway. The everything-server of the official SDK passes the official suite behind a gateway as it does without.
# Installs them: some minutes.
test-adopt: .venv/tested .node/installed
	$(BIN)/python -m tests.adoption.real_servers $(ARGS)
	$(BIN)/python -m tests.gateway.real_servers
	$(BIN)/python -m tests.gateway.everything_server

# Random input to everything that reads from the other side, for FUZZ_SECONDS. Failing examples are kept in .fuzz.
FUZZ_SECONDS ?= 600
fuzz: .venv/fuzzed
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(ARGS)

# A service with tasks under kills, stops, outages, full disks, clock jumps, changed tools and two libraries at once, on
# both stores; what its tools did and its callers saw is compared with the store. About twelve minutes; needs the history
# of a hundred commits. ARGS="--seed N" runs it again. Then mixed load with kills, slow and broken clients for
# SOAK_SECONDS: memory, descriptors, threads and files must not grow. Then a hostile crowd: another caller waits at most
# three times as long as without it.
SOAK_SECONDS ?= 300
soak: .venv/tested
	$(BIN)/python -m tests.soak $(ARGS)
	$(BIN)/python -m tests.soak.growing_soak --seconds $(SOAK_SECONDS)
	$(BIN)/python -m tests.hostile.crowd_ratio

# Builds the sdist and the wheel, and tries each in a new environment. Before a release: ARGS="--final --keep dist".
release-check: .venv/release/installed
	.venv/release/bin/python scripts/check_release.py $(ARGS)

check: .venv/checked
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/write_map.py --check
	$(BIN)/python scripts/check_security.py
	$(BIN)/python scripts/check_tests.py

format: .venv/checked
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/installed
	$(BIN)/python -m benchmarks $(ARGS)
	$(BIN)/python scripts/quote_results.py

# Generated files that are kept in the repository: the map of the code in CONTRIBUTING.md, the API reference and the
# page about the design documents, and the picture of the tour in the README.
map:
	$(PYTHON) scripts/write_map.py

reference: .venv/installed
	$(BIN)/python scripts/write_reference.py
	$(BIN)/python scripts/write_seeds.py

tour: .venv/installed
	$(BIN)/python scripts/draw_tour.py

# The pictures of the console in the docs. Needs Chromium.
screenshots: .venv/tested .node/installed
	$(BIN)/python scripts/draw_console.py

site: .venv/sited
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open .site/index.html. The search needs a web server: $(BIN)/python -m http.server --directory .site"

clean:
	rm -rf .venv .venv-* .site .bench .node .fuzz .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --editable .
	touch $@

.venv/checked: .venv/installed requirements/check.txt
	$(PIP) install --requirement requirements/check.txt
	touch $@

.venv/fuzzed: .venv/installed requirements/fuzz.txt requirements/unit.txt
	$(PIP) install --requirement requirements/fuzz.txt
	touch $@

.venv/sited: .venv/installed requirements/site.txt
	$(PIP) install --requirement requirements/site.txt
	touch $@

.venv/tested: .venv/installed requirements/test.txt requirements/unit.txt requirements/site.txt
	$(PIP) install --requirement requirements/test.txt
	touch $@

# Libraries of versions that cannot be installed beside the current ones: the official client that has the tasks of
# 2025-11-25, and the servers of earlier generations that are adopted. The tools that build a release have an
# environment of their own too.
.venv/%/installed: requirements/%.txt | .venv/installed
	$(BIN)/python -m venv --without-pip .venv/$*
	$(PIP) --python .venv/$*/bin/python install --requirement requirements/$*.txt
	touch $@

.venv/browser: scripts/install_browser.py | .venv/installed
	$(BIN)/python scripts/install_browser.py
	touch $@

# The conformance suite, the TypeScript clients and an authorization server are npm packages; Node comes from a PyPI wheel.
.node/installed: .venv/tested requirements/node.txt requirements/node-indirect.txt
	$(BIN)/python scripts/install_node_packages.py
	touch $@
