"""Threads of the linear algebra library, and of several callers of parallel kernels.

The matrices here are small or slender. BLAS shares them out badly among threads, and its threads
wait by spinning: on a machine that has anything else to do, two of them were measured to be 20
times slower than one. So the engine keeps BLAS to one thread and runs side by side itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

_kernels = Lock()


@cache
def _controller() -> ThreadpoolController:
    # Looking the libraries up takes milliseconds, so it is done once, after NumPy was imported.
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep BLAS to one thread for the length of a ``with`` block."""
    limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limited


def one_at_a_time() -> AbstractContextManager[Any]:
    """Keep parallel kernels that several Python threads call apart, where they must not meet.

    Without OpenMP (no libgomp on the system, as in slim containers) Numba has a scheduler of its
    own, which ends the process when two threads enter it.
    """
    import numba

    try:
        layer: str = numba.threading_layer()  # type: ignore[attr-defined]
        return _kernels if layer == "workqueue" else nullcontext()
    except ValueError:  # Not known before the first parallel kernel has run.
        return _kernels
