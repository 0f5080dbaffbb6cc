# Needs python3 and make; every target sets up what it uses, once.
PYTHON ?= python3
WORKERS ?= 2

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

.PHONY: demo test test-all lint bench clean

demo: .venv/.runtime
	$(BIN)/tccache demo

test: .venv/.ready .venv/.triton
	$(PYTEST) -m "not slow"

test-all: .venv/.ready .venv/.triton
	$(PYTEST)

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.ready .venv-bench/.ready
	AWS_CLI=$(CURDIR)/.venv-bench/bin/aws $(BIN)/python -m benchmarks

clean:
	rm -rf .venv .venv-bench build dist
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/.runtime: pyproject.toml requirements/torch.txt requirements/runtime.txt
	$(PYTHON) -m venv .venv
	$(PIP) install -r requirements/runtime.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

.venv/.ready: .venv/.runtime requirements/dev.txt
	$(PIP) install -r requirements/dev.txt
	$(PIP) check
	touch $@

# A folder outside sys.path, so that torch does not find Triton; see requirements/triton.txt.
.venv/.triton: requirements/triton.txt | .venv/.runtime
	rm -rf .venv/triton
	$(PIP) install --no-deps --target .venv/triton -r requirements/triton.txt
	touch $@

.venv-bench/.ready: requirements/bench.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip --disable-pip-version-check install -r requirements/bench.txt
	touch $@
