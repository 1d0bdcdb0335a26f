# Everything a checkout needs. Only make and Python 3.11 or newer are assumed: the rest goes into
# .venv/, once, and again when pyproject.toml changes.

PYTHON ?= python3
RUN := .venv/bin/python -m
PIP := $(RUN) pip --disable-pip-version-check -qq

# The tests start many processes: without compiled modules each would read the sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check fmt bench bench-cache clients fuzz envelopes perturb perturb-servers \
  stop-words best cases matrix mutations crash real-servers clean

help: ## list these targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: .venv/lab ## show what a tool change costs, ours beside rebinding; no key
	@.venv/bin/addendum demo

test: .venv/dev ## run the tests, three at once: many of them wait
	$(RUN) pytest -n 3 --dist worksteal

check: .venv/dev ## what CI runs: format, lint, types, imports, words, tests
	$(RUN) ruff format --check
	$(RUN) ruff check --quiet
	$(RUN) pyright
	.venv/bin/python .venv/bin/lint-imports
	.venv/bin/python scripts/check_words.py
	.venv/bin/python scripts/check_imports.py > /dev/null
	.venv/bin/python scripts/check_names.py
	.venv/bin/python scripts/check_cases.py > /dev/null
	.venv/bin/python scripts/check_requirements.py
	$(RUN) pytest -n 3 --dist worksteal

fmt: .venv/dev ## format the code and mend what the linter can mend
	$(RUN) ruff format
	$(RUN) ruff check --fix

bench: .venv/dev ## run all measurements in bench/, the vendors' SDKs beside ours
	@for file in bench/[!_]*.py; do echo "== $$file"; .venv/bin/python "$$file" || exit 1; done

bench-cache: .venv/dev ## other frameworks on g2 beside ours, hand-made and rebinding
	@.venv/bin/python bench/peers/run.py

clients: .venv/dev ## other people's clients alone and through (minutes)
	@.venv/bin/python bench/peers/clients.py

fuzz: .venv/dev ## 20,000 random histories against every rule (hours)
	ADDENDUM_EXAMPLES=20000 $(RUN) pytest tests/property --timeout=86400

envelopes: .venv/dev ## throw 1,000,000 random envelopes at the dispatcher (30 min)
	@$(RUN) scripts.envelopes --count 1000000

perturb: .venv/dev ## change one thing in each of 1,000,000 streams (30 min)
	@$(RUN) scripts.perturb --count 1000000

stop-words: .venv/dev ## list how answers end by the vendors' types
	@$(RUN) scripts.stop_words

best: .venv/dev ## every way beside `auto`, on every scenario and route (5 min)
	@$(RUN) scripts.best_way

cases: .venv/dev ## list which test covers which case; none missing or doubled
	@.venv/bin/python scripts/check_cases.py

matrix: .venv/dev ## every scenario and restart on every route (minutes)
	@.venv/bin/python scripts/every_run.py
	ADDENDUM_EVERY=1 $(RUN) pytest -n 2 tests/wire/test_vendor_types.py tests/agent/test_restarts.py \
	  tests/tools/test_mcp_hostile.py tests/tools/test_mcp_groups.py tests/agent/test_shapes.py

mutations: .venv/dev ## break fold, projections and marks; each must turn a test red
	@.venv/bin/python scripts/mutations.py

crash: .venv/dev ## kill a talking session 500 times; nothing is lost (minutes)
	@$(RUN) scripts.crash --kills 500

real-servers: .venv/dev ## restart MCP servers of other SDKs; network, npm (minutes)
	@$(RUN) scripts.real_servers

perturb-servers: .venv/dev ## change one thing in each of 1,000,000 answers (10 min)
	ADDENDUM_PERTURBED=1000000 $(RUN) pytest tests/tools/test_mcp_perturbed.py --timeout=7200

clean: ## remove .venv/ and everything that the other targets made
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A moved or copied checkout would go on running the sources of the old place: install again.
ifneq ($(shell cat .venv/made 2>/dev/null),$(CURDIR))
.PHONY: .venv/made
endif

.venv/made:
	@found=$$("$(PYTHON)" -c 'import sys; print("Python %d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))' 2>/dev/null) \
	  || { echo "addendum needs Python 3.11 or newer, but $(PYTHON) is $${found:-missing}; name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Making .venv/"
	@"$(PYTHON)" -m venv .venv
	@echo "$(CURDIR)" > $@

# The web page comes along, so that all of the README runs. The real engine has no wheel for every
# machine; the demo then says so in a line.
.venv/lab: .venv/made pyproject.toml
	@echo "Installing what the demo and the web page need (once)"
	@$(PIP) install --editable '.[viewer,engine]' 2>/dev/null || $(PIP) install --editable '.[viewer]'
	@touch $@

# Dependency groups need pip 25.1; the pip that comes with Python is often older.
.venv/dev: .venv/made pyproject.toml
	@echo "Installing what development needs (once)"
	@$(PIP) install 'pip>=25.1'
	@$(PIP) install --editable '.[viewer,engine]' --group dev
	@touch $@ .venv/lab
