"""Numba kernels: plain arrays in, plain arrays out, no Python objects inside.

A kernel is a function under `kernel` or `parallel_kernel`. Its annotations, kept as text by
``from __future__ import annotations``, are its one signature: the names of types below, of
read-only inputs and then of outputs, all contiguous. It is compiled when first called, or loaded
from Numba's cache on disk: importing a module of kernels costs nothing. The compiler's flags are
fixed in one place: NumPy error model, no fastmath (it deletes NaN guards and reorders sums), lock
of the interpreter released. A kernel allocates nothing that grows with the stream, and may call
other kernels.

Each output cell of a parallel kernel is written by one iteration and summed in one order: the
result is the same to the last bit for every number of threads.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from pathlib import Path
from threading import RLock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
I64_2D: TypeAlias = NDArray[np.int64]
I32_1D: TypeAlias = NDArray[np.int32]
I32_2D: TypeAlias = NDArray[np.int32]
I16_1D: TypeAlias = NDArray[np.int16]
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
OUT_U8_1D: TypeAlias = NDArray[np.uint8]

#: Numba's names of what stands in an annotation.
_TYPES = {
    **{"F64": "float64", "F32": "float32", "I64": "int64", "I32": "int32", "I16": "int16"},
    **{"U64": "uint64", "U8": "uint8", "int": "int64", "float": "float64", "None": "void"},
}

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
        _kernels.append(self)

    def __call__(self, *arguments: Any) -> Any:
        """Compute."""
        return self.compiled(*arguments)

    @property
    def compiled(self) -> Any:
        """Numba's function, or the plain one where ``NUMBA_DISABLE_JIT`` is set."""
        if self._compiled is None:
            with _compiling:
                self._compiled = self._compiled or _compile(self.py_func)
        return self._compiled

    @property
    def _numba_type_(self) -> Any:
        """What Numba takes this object for where another kernel names it."""
        return self.compiled._numba_type_


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
        """Compute the whole range."""
        iterations, operations = self._extent(*arguments)
        if operations < FEW_OPERATIONS:
            self.compiled(0, iterations, *arguments)
        else:
            run_pieces(self.compiled, iterations, *arguments)


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
        _ = each.compiled


def cache_folder() -> Path:
    """Return where compiled kernels are kept; OSError if there is no place for them."""
    from numba.core.caching import FunctionCache

    try:
        return Path(FunctionCache(_type).cache_path)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise OSError(f"there is no folder for compiled kernels: {error}") from error


@contextmanager
def _no_collections() -> Iterator[None]:
    """Collect no garbage: the compiler makes many objects, few of them in circles.

    Measured: a fifth of the time of compiling, and of importing the compiler.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@cache
def _say_compiling() -> None:
    """Tell a person, once in a process, why the first fit after an install takes longer."""
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        print("streamlda: compiling kernels, once after an install", file=sys.stderr, flush=True)


@_no_collections()
def _compile(function: Callable[..., Any]) -> Any:
    import numba
    from numba.core.compiler import Compiler

    class NoAliases(Compiler):
        """Arrays of one call never overlap: loops over them need no check."""

        def define_pipelines(self) -> Any:
            self.state.flags.noalias = True
            # Nothing calls a kernel from C.
            self.state.flags.no_cfunc_wrapper = True
            return super().define_pipelines()  # type: ignore[no-untyped-call]

    names = function.__annotations__
    signature = _type(names["return"])(*(_type(names[n]) for n in names if n != "return"))
    compiled = numba.njit(
        signature,
        error_model="numpy",
        fastmath=False,
        nogil=True,
        cache=True,
        pipeline_class=NoAliases,
    )(function)
    if compiled is not function:
        if compiled.stats.cache_misses:
            _say_compiling()
        # Numba learns at the first call that writable arrays may stand for read-only ones, and
        # refuses the call of a second thread meanwhile.
        arrays = numba.types.Array
        given = [a.copy(readonly=False) if isinstance(a, arrays) else a for a in signature.args]
        compiled.typingctx.install_possible_conversions(given, signature.args)
    return compiled


def _type(name: str) -> Any:
    from numba import types

    found = re.fullmatch(r"(OUT_)?(\w+?)(?:_(\d)D)?", name)
    assert found
    output, element, dimensions = found.groups()
    scalar = getattr(types, _TYPES[element])
    return types.Array(scalar, int(dimensions), "C", readonly=not output) if dimensions else scalar
