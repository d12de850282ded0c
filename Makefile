# Two commands do all the set-up by themselves: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two test processes of one thread each: more threads than cores make everything many times slower. A file goes to one
# of them as a whole, so that what its tests share is made once.
TEST_WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_FLAGS)

# Tests of suites with their packages, in an environment of their own that sees the packages of $(VENV):
# make test-suites SUITES="mujoco atari"
SUITES ?= minigrid popgym
SUITES_VENV := build/suites
SUITE_TESTS := tests/unit/envs/test_suites.py tests/unit/envs/test_other_suites.py tests/unit/envs/builtin/test_half_cheetah.py \
	tests/learning/test_pixels.py tests/docs/test_learning.py \
	$(foreach name,03_popgym_suite 07_metaworld 08_atari 10_babyai 12_half_cheetah_vel,'tests/regression/test_examples.py::test_it_trains[$(name).py]')
EMPTY :=
COMMA := ,
SITE := import sysconfig; print(sysconfig.get_paths()['purelib'])

.PHONY: demo test test-slow test-all test-suites fuzz check docs docs-check format clean

$(STAMP): setup.py constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade -c constraints.txt pip setuptools wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python seqrl/scripts/train.py --config bc.json --overwrite

test: $(STAMP)
	$(PYTEST) -m "not slow"

test-slow: $(STAMP)
	$(PYTEST) -m slow

test-all: $(STAMP)
	$(PYTEST)

# Damages files for an hour, and reads them; `make fuzz SECONDS=60 FIRST=5000` for a minute, and other damages.
SECONDS ?= 3600
FIRST ?= 0
fuzz: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --seconds $(SECONDS) --first $(FIRST)

test-suites: $(STAMP)
	$(BIN)/python -m venv --clear $(SUITES_VENV)
	$(BIN)/python -c "$(SITE)" > "$$($(SUITES_VENV)/bin/python -c "$(SITE)")/shared.pth"
	$(SUITES_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(subst $(EMPTY) ,$(COMMA),$(SUITES))]"
	OMP_NUM_THREADS=1 $(SUITES_VENV)/bin/python -m pytest -n $(TEST_WORKERS) --dist loadgroup $(PYTEST_FLAGS) $(SUITE_TESTS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

# The site is in build/site; docs-check also fails on a link that leads nowhere.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

docs-check: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
