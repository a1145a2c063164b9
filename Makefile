# `make train` and `make test` each install what they need, into a virtual environment of their own.

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0  # what the tests are run with; the package itself takes torch>=2.4

.PHONY: train test benchmark docs

train: $(VENV)/installed-scripts
	$(VENV)/bin/python cleanrl_scripts/ppo_rapid.py $(ARGS)

test: $(VENV)/installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/pytest --numprocesses auto --maxprocesses 4 --dist loadfile

benchmark: $(VENV)/installed-test
	$(VENV)/bin/pytest tests/benchmarks -o python_files='bench_*.py' -o python_functions='bench_*' -s

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
