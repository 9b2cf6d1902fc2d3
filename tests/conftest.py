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

#: Tests that share a broker, a cluster or a browser, where `--dist loadgroup` spreads them.
SHARED = {
    "broker": r"kafka/|service/test_(kafka_daemon|sharing|inference)|cli/test_doctor",
    "cluster": "scaleout/",
    "browser": "(report|service)/test_page",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give tests that share something to one worker, and all others one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid) or nodeid

    return Sharing(config, log) if config.option.dist == "loadgroup" else None


def group_of(nodeid):
    found = (what for what, tests in SHARED.items() if re.match(f"tests/({tests})", nodeid))
    return next(found, None)


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


def pytest_collection_modifyitems(items):
    for item in items:
        for part in item.path.relative_to(TESTS).with_suffix("").parts:
            if part in MARKERS:
                item.add_marker(MARKERS[part])
    # Long ones first, so that no worker is left alone with them.
    items.sort(key=place_of)


def place_of(item):
    parts = item.path.relative_to(TESTS).parts
    place = FIRST.index(parts[0]) if parts[0] in FIRST else len(FIRST)
    return group_of(item.nodeid) != "broker", place


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
