"""Memory of this process, and the limit that the system sets."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

#: The first version of control groups has a number near 2^63 for no limit.
NO_LIMIT = 2**60


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


#: What glibc comes to by itself where arrays of up to 32 MiB come and go: ``M_MMAP_THRESHOLD`` and
#: ``M_TRIM_THRESHOLD``, by their numbers in malloc.h.
ALLOCATOR = {-3: 2**25, -1: 2**26}


@cache
def keep_freed_memory() -> None:
    """Let the allocator keep some of what was freed, where its environment says otherwise.

    Nannies of Dask start workers with ``MALLOC_TRIM_THRESHOLD_=65536``. That turns off the rule by
    which glibc learns how large arrays are, and each of 128 KiB or more is then mapped, cleared
    page by page and unmapped: local steps took 1.8 times as long.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)
        if set_option is not None:
            for option, value in ALLOCATOR.items():
                set_option(option, value)


def return_freed_memory() -> None:
    """Give the system back what was freed, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def allowed_bytes(
    own: Path = Path("/proc/self/cgroup"), groups: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Return the memory that the control groups of this process allow; None for no limit.

    Of either version: the least limit of its group and of those around it, as far as they are seen
    from a container. `own` names its groups, whose files lie in `groups`.
    """
    try:
        lines = own.read_text("utf-8").splitlines()
    except OSError:
        return None  # A system without control groups.
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = (base / path.lstrip("/")).parts
        for depth in range(len(base.parts), len(inner) + 1):
            file = Path(*inner[:depth], name)
            # A container may be shown its path on the host, which is not there.
            value = file.read_text("ascii").strip() if file.exists() else "max"
            limits += [int(value)] if value.isdigit() and int(value) < NO_LIMIT else []
    return min(limits, default=None)
