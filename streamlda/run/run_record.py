"""Which private run goes on in a folder of checkpoints: its random name, in the file ``run``.

The name stands in each of its releases, so that one that no checkpoint knows of is known as its
own, whatever the source was called.
"""

from __future__ import annotations

import json
import secrets
from typing import NamedTuple

from streamlda.checks import failure
from streamlda.container import sync_folder, whole_file
from streamlda.errors import ModelFileError
from streamlda.privacy.ledger import Ledger
from streamlda.storage.checkpoint import Checkpoints
from streamlda.storage.state import OWNER_ONLY

FILE = "run"


class RunRecord(NamedTuple):
    """A run, the ledger that pays for it, and how many releases that had when it began."""

    name: str
    ledger_id: str
    began: int


def run_of(store: Checkpoints | None, ledger: Ledger, *, saved: bool) -> tuple[RunRecord, int]:
    """Return the run that goes on in a folder, or a new one, and how many releases it has made.

    With a checkpoint (`saved`) it goes on in any case, and its releases are not counted.
    """
    fresh = RunRecord(secrets.token_hex(8), ledger.ledger_id, ledger.generation)
    if store is None:
        return fresh, 0
    path = store.folder / FILE
    if path.exists():
        try:
            found = RunRecord(**json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise failure(
                "the file that names the run of checkpoints must be whole",
                path=str(path),
                remedy="restore it from a copy, or begin in an empty folder",
                error=ModelFileError,
            ) from error
        releases = [] if saved else ledger.report()["snapshots"]
        made = sum(each["run"] == found.name for each in releases)
        if found.ledger_id == ledger.ledger_id and (saved or made):
            return found, made
    with whole_file(path, OWNER_ONLY) as file:
        file.write(json.dumps(fresh._asdict()).encode("ascii"))
    sync_folder(store.folder)
    return fresh, 0
