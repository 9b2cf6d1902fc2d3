# Needs python3 (3.11 to 3.13) and make, nothing else. Everything is installed into .venv, at the
# exact versions of requirements.lock, with the hashes checked; pip reads your own configuration.
# The tests need Java, Maven and Chromium besides: `make system` installs them where it may.

PYTHON ?=
WORKERS ?= 2

RUN := .venv/bin/python
CANDIDATES := $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11)

.DEFAULT_GOAL := help
.PHONY: help setup system demo demo-kafka test lint soak bench lock clean

help:
	@echo 'make demo        learn topics from a stream on this machine and print them'
	@echo 'make demo-kafka  the same by the daemon: broker, producer, topics and a page, live'
	@echo 'make test        all checks and tests'
	@echo 'make soak        the long tests'
	@echo 'make bench       the benchmarks'
	@echo 'make setup       only install, into .venv; PYTHON=/path/to/python3 picks the interpreter'
	@echo 'make system      install what the tests need besides: Java, Maven, Chromium, a broker'
	@echo 'make lock        choose newer versions of all packages and write requirements.lock'
	@echo 'make clean       remove .venv and everything else that was made here'

# The second call does nothing, until the lock, pyproject.toml or the place of the clone changes.
setup:
	@set -eu; \
	wanted=$$(cksum requirements.lock pyproject.toml; pwd); \
	if [ -x $(RUN) ] && [ "$$(cat .venv/installed 2>/dev/null)" = "$$wanted" ]; then exit 0; fi; \
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
	echo "Installing into .venv with $$found ..."; \
	"$$found" -m venv --clear .venv; \
	$(RUN) -m pip install --quiet --disable-pip-version-check --only-binary :all: \
	  --require-hashes -r requirements.lock; \
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	echo "$$wanted" > .venv/installed

# The second call does nothing. Where it cannot install something, it says what, and goes on.
system: setup
	@$(RUN) -m tests.system
	@$(RUN) -m tests.kafka.choice

demo: setup
	@.venv/bin/streamlda demo

# For SECONDS=60, or until Ctrl-C.
demo-kafka: system
	@$(RUN) -m tests.kafka.demo $(if $(SECONDS),--seconds $(SECONDS))

test: lint system
	$(RUN) -m pytest -n $(WORKERS)
	NUMBA_DISABLE_JIT=1 $(RUN) -m pytest -m 'kernels and not soak' -n $(WORKERS)

lint: setup
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

soak: system
	$(RUN) -m pytest -m 'soak or fuzz' --hypothesis-profile soak -n $(WORKERS)

bench: setup
	$(RUN) -m bench

lock: setup
	$(RUN) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/lock/bin/python -m uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	  --all-extras --group dev --group bench --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links pyproject.toml --output-file requirements.lock

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
