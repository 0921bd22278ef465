# Two commands: `make run` starts the dashboard, `make test` runs every check.
# Each makes the virtual environment .venv when there is none, and updates it when the requirements changed.
# ARGS are handed on: make run ARGS="--port 8000", make test ARGS="tests/plan -x".

.PHONY: run test

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin

run: .venv/.run-ready
	$(BIN)/python app.py $(ARGS)

test: .venv/.test-ready
	$(BIN)/python -m pytest -m "not gpu" $(ARGS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.venv/.run-ready: requirements.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; install it, or name it: make run PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	touch $@

.venv/.test-ready: .venv/.run-ready pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@
