"""Machine code of kernels: compiled by Numba once, kept in a file, loaded by LLVM alone.

1. Numba compiles a function for its one signature. To load what it keeps takes .4 processor seconds
   and 60 MB, for the whole compiler comes along; so its cache is not used.
2. An entry is added to the module. It reads the arguments out of one block of memory, 8 bytes each
   with the address of an array object for an array, and calls the function as Numba's code does:
   an array is two pointers that own it (here none), its items, their bytes, its data, its shape
   and its strides.
3. The object file is kept. It needs the C library and nothing of Numba's.
4. A call checks the arrays, writes the block and lets other Python threads run in the meantime.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

#: Names of types in annotations: of Numba, of LLVM, of NumPy and of `struct`, padded to 8 bytes.
_TYPES = {
    **dict.fromkeys(("F64", "float"), ("float64", "double", "f8", "d")),
    **dict.fromkeys(("I64", "int"), ("int64", "i64", "i8", "q")),
    **{"F32": ("float32", "float", "f4", "f4x"), "I32": ("int32", "i32", "i4", "i4x")},
    **{"I16": ("int16", "i16", "i2", "h6x"), "U8": ("uint8", "i8", "u1", "B7x")},
    **{"U64": ("uint64", "i64", "u8", "Q"), "None": ("void", "", "", "")},
}
#: Flags of arrays in NumPy's C interface: contiguous; of outputs aligned and writable too. Inputs
#: that came in a message of Dask begin at any byte of it, which processors read as well.
_READABLE, _WRITABLE = 0x1, 0x501
#: Places of the data and of the shape in NumPy's C structure of an array, after Python's head.
_DATA, _SHAPE = object.__basicsize__, object.__basicsize__ + 16
_RANGE = Struct("=qq")
#: Memory of a loop, with the head that Numba expects: a count of references first, the data fourth.
_ALLOCATOR = """
declare ptr @malloc(i64)
declare void @free(ptr)
define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %a = zext i32 %align to i64
  %head = add i64 %a, 64
  %whole = add i64 %head, %size
  %info = call ptr @malloc(i64 %whole)
  %failed = icmp eq ptr %info, null
  br i1 %failed, label %end, label %filled
filled:
  %place = ptrtoint ptr %info to i64
  %after = add i64 %place, %head
  %mask = sub i64 0, %a
  %aligned = and i64 %after, %mask
  %data = inttoptr i64 %aligned to ptr
  store i64 1, ptr %info
  %slot = getelementptr i8, ptr %info, i64 24
  store ptr %data, ptr %slot
  br label %end
end:
  ret ptr %info
}
define void @NRT_MemInfo_call_dtor(ptr %info) {
  call void @free(ptr %info)
  ret void
}
"""
_ENTRY = "streamlda_entry_"


class Parameter(NamedTuple):
    """An argument, or what is returned: its type, and of an array dimensions and use."""

    numba: str
    llvm: str
    numpy: str
    packed: str
    dimensions: int
    is_output: bool

    @classmethod
    def from_annotation(cls, name: str) -> Parameter:
        """Read an annotation."""
        found = re.fullmatch(r"(OUT_)?(\w+?)(?:_(\d)D)?", name)
        assert found
        output, element, dimensions = found.groups()
        return cls(*_TYPES[element], int(dimensions or 0), bool(output))

    def to_numba(self) -> Any:
        """Return Numba's type."""
        from numba import types

        scalar = getattr(types, self.numba)
        if not self.dimensions:
            return scalar
        return types.Array(scalar, self.dimensions, "C", readonly=not self.is_output)


def get_parameters(function: Callable[..., Any]) -> tuple[list[Parameter], Parameter]:
    """Return the parameters of a kernel, and its results."""
    names = dict(function.__annotations__)
    returned = Parameter.from_annotation(names.pop("return"))
    return [Parameter.from_annotation(name) for name in names.values()], returned


class MachineCode:
    """A function in machine code, called with arrays and numbers."""

    def __init__(self, kernel: Callable[..., Any], address: int, parameters: Any) -> None:
        self._name = kernel.__name__
        inputs, self._returned = parameters
        self._inputs = [
            (each.dimensions, np.dtype(each.numpy), _WRITABLE if each.is_output else _READABLE)
            for each in inputs
        ]
        self._formats = ["q" if each.dimensions else each.packed for each in inputs]
        self._packs: dict[int, Callable[..., bytes]] = {}
        self._call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(address)

    def __call__(self, *arguments: Any) -> Any:
        """Compute; TypeError for an array of another type, layout or number of dimensions."""
        return self._run(self._pack(0, arguments))

    def bind(self, *arguments: Any) -> Callable[[int, int], Any]:
        """Return the function of its first two arguments alone; the caller keeps the arrays."""
        packed = self._pack(2, arguments)
        return lambda first, last: self._run(_RANGE.pack(first, last) + packed)

    def _pack(self, skipped: int, arguments: tuple[Any, ...]) -> bytes:
        inputs = self._inputs[skipped:]
        if len(arguments) != len(inputs):
            raise TypeError(f"{self._name} takes {len(inputs)} arguments, {len(arguments)} given")
        slots = []
        for argument, (dimensions, kind, flags) in zip(arguments, inputs, strict=True):
            if not dimensions:
                slots.append(argument)
                continue
            if (
                not isinstance(argument, np.ndarray)
                or argument.dtype != kind
                or argument.ndim != dimensions
                or argument.flags.num & flags != flags
            ):
                place = skipped + len(slots)
                raise TypeError(
                    f"argument {place} of {self._name} is {_describe(argument)}; give a contiguous"
                    f"{' writable' * (flags == _WRITABLE)} array of {kind} and {dimensions} axes"
                )
            slots.append(id(argument))
        pack = self._packs.get(skipped)
        if pack is None:
            pack = self._packs[skipped] = Struct("=" + "".join(self._formats[skipped:])).pack
        return pack(*slots)

    def _run(self, content: bytes) -> Any:
        found = ctypes.create_string_buffer(8) if self._returned.packed else None
        if self._call(content, found):
            raise MemoryError(f"{self._name} has no memory to work in")
        return None if found is None else Struct(f"={self._returned.packed}").unpack(found)[0]


def _describe(argument: Any) -> str:
    if not isinstance(argument, np.ndarray):
        return type(argument).__name__
    return f"{argument.dtype} of shape {argument.shape} and strides {argument.strides}"


def load(function: Callable[..., Any], make: Callable[[], Any], say: Callable[[], None]) -> Any:
    """Return the machine code of a kernel, from its file or else from Numba."""
    parameters = get_parameters(function)
    name = f"{function.__module__}.{function.__name__}"
    path, version = _get_path(name), _get_version(function)
    code = _read(path, version) if path is not None else b""
    if not code:
        say()
        with no_collections():
            code, is_alone = _compile(make(), name, *parameters)
        if path is not None and version and is_alone:
            _keep(path, sha256(version + code).digest() + code)
    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return MachineCode(function, engine.get_function_address(_ENTRY + name), parameters)


@contextmanager
def no_collections() -> Iterator[None]:
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
def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        *(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), 3),
        **{"reloc": "default", "codemodel": "jitdefault", "jit": True},
    )


@cache
def _engine() -> Any:
    import llvmlite.binding as llvm

    target = _target()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)


def _compile(jitted: Any, name: str, inputs: list[Parameter], result: Parameter) -> Any:
    """Return an object file, and whether it needs the C library alone."""
    import llvmlite.binding as llvm

    [compiled] = jitted.overloads.values()
    module = llvm.parse_assembly(compiled.library.get_llvm_str())
    module.link_in(llvm.parse_assembly(_ALLOCATOR))
    text = _make_entry(_ENTRY + name, compiled.fndesc.llvm_func_name, inputs, result)
    module.link_in(llvm.parse_assembly(text))
    outside = []
    for each in module.functions:
        if not each.is_declaration and each.name != _ENTRY + name:
            # Two kernels may hold the same function.
            each.linkage = "internal"
        elif each.is_declaration and not each.name.startswith("llvm."):
            outside.append(each.name)
    module.verify()
    library = ctypes.CDLL(None) if os.name == "posix" else ctypes.cdll.msvcrt
    return _target().emit_object(module), all(hasattr(library, each) for each in outside)


def _make_entry(name: str, function: str, inputs: list[Parameter], result: Parameter) -> str:
    lines: list[str] = []
    passed, types, slot = ["ptr %out", "ptr %raised"], ["ptr", "ptr"], 0

    def load(kind: str, base: str, offset: int) -> str:
        place = len(lines)
        lines.append(f"%p{place} = getelementptr i8, ptr {base}, i64 {offset}")
        lines.append(f"%v{place} = load {kind}, ptr %p{place}")
        return f"%v{place}"

    def read(kind: str) -> str:
        nonlocal slot
        slot += 8
        return load(kind, "%slots", slot - 8)

    for each in inputs:
        if not each.dimensions:
            arguments = [f"{each.llvm} {read(each.llvm)}"]
        else:
            width = np.dtype(each.numpy).itemsize
            array, strides, step = read("ptr"), [], f"{width}"
            data, sizes = load("ptr", array, _DATA), load("ptr", array, _SHAPE)
            shape = [load("i64", sizes, 8 * place) for place in range(each.dimensions)]
            for size in reversed(shape):
                strides.append(step)
                lines.append(f"%s{len(lines)} = mul i64 {step}, {size}")
                step = f"%s{len(lines) - 1}"
            lines.append(f"%n{len(lines)} = sdiv i64 {step}, {width}")
            arguments = [
                "ptr null",
                "ptr null",
                f"i64 %n{len(lines) - 1}",
                f"i64 {width}",
                f"ptr {data}",
            ]
            arguments += [f"i64 {value}" for value in (*shape, *reversed(strides))]
        passed += arguments
        types += [argument.split()[0] for argument in arguments]
    body = "\n  ".join(lines)
    return f"""
declare i32 @"{function}"({", ".join(types)})
define i32 @"{name}"(ptr %slots, ptr %found) {{
  %raised = alloca ptr
  %none = alloca i64
  %is_none = icmp eq ptr %found, null
  %out = select i1 %is_none, ptr %none, ptr %found
  {body}
  %status = call i32 @"{function}"({", ".join(passed)})
  ret i32 %status
}}
"""


def _get_folders() -> list[Path]:
    """Return where compiled kernels may lie."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(given)]
    # Of a process without a home it is a folder that nobody can make.
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return [Path(__file__).parent / "__pycache__", Path(user) / "streamlda"]


@cache
def cache_folder() -> Path:
    """Return where compiled kernels are kept; OSError if there is no place for them."""
    for folder in _get_folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    raise OSError("there is no folder for compiled kernels; name one in NUMBA_CACHE_DIR")


def _get_path(name: str) -> Path | None:
    """Return the file of a kernel for this processor and compiler; None if there is no folder."""
    import llvmlite

    target = _target()
    abi = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
    made_for = f"{llvmlite.__version__} {abi} {target.triple} {_processor()}".encode()
    file = f"{name}-{sha256(made_for).hexdigest()[:16]}.o"
    try:
        # What an image has is read, though nothing can be written there.
        there = [folder for folder in _get_folders() if (folder / file).is_file()]
        return (there[0] if there else cache_folder()) / file
    except OSError:
        return None


@cache
def _processor() -> str:
    import llvmlite.binding as llvm

    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@cache
def _get_sources() -> bytes:
    """Return a digest of all kernels of this package: they call each other."""
    return sha256(
        b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py")))
    ).digest()


def _get_version(function: Callable[..., Any]) -> bytes:
    """Return a digest of the sources of the code; nothing if they cannot be read."""
    try:
        own = Path(function.__code__.co_filename).read_bytes()
        return sha256(_get_sources() + own).digest()
    except OSError:
        return b""


def _read(path: Path, version: bytes) -> bytes:
    """Return the kept code of these sources; nothing if it is not there, or not whole."""
    try:
        kept = path.read_bytes()
    except OSError:
        return b""
    return kept[32:] if sha256(version + kept[32:]).digest() == kept[:32] else b""


def _keep(path: Path, content: bytes) -> None:
    """Replace a file at once, for another process may read it."""
    with suppress(OSError):
        written = path.with_name(f"{path.name}.{os.getpid()}")
        written.write_bytes(content)
        written.replace(path)
