"""Settings for all tests: threads, hypothesis profiles, kernels; plugins: brokers, a browser."""

import os
import random
import re
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

# Tests that run in the background of a shell are started to ignore it, and so would be processes
# that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# With more than two threads, and BLAS threads besides, two test workers would get in each other's
# way.
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from hypothesis import HealthCheck, settings  # noqa: E402

from streamlda.guarantee import noise  # noqa: E402

pytest_plugins = ["tests.browser", "tests.kafka.fixtures"]

settings.register_profile(
    "quick",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak", settings.get_profile("quick"), derandomize=False, max_examples=3000, print_blob=True
)
settings.load_profile("quick")


TESTS = Path(__file__).parent

#: Markers of all tests in a folder or a file.
MARKERS = {name: name for name in ("kernels", "papers", "bench")} | {"test_packaging": "packaging"}

#: Folders of tests that take longest, those that wait for others before those that do not.
FIRST = ("kafka", "service", "scaleout", "project", "bench")

#: What is made once for all tests that take a fixture, where `--dist loadgroup` spreads them.
SHARED = {"broker": "broker", "topics": "broker", "cluster": "cluster", "browser": "browser"}


def pytest_ignore_collect(collection_path, config):
    """Leave what `-m` leaves out as a whole: importing it takes seconds of each worker."""
    expression = config.option.markexpr
    marker = MARKERS.get(collection_path.stem)
    if marker and re.fullmatch(rf"not \([^()]*\b{marker}\b[^()]*\)", expression):
        return True
    wanted = re.fullmatch(r"\(?(\w+(?: or \w+)*)\)? and not soak", expression)
    if wanted and collection_path.match("test_*.py"):
        parts = {*collection_path.relative_to(TESTS).with_suffix("").parts}
        found = {MARKERS[part] for part in parts & MARKERS.keys()}
        found |= set(re.findall(r"\bmark\.(\w+)", collection_path.read_text("utf-8")))
        return found.isdisjoint(wanted[1].split(" or ")) or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        for part in item.path.relative_to(TESTS).with_suffix("").parts:
            if part in MARKERS:
                item.add_marker(MARKERS[part])
        if group := group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))
    # Long ones first, so that no worker is left alone with them.
    items.sort(key=place_of)


def group_of(item):
    """Return which tests share what one of them makes; those of a module share its fixtures."""
    made = getattr(item, "_fixtureinfo", None)
    for name, found in made.name2fixturedefs.items() if made else ():
        if name in SHARED:
            return SHARED[name]
        if found[-1].scope == "module":
            return item.path.relative_to(TESTS).as_posix()
    return None


def place_of(item):
    parts = item.path.relative_to(TESTS).parts
    place = FIRST.index(parts[0]) if parts[0] in FIRST else len(FIRST)
    return group_of(item) != "broker", place


@contextmanager
def same_keys():
    """Give `SecureNoise` of this process the same keys in every run; all else of it is as ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "secrets", SimpleNamespace(randbits=random.Random(1).getrandbits))
        yield


@pytest.fixture
def same_noise():
    with same_keys():
        yield


@pytest.fixture(autouse=True)
def fresh_account():
    """Forget the private fits of other tests, which took rows of the same fixtures."""
    module = sys.modules.get("streamlda.private.process_account")
    if module is not None:
        module.ACCOUNT = module.ProcessAccount()
