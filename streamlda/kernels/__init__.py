"""Numba kernels: plain arrays in, plain arrays out, no Python objects inside.

A kernel is a function under `kernel` or `parallel_kernel`. Its annotations, kept as text by
``from __future__ import annotations``, are its one signature: the names of types below, of
read-only inputs and then of outputs, all contiguous. It is compiled when first called, or loaded
from a file of machine code: importing a module of kernels costs nothing. The compiler's flags are
fixed in one place: NumPy error model, no fastmath (it deletes NaN guards and reorders sums), lock
of the interpreter released. A kernel allocates nothing that grows with the stream, and may call
other kernels.

Each output cell of a parallel kernel is written by one iteration and summed in one order: the
result is the same to the last bit for every number of threads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache, update_wrapper
from threading import RLock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamlda.kernels.machine_code import get_parameters, load
from streamlda.utils.threads import run_pieces

#: Below this a second thread is not worth waking.
FEW_OPERATIONS = 400_000

#: Read-only inputs, and scalars beside int and float.
F64_1D: TypeAlias = NDArray[np.float64]
F64_2D: TypeAlias = NDArray[np.float64]
F64_3D: TypeAlias = NDArray[np.float64]
F32_1D: TypeAlias = NDArray[np.float32]
F32_2D: TypeAlias = NDArray[np.float32]
I64_1D: TypeAlias = NDArray[np.int64]
I32_1D: TypeAlias = NDArray[np.int32]
I16_1D: TypeAlias = NDArray[np.int16]
I16_2D: TypeAlias = NDArray[np.int16]
U8_1D: TypeAlias = NDArray[np.uint8]
I64: TypeAlias = Any
U64: TypeAlias = Any
U8: TypeAlias = Any
F32: TypeAlias = Any

#: Writable outputs.
OUT_F64_1D: TypeAlias = NDArray[np.float64]
OUT_F64_2D: TypeAlias = NDArray[np.float64]
OUT_F64_3D: TypeAlias = NDArray[np.float64]
OUT_F32_2D: TypeAlias = NDArray[np.float32]
OUT_I64_1D: TypeAlias = NDArray[np.int64]
OUT_I64_2D: TypeAlias = NDArray[np.int64]
OUT_I32_1D: TypeAlias = NDArray[np.int32]
OUT_I32_2D: TypeAlias = NDArray[np.int32]
OUT_I16_1D: TypeAlias = NDArray[np.int16]
OUT_I16_2D: TypeAlias = NDArray[np.int16]
OUT_U8_1D: TypeAlias = NDArray[np.uint8]

_kernels: list[Kernel] = []
_compiling = RLock()
# A child forked in the middle would wait for a thread that it does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_compiling.acquire,
        after_in_parent=_compiling.release,
        after_in_child=_compiling.release,
    )


class Kernel:
    """A function that is compiled when it is first called, from here or from another kernel."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._compiled: Any = None
        self._jitted: Any = None
        _kernels.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Compute."""
        return self.code(*arguments)

    @property
    def code(self) -> Any:
        """The machine code, or the plain function where ``NUMBA_DISABLE_JIT`` is set."""
        if self._compiled is None:
            with _compiling:
                if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
                    self._compiled = self.py_func
                else:
                    self._compiled = self._compiled or load(
                        self.py_func, lambda: self.dispatcher, _say_compiling
                    )
        return self._compiled

    @property
    def dispatcher(self) -> Any:
        """Numba's function."""
        with _compiling:
            self._jitted = self._jitted or _jit(self.py_func)
        return self._jitted

    @property
    def _numba_type_(self) -> Any:
        """Type that Numba gives this object where another kernel names it."""
        return self.dispatcher._numba_type_


class ParallelKernel(Kernel):
    """A kernel over a range: the function's first two arguments, which callers leave out.

    `extent` tells from the other arguments the end of the range, which begins at 0, and the
    operations of all iterations together.
    """

    def __init__(
        self, function: Callable[..., Any], extent: Callable[..., tuple[int, int]]
    ) -> None:
        super().__init__(function)
        self._extent = extent

    def __call__(self, *arguments: Any) -> None:
        """Compute the whole range; a part of it from another kernel, where none is compiled."""
        if len(arguments) == self.py_func.__code__.co_argcount:
            self.py_func(*arguments)
            return
        iterations, operations = self._extent(*arguments)
        if operations < FEW_OPERATIONS:
            self.code(0, iterations, *arguments)
        else:
            run_pieces(self._bind(arguments), iterations)

    def _bind(self, arguments: tuple[Any, ...]) -> Callable[[int, int], Any]:
        compiled = self.code
        if compiled is not self.py_func:
            bound: Callable[[int, int], Any] = compiled.bind(*arguments)
            return bound
        return lambda first, last: compiled(first, last, *arguments)


#: Makes a kernel of a function that is annotated with the types above.
kernel = Kernel


def parallel_kernel(
    extent: Callable[..., tuple[int, int]],
) -> Callable[[Callable[..., Any]], ParallelKernel]:
    """Return the decorator that makes a parallel kernel, run on all threads if it is worth it."""
    return lambda function: ParallelKernel(function, extent)


def load_kernels() -> None:
    """Load or compile all kernels of the modules imported so far: before a fork, or a clock."""
    for each in _kernels:
        _ = each.code


@cache
def _say_compiling() -> None:
    """Tell a person, once in a process, why the first fit after an install takes longer."""
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        print("streamlda: compiling kernels, once after an install", file=sys.stderr, flush=True)


def _jit(function: Callable[..., Any]) -> Any:
    """Return Numba's function, for the one signature, called from other such functions alone."""
    import numba
    from numba.core.compiler import Compiler

    class Bare(Compiler):
        """No wrappers; arrays of one call never overlap, so that loops need no check of that."""

        def define_pipelines(self) -> Any:
            self.state.flags.noalias = True
            self.state.flags.no_cfunc_wrapper = True
            self.state.flags.no_cpython_wrapper = True
            return super().define_pipelines()  # type: ignore[no-untyped-call]

    inputs, returned = get_parameters(function)
    signature = returned.to_numba()(*(each.to_numba() for each in inputs))
    return numba.njit(
        signature, error_model="numpy", fastmath=False, nogil=True, pipeline_class=Bare
    )(function)
