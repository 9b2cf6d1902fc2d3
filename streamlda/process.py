"""What the system says of this process."""

from __future__ import annotations

import os
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
