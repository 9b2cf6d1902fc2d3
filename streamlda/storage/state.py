"""The state of a running engine in a file: raw data, for its owner only.

A state file is a checked file of `streamlda.container` of kind ``streamlda-state``, version 2,
readable and writable by its owner only. Its metadata has the members

``state``
    The values of `Engine.state` or `PrivateEngine.state`.
``run``
    Null for an `Engine`. For a `PrivateLearner` an object: ``first_place``, ``vocabulary`` (origin
    of the columns), ``delta``, ``missed`` (why the last window gave no snapshot, or null),
    ``secure`` (false for seeded noise), and ``ledger_id`` and ``epoch``, which tell a state from
    before a release from one after it.

A state has sums without noise: it is as secret as the documents, and `load` refuses it as a model.
A private state is restored with its ledger only: after a later release, the documents of the
running stage would take part twice, and nothing but the ledger can notice.
"""

from __future__ import annotations

import os
from typing import Any

from streamlda.checks import failure, require
from streamlda.container import read_arrays, valid_content, write_arrays
from streamlda.engine.engine import Engine
from streamlda.errors import InvalidSettingError, LedgerError
from streamlda.model.model_file import STATE_FORMAT
from streamlda.private.engine import PrivateEngine
from streamlda.private.learner import PrivateLearner
from streamlda.utils.arrays import Arrays

STATE_VERSION = 2

#: Whatever the umask allows: a state is read and written by its owner only.
OWNER_ONLY = 0o600


def save_state(path: str | os.PathLike[str], learner: Engine | PrivateLearner) -> None:
    """Write the state of a learner to a file that only its owner can read, whole or not at all.

    A private learner ends its running group of documents here (`PrivateEngine.state`): save at
    record slots or times that do not depend on document text. Its next release makes the file
    useless.
    """
    write_state(path, *collect_state(learner))


def collect_state(learner: Engine | PrivateLearner) -> tuple[Arrays, dict[str, Any]]:
    """Return arrays, which are still those of the learner, and metadata of a state file."""
    run = None
    if isinstance(learner, Engine):
        arrays, state = learner.state()
    else:
        ledger = learner.releaser.ledger
        if ledger is None:
            raise failure(
                "a private state must be saved beside a ledger, without which nothing notices that "
                "its documents are released twice",
                ledger=None,
                remedy="run with a ledger",
            )
        arrays, state = learner.engine.state()
        run = {
            **_run_of(learner),
            "missed": learner.lost[-1] if learner.lost else None,
            "ledger_id": ledger.ledger_id,
            "epoch": ledger.generation,
        }
    return arrays, {"state": state, "run": run}


def write_state(path: str | os.PathLike[str], arrays: Arrays, metadata: dict[str, Any]) -> None:
    """Write what `collect_state` returned, for its owner only."""
    write_arrays(path, STATE_FORMAT, STATE_VERSION, arrays, metadata, mode=OWNER_ONLY)


def load_state(
    path: str | os.PathLike[str],
    learner: PrivateLearner | None = None,
    *,
    releases_behind: int = 0,
) -> Engine | PrivateLearner:
    """Return the learner of a state file, bit for bit.

    A private state fills a new `learner` with the settings, the ledger and the first record slot of
    the saved one. The caller makes up for `releases_behind`, the releases that were begun since the
    save: none of their documents may be released again (`PrivateLearner.catch_up`). Time O(bytes),
    memory twice the size of the file.
    """
    file = read_arrays(path, STATE_FORMAT, STATE_VERSION)
    remedy = "start in an empty folder, after the last cohort of the ledger"
    with valid_content("state", path, remedy=remedy, but=(InvalidSettingError, LedgerError)):
        state, run = file.metadata["state"], file.metadata["run"]
        require(
            (run is None) == (learner is None),
            "a private state must be loaded into a new PrivateLearner, and another state into none",
            private=run is not None,
            learner=learner is not None,
            path=str(path),
            remedy="pass the learner that fits",
        )
        if learner is None:
            return Engine.from_state(file.arrays, state)
        _check_fits(path, learner, state, run, releases_behind)
        engine = PrivateEngine.from_state(file.arrays, state)
    learner.engine = engine
    if run["missed"] is not None:
        learner.lost.append(str(run["missed"]))
    return learner


def _check_fits(
    path: str | os.PathLike[str],
    learner: PrivateLearner,
    state: Any,
    run: Any,
    releases_behind: int,
) -> None:
    ledger = learner.releaser.ledger
    if ledger is None:
        raise failure(
            "a private state must be loaded with its ledger",
            ledger=None,
            ledger_id=run["ledger_id"],
            remedy="open the ledger that the state was made with",
            error=LedgerError,
        )
    ledger.check_epoch(run["epoch"] + releases_behind, run["ledger_id"])
    require(
        not learner.documents_seen,
        "a state must be loaded before documents are read",
        documents_seen=learner.documents_seen,
        remedy="make a new learner",
    )
    found = _run_of(learner)
    others = [
        f"{name}={found[name]!r} (saved: {run[name]!r})"
        for name in found
        if found[name] != run[name]
    ]
    others += learner.settings.differing(state["settings"])
    require(
        not others,
        f"a state must go on with the settings it was made with, not {', '.join(others)}",
        path=str(path),
        remedy="use those, or drop the state and begin after the last cohort",
    )


def _run_of(learner: PrivateLearner) -> dict[str, Any]:
    return {
        "first_place": learner.first_slot,
        "vocabulary": learner.vocabulary,
        "delta": learner.delta,
        "secure": learner.releaser.noise.secure,
    }
