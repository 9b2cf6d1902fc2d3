"""Numba kernels: plain arrays in, plain arrays out, no Python objects inside.

Every kernel is made by `kernel`, which fixes the compiler flags in one place: explicit signature,
NumPy error model, no fastmath (it deletes NaN guards and reorders sums), GIL released, compiled
code cached on disk. Inputs are read-only and contiguous, outputs come last. A kernel allocates
nothing that grows with the stream.

Parallel kernels split their work so that each output cell is written by one iteration and summed
in one order: the result is the same to the last bit for every number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba
from numba import types

# Read by OpenMP when the first parallel kernel runs. Its threads would otherwise spin between
# kernels and take the cores from the linear algebra (measured: 15 % of a fit on an idle machine,
# far more on a busy one). A user's own setting goes first.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

#: Read-only inputs.
F64_1D = types.Array(types.float64, 1, "C", readonly=True)
F64_2D = types.Array(types.float64, 2, "C", readonly=True)
I32_1D = types.Array(types.int32, 1, "C", readonly=True)
I32_2D = types.Array(types.int32, 2, "C", readonly=True)
I64_1D = types.Array(types.int64, 1, "C", readonly=True)
I64_2D = types.Array(types.int64, 2, "C", readonly=True)
U8_1D = types.Array(types.uint8, 1, "C", readonly=True)

#: Writable outputs.
OUT_F64_1D = types.Array(types.float64, 1, "C")
OUT_F64_2D = types.Array(types.float64, 2, "C")
OUT_F64_3D = types.Array(types.float64, 3, "C")
OUT_I32_1D = types.Array(types.int32, 1, "C")
OUT_I64_1D = types.Array(types.int64, 1, "C")
OUT_I64_2D = types.Array(types.int64, 2, "C")


def kernel(signature: Any, *, parallel: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator that compiles a kernel for one signature with the project's flags."""
    compiled: Callable[[Callable[..., Any]], Any] = numba.njit(
        signature, parallel=parallel, error_model="numpy", fastmath=False, nogil=True, cache=True
    )
    return compiled
