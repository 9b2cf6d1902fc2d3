"""Pieces of a loop on several threads: all of it once, whoever calls, and what the limits are."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from streamlda import kernels
from streamlda.kernels.association import project
from streamlda.utils import threads
from streamlda.utils.threads import limit_threads, run_pieces, thread_count


def touched(iterations):
    """Return how often each iteration was run."""
    found = np.zeros(iterations, dtype=np.int64)

    def touch(first, last):
        found[first:last] += 1

    run_pieces(touch, iterations)
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_iteration_is_run_once(count):
    with limit_threads(count):
        for iterations in (0, 1, 2, 5, 28, 29, 1000):
            assert touched(iterations).tolist() == [1] * iterations


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


def test_callers_in_several_threads_and_in_pieces_do_not_wait_for_each_other():
    def nested(first, last):
        for _ in range(first, last):
            assert touched(50).tolist() == [1] * 50

    def call(_):
        with limit_threads(2):
            run_pieces(nested, 40)
            return touched(300).tolist()

    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(call, range(20))) == [[1] * 300] * 20


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
from tests.test_threads import limit_threads, touched

with limit_threads(3):
    assert touched(100).tolist() == [1] * 100
    child = os.fork()
    assert touched(100).tolist() == [1] * 100
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
    ("wanted", "count"), [("1", 1), ("2", 2), ("64", 3), ("0", 1), ("many", 3), ("", 3), (None, 3)]
)
def test_threads_are_as_many_as_processors_or_fewer_if_the_environment_says_so(
    wanted, count, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 4, 5}, raising=False)
    monkeypatch.delenv("NUMBA_NUM_THREADS")
    if wanted is not None:
        monkeypatch.setenv("NUMBA_NUM_THREADS", wanted)
    assert threads._usable.__wrapped__() == count


@pytest.mark.parametrize(("few", "pieces"), [(10**9, 1), (0, 8)])
def test_a_small_task_is_one_piece_in_the_calling_thread(few, pieces, monkeypatch):
    monkeypatch.setattr(kernels, "FEW_OPERATIONS", few)
    calls = []

    def counted(first, last, *arguments):
        calls.append((first, last))

    monkeypatch.setattr(project, "_compiled", counted)
    documents = np.ones(30), np.zeros(30, np.int32), np.arange(31)
    with limit_threads(2):
        project(*documents, np.ones((1, 1)), np.ones((30, 1)))
    assert len(calls) == pieces
    assert sorted(n for first, last in calls for n in range(first, last)) == [*range(30)]
