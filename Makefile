# Each target sets up as much of .venv as it needs. `make demo` first; `make check test` is what CI runs.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# Tests wait for processes more than they compute, so there are more of them at once than cores.
PARALLEL ?= -n 4 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-pythons fuzz soak check bench format reference map site tour clean

demo: .venv/installed
	$(BIN)/python examples/demo.py

test: .venv/tested .venv/mcp-1/installed .node/installed
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

# The fast part of the tests, on each of Python 3.11 to 3.14 that this machine has.
test-pythons:
	$(PYTHON) scripts/test_pythons.py $(ARGS)

# Random input to everything that reads from the other side, for FUZZ_SECONDS. Failing examples are kept in .fuzz.
FUZZ_SECONDS ?= 600
fuzz: .venv/fuzzed
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(ARGS)

# A service with 2,000 tasks under kills, stops, outages, clock jumps and two versions at once, on both stores; its
# outside history is compared with the store. About ten minutes. Then mixed load with kills, slow and broken clients for
# SOAK_SECONDS: memory, descriptors, threads and files must not grow. Then a hostile crowd: another caller waits at most
# three times as long as without it.
SOAK_SECONDS ?= 300
soak: .venv/tested
	$(BIN)/python -m tests.soak $(ARGS)
	$(BIN)/python -m tests.soak.growing_soak --seconds $(SOAK_SECONDS)
	$(BIN)/python -m tests.hostile.crowd_ratio

check: .venv/checked
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_lengths.py
	$(BIN)/python scripts/write_map.py --check
	$(BIN)/python scripts/check_security.py

format: .venv/checked
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/installed
	$(BIN)/python -m benchmarks $(ARGS)
	$(BIN)/python scripts/quote_results.py

# Generated files that are kept in the repository: the map of the code in CONTRIBUTING.md, the API reference, and
# the picture of the tour in the README.
map:
	$(PYTHON) scripts/write_map.py

reference: .venv/installed
	$(BIN)/python scripts/write_reference.py

tour: .venv/installed
	$(BIN)/python scripts/draw_tour.py

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

# The official client that has the tasks of 2025-11-25 is of a version that cannot be installed beside the current one.
.venv/mcp-1/installed: requirements/mcp-1.txt | .venv/installed
	$(BIN)/python -m venv --without-pip .venv/mcp-1
	$(PIP) --python .venv/mcp-1/bin/python install --requirement requirements/mcp-1.txt
	touch $@

# The conformance suite, the TypeScript clients and an authorization server are npm packages; Node comes from a PyPI wheel.
.node/installed: .venv/tested requirements/node.txt
	$(BIN)/python scripts/install_node_packages.py
	touch $@
