# `make demo` and `make test` are all the set-up there is; everything lands in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
EDITABLE := --config-settings editable_mode=compat
# Test processes: most tests wait for servers, so more than there are cores.
TEST_PROCESSES ?= 4
PYTEST_ARGS ?=

DEMO_EXTRAS := worker,embedded,math
TEST_EXTRAS := $(DEMO_EXTRAS),dashboard,metrics,tools,tokenizer,browser,test
CHECK_EXTRAS := $(TEST_EXTRAS),check

export HF_HUB_OFFLINE := 1
export OMP_NUM_THREADS := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: help demo test check format chaos bench verl clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "rewardpool needs Python 3.11 or newer; say which: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) -m venv failed; on Debian: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 2; }

# A stamp a set of extras: installed again when the metadata changes.
$(VENV)/.demo: setup.cfg pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing rewardpool[$(DEMO_EXTRAS)] into $(VENV)"
	@$(PIP) $(EDITABLE) -e '.[$(DEMO_EXTRAS)]'
	@touch $@

$(VENV)/.test: setup.cfg pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing rewardpool[$(TEST_EXTRAS)] into $(VENV)"
	@$(PIP) $(EDITABLE) -e '.[$(TEST_EXTRAS)]'
	@touch $@ $(VENV)/.demo

$(VENV)/.check: setup.cfg pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing rewardpool[$(CHECK_EXTRAS)] into $(VENV)"
	@$(PIP) $(EDITABLE) -e '.[$(CHECK_EXTRAS)]'
	@touch $@ $(VENV)/.test $(VENV)/.demo

demo: $(VENV)/.demo ## score the example rollouts with two workers on an embedded server
	@$(BIN)/rewardpool demo

test: $(VENV)/.test ## all tests but the slow ones
	@$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal -m 'not chaos' --ignore tests/verl $(PYTEST_ARGS)

check: $(VENV)/.check ## format, lint, types, import contracts, Lua, container files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@if command -v luacheck >/dev/null; then luacheck -q lua; \
	  else echo "luacheck is not installed: the Lua lint was skipped (Debian: lua-check)"; fi
	$(BIN)/hadolint docker/worker.Dockerfile docker/dashboard.Dockerfile
	REDIS_PASSWORD=x DASHBOARD_PASSWORD=x $(BIN)/docker-compose -f docker/compose.yaml config -q
	@if command -v promtool >/dev/null; then \
	    promtool check config docker/prometheus.yml && promtool test rules tests/unit/docker/alerts_test.yml; \
	  else echo "promtool is not installed: the alert rules were not checked (Debian: prometheus)"; fi

format: $(VENV)/.check ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# verl beside the pool: an environment of its own, since the two want other versions of transformers.
VERL := .venv-verl
VERL_PIP := $(VERL)/bin/python -m pip install -q --disable-pip-version-check -c constraints-verl.txt
# What the tested parts of verl import; all that verl names takes twice as long to install.
VERL_NEEDS := accelerate aiohttp cachetools codetiming datasets hydra-core numpy omegaconf peft pillow ray \
	tensordict torchdata TransferQueue transformers uvicorn fastapi math-verify \
	psutil pytest pytest-asyncio pytest-timeout

$(VERL)/.verl: setup.cfg pyproject.toml constraints-verl.txt
	@test -x $(VERL)/bin/python || $(PYTHON) -m venv $(VERL)
	@echo "installing torch and verl into $(VERL)"
	@$(VERL_PIP) torch==2.13.0
	@$(VERL_PIP) --no-deps verl==0.9.1
	@$(VERL_PIP) $(EDITABLE) -e '.[worker,embedded,tools]' $(VERL_NEEDS)
	@touch $@

verl: $(VENV)/.test $(VERL)/.verl ## against the real verl, in an environment of its own
	@REWARDPOOL_PYTHON=$(abspath $(BIN))/python $(VERL)/bin/python -m pytest -m 'not chaos' $(PYTEST_ARGS) \
	  tests/verl tests/unit/verl_client tests/integration/verl_client/test_rate_limited.py

chaos: $(VENV)/.test ## what kills, waits and repeats for long
	@$(BIN)/python -m pytest -m chaos --timeout 1800 $(PYTEST_ARGS)

# -P: a benchmark of the worker is called worker.py too, and must not hide the package.
bench: $(VENV)/.test ## every benchmark, one after the other
	@$(PIP) $(EDITABLE) -e '.[$(TEST_EXTRAS),bench]'
	@for script in bench/[a-z]*.py; do echo "== $$script"; $(BIN)/python -P $$script || exit 1; done

clean: ## remove the environments and what builds leave
	rm -rf $(VENV) .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
