"""The folder in which the tests keep what was fetched or built once, and what could not be had."""

import os
import time
from pathlib import Path

FORGET_SECONDS = 24 * 3600.0


def cache_folder() -> Path:
    """Return the folder, made if need be: STREAMLDA_TEST_CACHE or ~/.cache/streamlda-tests."""
    chosen = os.environ.get("STREAMLDA_TEST_CACHE")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "streamlda-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def remember_failure(cache: Path, what: str, why: str) -> None:
    """Note that `what` could not be had, so that the next runs do not wait for it again."""
    (cache / f"failed-{what}").write_text(why, "utf-8")


def remembered_failure(cache: Path, what: str) -> str | None:
    """Return why `what` could not be had, if that was less than a day ago."""
    note = cache / f"failed-{what}"
    if not note.exists() or time.time() - note.stat().st_mtime > FORGET_SECONDS:
        return None
    return f"{note.read_text('utf-8')} (it is tried again a day later, or when {note} is removed)"
