# Needs python3 >= 3.11, git and make. Everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
# Most tests wait for processes: four files at once keep two cores busy. In the order of the folders, which
# has the long stories first, with unit tests among them (tests/support/file_order.py).
WORKERS ?= 4
# Long tests judge how soon something happens, and wait for a third of their time. The longest files first.
LONG_WORKERS ?= 3
LONG_FIRST := tests/unit/ tests/faults/
LONG_TESTS := $(LONG_FIRST) $(filter-out $(LONG_FIRST) tests/__pycache__/,$(wildcard tests/*/)) $(wildcard tests/test_*.py)
NEWEST_PYTEST := $(VENV)/newest-pytest

# Compiled modules are kept even where the environment says otherwise: without them every process that
# a test or the platform starts compiles each of its modules anew.
export PYTHONDONTWRITEBYTECODE :=

UV_INSTALL = "$(BIN)/uv" pip install --quiet --python "$(BIN)/python"
COMPILE = "$(BIN)/uv" pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(LOCK_FLAGS)

# All but `demo`, whose engine has a lock of its own.
EXTRAS := --extra agent --extra cluster --extra keyring --extra mcp --extra server --extra top

WEB := services/gateway/web
# Node from PATH where it is new enough for the tools of the page, else from a package in .venv.
HAS_NODE = node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 19) ? 0 : 1)' 2>/dev/null && command -v npm >/dev/null
NPM = cd "$(WEB)" && PATH="$(abspath $(BIN)):$$PATH" npm --no-update-notifier

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo web dist image site web-test web-lint web-types web-units screenshots test test-long test-kubernetes test-slow test-soak test-newest-pytest mutate check lint types contracts bench bench-gates docs lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

install: $(STAMPS)/dev $(STAMPS)/demo ## Install everything into .venv: runtime, development tools, demo engine

demo: $(STAMPS)/runtime $(STAMPS)/demo ## Start the platform, tune a real model on the CPU, show the results
	@builder=; if $(HAS_NODE); then nice -n 19 $(MAKE) --silent web >"$(VENV)/web.log" 2>&1 & builder=$$!; fi; \
		"$(BIN)/gpusteward" demo; status=$$?; \
		test -z "$$builder" || kill "$$builder" 2>/dev/null; exit $$status

web: $(WEB)/dist/index.html ## Build the web page that the gateway serves

dist: web ## Build wheel and source archive into dist
	@"$(BIN)/python" -m hatchling build --directory "$${DIST:-dist}"

# Of the same files as `gpusteward compose init` hands out where it was installed from a wheel.
IMAGE ?= gpusteward
TARGET ?= image
image: web ## Build the container image, and print its size (IMAGE=name, TARGET=slim)
	@rm -rf build/image && mkdir -p build/image dist
	@"$(BIN)/python" -m hatchling build --target wheel --directory build/image/dist
	@cp requirements.lock requirements-image.lock build/image && cp compose/Containerfile build/image/Dockerfile
	@docker build --tag "$(IMAGE)" --target "$(TARGET)" --build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
		--build-arg SOURCE="$$(git remote get-url origin 2>/dev/null || echo unknown)" $(BUILD_FLAGS) build/image
	@docker run --rm --entrypoint cat "$(IMAGE)" /opt/gpusteward/sbom.cdx.json >dist/sbom.cdx.json
	@echo "$(IMAGE): $$(($$(docker image inspect --format '{{.Size}}' "$(IMAGE)") / 1000000)) MB; its parts are listed in dist/sbom.cdx.json"

web-test: $(STAMPS)/web ## Check and test the web page: prettier, eslint, tsc, vitest
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target web-lint web-types web-units

# Beside each other, since the rules that know types take as long as all else.
web-lint: $(STAMPS)/web
	@$(NPM) run --silent lint

web-types: $(STAMPS)/web
	@$(NPM) run --silent types

web-units: $(STAMPS)/web
	@$(NPM) test --silent

screenshots: install web ## Draw every page of the web page, dark and light, wide and narrow, into build/screenshots
	@"$(BIN)/python" -m tests.support.web.screenshots $(ARGS)

test: install ## Run the tests that need no special hardware (ARGS="-k word" adds pytest options)
	@"$(BIN)/python" -m pytest -m "not long and not kubernetes" --workers $(WORKERS) $(ARGS)

test-long: install $(STAMPS)/tools ## Run the long tests, and every property with many new examples
	@"$(BIN)/python" -m pytest -m "(long or hypothesis) and not kubernetes" --hypothesis-profile=thorough --workers $(LONG_WORKERS) $(ARGS) $(LONG_TESTS)

test-kubernetes: install ## Run the tests on a real Kubernetes control plane, built once by Go
	@"$(BIN)/python" -m tests.support.kubernetes.build
	@"$(BIN)/python" -m pytest -m kubernetes --workers 2 $(ARGS)

test-slow: install $(STAMPS)/tools ## Run the long tests and those on Kubernetes beside each other, which takes less than one after the other
	@"$(BIN)/python" -m pytest -m "long or hypothesis or kubernetes" --hypothesis-profile=thorough --workers $(LONG_WORKERS) $(ARGS) $(LONG_TESTS)

test-soak: export GPUSTEWARD_RANDOM_STEPS ?= 100000
test-soak: export GPUSTEWARD_HISTORY_SEEDS ?= 1,2,3,4,5,6,7,8,9,10
test-soak: export GPUSTEWARD_HISTORY_SECONDS ?= 60
test-soak: export GPUSTEWARD_GENERATED_EXAMPLES ?= 25
test-soak: export GPUSTEWARD_SOAK_SECONDS ?= 600
test-soak: export PATRONI_KILLS ?= 50
test-soak: install $(STAMPS)/tools ## Run every property and what kills, stops and draws at random for hours, before a release
	@"$(BIN)/python" -m pytest -m "long or hypothesis" --hypothesis-profile=soak --timeout=7200 --workers $(LONG_WORKERS) $(ARGS) $(LONG_FIRST)

test-newest-pytest: $(STAMPS)/dev ## Run the tests of our plugin for pytest on its newest release, candidates included
	@"$(BIN)/uv" venv --quiet --clear --python "$(BIN)/python" "$(NEWEST_PYTEST)"
	@"$(BIN)/uv" pip install --quiet --python "$(NEWEST_PYTEST)/bin/python" --refresh-package pytest "pytest>=9.0a0"
	@"$(BIN)/python" -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$$(echo "$(NEWEST_PYTEST)"/lib/python*/site-packages)/others.pth"
	@"$(NEWEST_PYTEST)/bin/python" -m pytest --version
	@"$(NEWEST_PYTEST)/bin/python" -m pytest --quiet -p no:cacheprovider --workers 2 tests/unit/support

mutate: install ## Show which small errors in pure modules no unit test catches (ARGS='"shared.lease*"')
	@"$(BIN)/mutmut" run $(ARGS)
	@"$(BIN)/mutmut" results | { grep -v ': not checked' || true; }

check: $(STAMPS)/dev ## Check style, types, imports, the web page and the documents, two at a time
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types web-lint web-units lint contracts web-types web site

lint: $(STAMPS)/dev ## Check code style, formatting and spelling
	@"$(BIN)/ruff" check
	@"$(BIN)/ruff" format --check
	@"$(BIN)/codespell"

types: $(STAMPS)/dev ## Check types
	@"$(BIN)/mypy"

contracts: $(STAMPS)/dev ## Check which package may import which
	@"$(BIN)/lint-imports" --no-logo

bench: install $(STAMPS)/tools ## Run a benchmark: make bench NAME=main
	@test -n "$(NAME)" || { echo "Which benchmark? For example: make bench NAME=main" >&2; exit 2; }
	@"$(BIN)/python" -m "tests.benchmarks.$(NAME)"

bench-gates: install ## Refuse figures that got worse than accepted, on a quiet machine (ARGS="--record" accepts this run's)
	@"$(BIN)/python" -m tests.benchmarks.gates $(ARGS)

docs: $(STAMPS)/dev ## Write what is generated: commands, settings and task file in docs/reference, rules of the page
	@"$(BIN)/python" -m tests.contract.make_reference

site: $(STAMPS)/site ## Build the documents as a site into build/site; a link that leads nowhere is an error
	@"$(VENV)/site/bin/python" docs/site/build.py build/site "$$("$(BIN)/python" -m hatchling version)"

lock: $(STAMPS)/bootstrap ## Regenerate the lock files (LOCK_FLAGS=--upgrade moves the pins)
	@$(COMPILE) pyproject.toml $(EXTRAS) --output-file requirements.lock
	@$(COMPILE) pyproject.toml $(EXTRAS) --group dev --constraint requirements.lock --output-file requirements-dev.lock
	@$(COMPILE) --group bootstrap --constraint requirements-dev.lock --output-file requirements-bootstrap.lock
	@$(COMPILE) --group image --constraint requirements-bootstrap.lock --output-file requirements-image.lock
	@$(COMPILE) --group demo --no-deps --output-file requirements-demo.lock
	@$(COMPILE) --group web --output-file requirements-web.lock
	@$(COMPILE) --group site --output-file requirements-site.lock
	@$(subst --python-version 3.11,--python-version 3.10,$(COMPILE)) shared/benchmarks/genai_bench/requirements.in \
		--output-file shared/benchmarks/genai_bench/requirements.lock
	@$(COMPILE) --no-deps shared/engines/llamacpp/model.in --output-file shared/engines/llamacpp/model.lock
	@$(COMPILE) shared/benchmarks/aiperf/requirements.in --output-file shared/benchmarks/aiperf/requirements.lock
	@$(COMPILE) shared/benchmarks/aiconfigurator/requirements.in \
		--output-file shared/benchmarks/aiconfigurator/requirements.lock
	@$(COMPILE) tests/support/generated_client/requirements.in \
		--output-file tests/support/generated_client/requirements.lock
	@$(COMPILE) tests/support/patroni/requirements.in --output-file tests/support/patroni/requirements.lock

clean: ## Remove .venv and every cache
	rm -rf "$(VENV)" "$(WEB)/node_modules" "$(WEB)/dist" build dist mutants .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find schemas services shared tests -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# An installation is repeated when its lock is newer than its stamp, and at no other time.
$(STAMPS)/bootstrap: requirements-bootstrap.lock
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "$(PYTHON) is not on PATH: install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "expected Python 3.11 or newer, found $$("$(PYTHON)" -V 2>&1) at $(PYTHON): name another: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot create virtual environments: install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "creating $(VENV) with $$("$(PYTHON)" -V)"
	@"$(PYTHON)" -m venv "$(VENV)" 2>/dev/null || "$(PYTHON)" -m venv --clear "$(VENV)"
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@mkdir -p "$(STAMPS)" && touch "$@"

$(STAMPS)/runtime: requirements.lock pyproject.toml $(STAMPS)/bootstrap
	@echo "installing the runtime"
	@$(UV_INSTALL) --require-hashes -r $<
	@$(UV_INSTALL) --no-deps --no-build-isolation --editable .
	@touch "$@"

$(STAMPS)/dev: requirements-dev.lock $(STAMPS)/runtime
	@echo "installing the development tools"
	@$(UV_INSTALL) --require-hashes -r $<
	@touch "$@"

$(STAMPS)/demo: requirements-demo.lock $(STAMPS)/bootstrap
	@echo "installing the demo engine and its model"
	@$(UV_INSTALL) --require-hashes --no-deps -r $<
	@touch "$@"

$(STAMPS)/node: requirements-web.lock $(STAMPS)/bootstrap
	@$(HAS_NODE) || { echo "installing node"; $(UV_INSTALL) --require-hashes -r $<; }
	@touch "$@"

$(STAMPS)/site: requirements-site.lock $(STAMPS)/bootstrap
	@echo "installing the generator of the site"
	@"$(BIN)/uv" venv --quiet --clear --python "$(BIN)/python" "$(VENV)/site"
	@"$(BIN)/uv" pip install --quiet --python "$(VENV)/site/bin/python" --require-hashes -r $<
	@touch "$@"

$(STAMPS)/web: $(WEB)/package-lock.json $(STAMPS)/node
	@echo "installing the packages of the web page"
	@$(NPM) ci --loglevel error --no-audit --no-fund >/dev/null
	@touch "$@"

$(WEB)/dist/index.html: $(STAMPS)/web $(wildcard $(WEB)/*.* $(WEB)/public/*) $(shell find $(WEB)/src -type f) docs/reference/glossary.md $(wildcard schemas/exported/*.ts)
	@echo "building the web page"
	@$(NPM) run --silent build -- --logLevel warn

# Benchmark tools, the generator of API clients and Patroni have environments of their own; those that tests and measurements use lie in a cache.
test-long test-slow test-soak bench $(STAMPS)/tools: export GPUSTEWARD_TOOLS_DIR ?= $(HOME)/.cache/gpusteward-test-tools
$(STAMPS)/tools: $(wildcard shared/benchmarks/*/requirements.lock) tests/support/generated_client/requirements.lock \
		tests/support/patroni/requirements.lock $(STAMPS)/dev
	@"$(BIN)/gpusteward" bench install
	@"$(BIN)/gpusteward" bench install aiperf
	@"$(BIN)/python" -m tests.support.generated_client.install
	@"$(BIN)/python" -m tests.support.patroni.install
	@"$(BIN)/python" -m tests.support.keycloak.install
	@touch "$@"
