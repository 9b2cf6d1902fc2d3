# Needs python3 (3.11 to 3.13) and make, nothing else. Everything is installed into .venv, at the
# exact versions of requirements.lock (what streamlda runs on) and requirements-dev.lock (what tests
# and benchmarks need besides), with the hashes checked; pip reads your own configuration.
# The tests need Java, Maven and Chromium besides: `make system` installs them where it may.

PYTHON ?=
WORKERS ?= 2

RUN := .venv/bin/python
# Tests start many processes, which read bytecode where it was written.
test test-all soak: export PYTHONDONTWRITEBYTECODE :=
# Few tests at a time to a worker, so that all end together.
SPREAD := -n $(WORKERS) --maxschedchunk 4
CANDIDATES := $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11)

# Debian packages of what is missing; they are asked for once, and where that fails, a line says so.
define INSTALL
@have() { for name; do command -v $$name > /dev/null && return; done; false; }; missing=; \
have java || missing="$$missing default-jre-headless"; \
have mvn || missing="$$missing maven"; \
have chromium chromium-browser google-chrome || missing="$$missing chromium"; \
[ -z "$$missing" ] || { [ ! -e .venv/asked ] && touch .venv/asked && apt-get -q update && \
  DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $$missing; } || \
  echo "Please install what the tests miss (on Debian and Ubuntu:$$missing)."
endef

.DEFAULT_GOAL := help
.PHONY: help base setup system demo demo-kafka docs test test-all lint soak bench lock dist clean

help:
	@echo 'make demo        learn topics of dated news, print them and write a report'
	@echo 'make demo-kafka  the same by the daemon: broker, producer, topics and a page, live'
	@echo 'make docs        the documentation, into build/docs'
	@echo 'make test        checks and tests of all that a change can break, in 4 minutes on 2 idle cores'
	@echo 'make test-all    what that leaves: long tests, papers, benchmarks, packages, no compiler'
	@echo 'make soak        the tests that take hours'
	@echo 'make bench       the benchmarks'
	@echo 'make setup       only install, into .venv; PYTHON=/path/to/python3 picks the interpreter'
	@echo 'make system      install what the tests need besides: Java, Maven, Chromium, a broker'
	@echo 'make lock        choose newer versions of all packages and write both locks'
	@echo 'make dist        what a release publishes, into dist: wheel, sdist, bill of materials'
	@echo 'make clean       remove .venv and everything else that was made here'

base: LOCK := requirements.lock
setup: LOCK := requirements-dev.lock

# The second call does nothing, until a lock, pyproject.toml or the place of the clone changes.
# What `base` installed stays where `setup` adds to it; the other way round, nothing is missing.
base setup:
	@set -eu; \
	state() { cksum $$1 pyproject.toml; pwd; }; \
	had=$$(cat .venv/installed 2>/dev/null || true); \
	[ -x $(RUN) ] || had=; \
	if [ "$$had" = "$$(state $(LOCK))" ] || [ "$$had" = "$$(state requirements-dev.lock)" ]; \
	  then exit 0; fi; \
	found= ; seen= ; \
	for python in $(CANDIDATES); do \
	  version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) \
	    || version=none; \
	  seen="$$seen $$python=$$version"; \
	  case $$version in 3.11|3.12|3.13) found=$$python; break;; esac; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Python must be 3.11, 3.12 or 3.13, found$$seen;" \
	    "install one of them, or name it: make setup PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "Python must come with venv and pip, got python=$$found;" \
	    "install them (on Debian and Ubuntu the package python3-venv)" >&2; exit 1; \
	fi; \
	echo "Installing $(LOCK) into .venv with $$found ..."; \
	[ "$$had" = "$$(state requirements.lock)" ] || "$$found" -m venv --clear .venv; \
	rm -f .venv/installed; \
	$(RUN) -m pip install --quiet --disable-pip-version-check --only-binary :all: \
	  --require-hashes -r $(LOCK); \
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	state $(LOCK) > .venv/installed

system: setup
	$(INSTALL)
	@$(RUN) -m tests.kafka.jars

demo: base
	@.venv/bin/streamlda demo

# For SECONDS=60 from ready, or until Ctrl-C. It runs on the small lock.
demo-kafka: base
	$(INSTALL)
	@$(RUN) -m tests.kafka.jars
	@$(RUN) -m tests.kafka.demo $(if $(SECONDS),--seconds $(SECONDS))

docs: setup
	$(RUN) -m sphinx -W --keep-going -q -c streamlda/docs . build/docs
	@echo 'build/docs/streamlda/docs/index.html'

test: lint system
	$(RUN) -m pytest $(SPREAD)

# Long tests wait for brokers and for ends of connections: one more worker has the processors then.
# One of them has the broker, one the cluster; and the longest tests are begun first.
test-all: system
	$(RUN) -m pytest -m '(long or papers or bench or packaging) and not soak' \
	  -n $$(($(WORKERS) + 1)) --dist loadgroup --no-loadscope-reorder
	NUMBA_DISABLE_JIT=1 $(RUN) -m pytest -m 'kernels and not soak' -n $(WORKERS) \
	  -k 'not test_lazy and not number_of_threads'

lint: setup
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

soak: system
	$(RUN) -m pytest -m 'soak or fuzz' --hypothesis-profile soak -n $(WORKERS)

bench: setup
	$(RUN) -m bench

UV_COMPILE = build/lock/bin/python -m uv pip compile --quiet --universal --python-version 3.11 \
  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links

lock: setup
	$(RUN) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(UV_COMPILE) --upgrade --all-extras --group build --group dev --group docs --group bench pyproject.toml \
	  --output-file requirements-dev.lock
	$(UV_COMPILE) --constraint requirements-dev.lock --extra http --extra kafka --extra registry \
	  --group build pyproject.toml --output-file requirements.lock

# The bill (CycloneDX) names what the wheel was installed with, with licences and who needs whom; the
# hashes are in requirements.lock.
dist: setup
	rm -rf dist
	$(RUN) -m hatchling build
	$(RUN) -m venv --clear build/dist
	build/dist/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	build/dist/bin/python -m pip install --quiet --disable-pip-version-check --no-deps dist/*.whl
	build/dist/bin/python -m pip uninstall --quiet --yes pip setuptools
	$(RUN) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom
	build/lock/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  -o dist/streamlda.cdx.json build/dist/bin/python
	@ls -l dist

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
