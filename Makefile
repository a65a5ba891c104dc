# Every target does its own set-up: plain python3 and pip are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Environments of heavy packages are shared by all checkouts; the hash of what they hold names them.
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/agentgym-tok/venvs
STOCK_LOCK := requirements/stock.txt
STOCK := $(CACHE)/stock-$(shell sha256sum $(STOCK_LOCK) | cut -c1-16)
RENDERERS_LOCK := requirements/renderers.txt
RENDERERS := $(CACHE)/renderers-$(shell sha256sum $(RENDERERS_LOCK) | cut -c1-16)

TRL := $(CACHE)/trl-1.16.0
# The chat templates that models ship, for the tests of template families.
export AGENTGYM_TOK_TRL ?= $(TRL)/trl/chat_templates

.PHONY: demo test check lint types wheel stock renderers templates test-stock test-renderers test-deep test-gpu bench clean

demo: $(VENV)/.core
	$(BIN)/python examples/demo.py

test: $(VENV)/.dev templates
	$(BIN)/python -m pytest -n auto -m "not deep and not stock"
	$(MAKE) --no-print-directory test-stock

check: lint types wheel

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy agentgym_tok examples
	$(BIN)/pyright --warnings

wheel: $(VENV)/.dev
	PATH="$(abspath $(BIN)):$$PATH" scripts/check_wheel.sh

# The stock ALFWorld engine compiles a planner and pins old packages, so it lives in an environment of its own; it
# borrows this checkout through PYTHONPATH.
test-stock: stock
	PYTHONPATH=$(CURDIR) $(STOCK)/bin/python -m pytest -m stock -p no:cacheprovider tests/envs/alfworld

stock: $(STOCK)/.done

$(STOCK)/.done:
	rm -rf $(STOCK)
	$(PYTHON) -m venv $(STOCK)
	$(STOCK)/bin/python -m pip install --quiet --disable-pip-version-check -r $(STOCK_LOCK)
	touch $@

# Another parser of turns, behind ours; it brings several heavy packages.
test-renderers: renderers templates
	PYTHONPATH=$(CURDIR) $(RENDERERS)/bin/python -m pytest -m deep -p no:cacheprovider tests/chat/dialects/test_renderers_package.py

renderers: $(RENDERERS)/.done

$(RENDERERS)/.done:
	rm -rf $(RENDERERS)
	$(PYTHON) -m venv $(RENDERERS)
	$(RENDERERS)/bin/python -m pip install --quiet --disable-pip-version-check -r $(RENDERERS_LOCK)
	touch $@

templates: $(TRL)/.done

$(TRL)/.done:
	rm -rf $(TRL) && mkdir -p $(TRL)
	$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --dest $(TRL) trl==1.16.0
	cd $(TRL) && $(PYTHON) -m zipfile -e trl-1.16.0-*.whl . && rm trl-1.16.0-*.whl
	touch $@

test-deep: $(VENV)/.dev templates stock
	AGENTGYM_TOK_EXAMPLES=10000 $(BIN)/python -m pytest -n auto tests/chat/test_families.py
	$(BIN)/python -m pytest -m deep
	$(MAKE) --no-print-directory test-stock
	$(MAKE) --no-print-directory test-renderers

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not deep and not stock" tests/policies

bench: $(VENV)/.dev stock
	PYTHONPATH=$(CURDIR) $(STOCK)/bin/python -m agentgym_tok.cli.main bench alfworld --against textworld

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.core: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) -e .
	touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) -e ".[dev]"
	touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
