"""Artefacts of releases on disk: checked, measured and given their final names."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

_CHUNK_BYTES = 2**20

#: Ends the name of an artefact, and after that of one that is not on record yet.
SUFFIX, UNPUBLISHED = ".safetensors", ".new"


def check_placed(source: Path, target: Path) -> None:
    """Raise an `OSError` unless `source` is a file that can take the name `target` in one step."""
    found = source.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it is not a regular file")
    if source == target:
        raise OSError("it has its final name already")
    if target.is_dir():
        raise OSError("the final place is a folder")
    if target.parent.stat().st_dev != found.st_dev:
        raise OSError("the final place is on another file system")


def digest_file(path: Path, *, sync: bool = False) -> tuple[str, int]:
    """Return BLAKE2b of 32 bytes, in hex, and the length; optionally force it to the disk."""
    digest = hashlib.blake2b(digest_size=32)
    size_bytes = 0
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size_bytes += len(chunk)
    return digest.hexdigest(), size_bytes


def holds(path: Path, digest: str) -> bool:
    """Tell whether a file is there and has that digest. Time O(bytes), memory O(1)."""
    return path.is_file() and digest_file(path)[0] == digest
