# Each target installs what it needs into $(VENV).

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0  # the version that the tests run with; the package accepts torch>=2.4
PYTEST = OMP_NUM_THREADS=1 $(VENV)/bin/pytest
PARALLEL = --numprocesses auto --maxprocesses 8 --dist worksteal  # each worker takes about 1 GB

# Compile the native engine once; otherwise each worker of the tests would.
COMPILE = $(VENV)/bin/python -c "import gymnasium as gym, rapid_wrappers.envs; \
	[gym.make_vec(f'rapid/{name}-v0', 1).reset() for name in ('MultiRoom-N2-S4', 'KeyCorridorS3R1')]"

.PHONY: train lint test test-all test-zoo benchmark compare docs

train: $(VENV)/installed-scripts
	$(VENV)/bin/python cleanrl_scripts/ppo_rapid.py $(ARGS)

lint: $(VENV)/installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/codespell
	$(VENV)/bin/mypy

test: lint
	$(COMPILE)
	$(PYTEST) $(PARALLEL)

test-all: lint
	$(COMPILE)
	$(PYTEST) $(PARALLEL) -m "slow or not slow"

test-zoo: $(VENV)/installed-zoo
	$(PYTEST) -m zoo -rs tests/zoo tests/scripts/test_recipes.py

benchmark: $(VENV)/installed-test
	$(VENV)/bin/pytest tests/benchmarks -o python_files='bench_*.py' -o python_functions='bench_*' -s

compare: $(VENV)/installed-test
	$(VENV)/bin/python tests/compare_commits.py $(BEFORE) $(AFTER) --only "$(ONLY)"

docs: $(VENV)/installed-docs
	$(VENV)/bin/sphinx-build -W --keep-going -b html docs docs/_build

$(VENV)/installed-scripts: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install $(TORCH)
	$(VENV)/bin/pip install -e '.[miniworld,mujoco,native,scripts]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed-scripts
	$(VENV)/bin/pip install -e '.[docs]'
	touch $@

$(VENV)/installed-test: $(VENV)/installed-scripts
	$(VENV)/bin/pip install -e '.[test]'
	touch $@

# popgym asks for an old Gymnasium but runs with the current one.
$(VENV)/installed-zoo: $(VENV)/installed-test
	$(VENV)/bin/pip install -e '.[zoo]'
	$(VENV)/bin/pip install cython && $(VENV)/bin/pip install --no-deps popgym mazelib
	touch $@
