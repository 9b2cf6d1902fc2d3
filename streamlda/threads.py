"""Threads of the linear algebra library.

The matrices here are small or slender. BLAS shares them out badly among threads, and its threads
wait by spinning: on a machine that has anything else to do, two of them were measured to be 20
times slower than one. So the engine keeps BLAS to one thread and runs side by side itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    # Looking the libraries up takes milliseconds, so it is done once, after NumPy was imported.
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep BLAS to one thread for the length of a ``with`` block."""
    limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited
