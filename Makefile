# Two commands do all the set-up by themselves: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two test processes of one thread each: more threads than cores make everything many times slower.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
TEST_WORKERS ?= 2

.PHONY: demo test test-all check format docs-check clean

$(STAMP): setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade -c constraints.txt pip setuptools wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python seqrl/scripts/train.py --config bc.json --overwrite

test: $(STAMP)
	$(PYTEST) -n $(TEST_WORKERS) --dist loadgroup -m "not slow"

test-all: $(STAMP)
	$(PYTEST) -n $(TEST_WORKERS) --dist loadgroup

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(PYTEST) -n $(TEST_WORKERS) tests/unit

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
