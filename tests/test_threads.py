"""Pieces of a loop on several threads: all of it once, whoever calls, and what the limits are."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from streamlda.utils import threads
from streamlda.utils.threads import limit_threads, run_pieces, thread_count


def count_runs(iterations):
    found = np.zeros(iterations, dtype=np.int64)

    def touch(first, last):
        found[first:last] += 1

    run_pieces(touch, iterations)
    return found


@pytest.mark.parametrize("count", [1, 3])
def test_each_iteration_is_run_once(count):
    with limit_threads(count):
        for iterations in (0, 1, 2, 5, 28, 29, 1000):
            assert count_runs(iterations).tolist() == [1] * iterations


def test_threads_work_at_the_same_time_and_the_caller_is_one_of_them():
    together, seen = threading.Barrier(3, timeout=60), set()

    def meet(first, last):
        if first < 3:
            together.wait()
            seen.add(threading.get_ident())

    with limit_threads(3):
        run_pieces(meet, 12)
    assert len(seen) == 3
    assert threading.get_ident() in seen


@pytest.mark.parametrize("callers_own", [True, False])
def test_an_error_of_a_piece_is_raised_when_no_thread_is_at_work(callers_own):
    caller, working = threading.get_ident(), []
    together = threading.Barrier(2, timeout=60)

    def fail(first, last):
        if first < 2:
            together.wait()
            if (threading.get_ident() == caller) is callers_own:
                raise KeyError(first)
        working.append(first)
        working.remove(first)

    with limit_threads(2), pytest.raises(KeyError):
        run_pieces(fail, 8)
    assert working == []


FORK = """
import os
from tests.test_threads import limit_threads, count_runs

with limit_threads(3):
    assert count_runs(100).tolist() == [1] * 100
    child = os.fork()
    assert count_runs(100).tolist() == [1] * 100
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_forked_child_makes_threads_of_its_own():
    # Later versions of Python warn of forks beside threads.
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    subprocess.run(command, cwd=Path(__file__).parents[1], check=True, timeout=300)


def test_a_limit_is_that_of_one_thread_for_a_while():
    before = thread_count()
    with limit_threads(3), ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyError), limit_threads(1):
            raise KeyError(thread_count())
        assert thread_count() == 3
        assert pool.submit(thread_count).result() == before
    assert thread_count() == before


@pytest.mark.parametrize(
    ("wanted", "count"), [("2", 2), ("64", 3), ("0", 1), ("many", 3), (None, 3)]
)
def test_threads_are_as_many_as_processors_or_fewer_if_the_environment_says_so(
    wanted, count, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 4, 5}, raising=False)
    monkeypatch.delenv("NUMBA_NUM_THREADS")
    if wanted is not None:
        monkeypatch.setenv("NUMBA_NUM_THREADS", wanted)
    assert threads._usable.__wrapped__() == count
