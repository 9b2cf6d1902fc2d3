"""What new files are to the known ones: newer, older, or copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from streamlda_connectors.follow.scan import StreamFile
from streamlda_connectors.follow.tracked_file import HEAD_BYTES, TrackedFile


def by_age(
    new: Iterable[StreamFile], families: set[str], paths: Sequence[str]
) -> list[tuple[StreamFile, str]]:
    """Return new files with their families, in reading order.

    That is the order of `paths`, then by name, but what was rotated from a file comes before it,
    in the order of the last write. A name that looks rotated is so if the other one is known.
    """
    listed = [found for found in new if found.named or found.bases]
    known = families | {found.name for found in listed}
    rank = {path: i for i, path in enumerate(paths)}
    rows = []
    for found in listed:
        named = (base for base in found.bases if not found.named or base in known)
        rows.append((found, next(named, found.name)))

    def age(row: tuple[StreamFile, str]) -> tuple[int, str, bool, int, str]:
        found, family = row
        return rank[found.path], family, family == found.name, found.modified_ns, found.name

    return sorted(rows, key=age)


def find_copy(
    file: TrackedFile, others: Iterable[StreamFile], *, anywhere: bool
) -> StreamFile | None:
    """Return one of `others` that begins as `file` did and holds what was not read of it.

    With `anywhere` it may be one that was put back under an old name, not only one that was left
    behind by copying and then cutting. A few bytes are no proof of that.
    """
    if file.head.size < (HEAD_BYTES if anywhere else 1):
        return None
    names = {file.name, file.family} if anywhere else set()
    fits = [
        other
        for other in others
        if other.identity != file.identity and (file.family in other.bases or other.name in names)
    ]
    for other in sorted(fits, key=lambda other: other.modified_ns, reverse=True):
        if other.size >= file.offset and file.head.begins(first_bytes(other.name, HEAD_BYTES)):
            return other
    return None


def is_copy(file: TrackedFile, standing: TrackedFile | None) -> bool | None:
    """Return whether `file` is a copy, maybe unfinished, of the one under its family's name.

    None if one of the two was empty when it was looked at, so that it cannot be told yet.
    """
    if standing is None:
        return False
    # What stands there by now may be something else already; so its beginning as it was seen.
    both = min(len(file.first), len(standing.first))
    return file.first[:both] == standing.first[:both] if both else None


def first_bytes(name: str, size: int) -> bytes:
    """Return up to `size` first bytes of a file, none if it is not there any more."""
    try:
        with Path(name).open("rb") as file:
            return file.read(size)
    except FileNotFoundError:
        return b""
