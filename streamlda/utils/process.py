"""Memory of this process, and the limit that the system sets."""

import ctypes
import os
from functools import cache
from pathlib import Path


def resident_bytes() -> int:
    """Return the memory of this process now; where the system does not say, its maximum."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource
        import sys

        # In bytes on macOS, in kibibytes elsewhere.
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


#: Values that glibc comes to where arrays of up to 32 MiB come and go: ``M_MMAP_THRESHOLD`` and
#: ``M_TRIM_THRESHOLD``, by their numbers in malloc.h.
ALLOCATOR = {-3: 2**25, -1: 2**26}


@cache
def keep_freed_memory() -> None:
    """Let the allocator keep some freed memory, where nannies of Dask keep it from doing so.

    They set ``MALLOC_TRIM_THRESHOLD_``, and arrays of 128 KiB are then mapped again and again.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if "MALLOC_TRIM_THRESHOLD_" in os.environ and set_option is not None:
        for option, value in ALLOCATOR.items():
            set_option(option, value)


def return_freed_memory() -> None:
    """Give the system back what was freed, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def get_memory_limit(
    own: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Return the memory that the control groups of this process allow; None for no limit.

    It is the least limit of its group and of those around it, as far as a container sees them.
    `own` names its groups, in the form of version 2 (``0::/path``), whose files lie in `groups`.
    """
    try:
        lines = own.read_text("utf-8").splitlines()
    except OSError:
        return None  # A system without control groups.
    limits = []
    for path in (line.removeprefix("0::") for line in lines if line.startswith("0::")):
        inner = groups / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(groups) and (file := folder / "memory.max").exists():
                value = file.read_text("ascii").strip()
                limits += [int(value)] if value.isdigit() else []
    return min(limits, default=None)
