"""Threads: pieces of one loop side by side, and those of the linear algebra library.

Kernels and NumPy let other Python threads run while they compute. So a loop whose iterations do
not touch each other's results is cut into pieces, which Python threads take in turn: the result
does not depend on the number of threads. There are as many as processors that this process may use,
or ``NUMBA_NUM_THREADS`` if that is smaller. BLAS shares small matrices out badly, and its threads
wait by spinning, so the engine keeps it to one.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from itertools import pairwise
from typing import Any

from threadpoolctl import ThreadpoolController

#: Pieces of a loop for each thread: a thread that is held up leaves its pieces to the others.
_PIECES = 4

_limit: ContextVar[int | None] = ContextVar("limit", default=None)


def thread_count() -> int:
    """Return how many threads a loop of this caller may take."""
    return _limit.get() or _usable()


@contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Give loops of the calling thread `count` threads for the length of a ``with`` block."""
    token = _limit.set(count)
    try:
        yield
    finally:
        _limit.reset(token)


def run_pieces(function: Callable[..., Any], iterations: int, *arguments: Any) -> None:
    """Call ``function(first, last, *arguments)`` for pieces that make up ``range(iterations)``.

    The calling thread does its part. An exception of any piece is raised once no thread is at work.
    """
    threads = min(thread_count(), iterations)
    if threads <= 1:
        function(0, iterations, *arguments)
        return
    pieces = min(threads * _PIECES, iterations)
    bounds = [iterations * piece // pieces for piece in range(pieces + 1)]
    # Taken from by all threads; the next one is handed out under the lock of the interpreter.
    ranges = iter([*pairwise(bounds)])

    def work() -> None:
        for first, last in ranges:
            function(first, last, *arguments)

    pool = _pool(threads - 1)
    # NumPy's error state and the limit on threads are those of the caller.
    helpers = [pool.submit(copy_context().run, work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        # One that has not begun has nothing left to do.
        started = [helper for helper in helpers if not helper.cancel()]
        for helper in started:
            helper.exception()
    for helper in started:
        helper.result()


@cache
def _usable() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    wanted = os.environ.get("NUMBA_NUM_THREADS", "")
    return max(1, min(usable or 1, int(wanted) if wanted.isdecimal() else usable or 1))


@cache
def _pool(helpers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(helpers, thread_name_prefix="streamlda-kernels")


# The threads of a parent are not in its forked child.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep BLAS to one thread for the length of a ``with`` block."""
    limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited
