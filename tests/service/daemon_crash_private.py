"""Private daemons that are killed: run as ``python -m tests.service.daemon_crash_private``.

As `tests.service.daemon_crash`. What was released stays, and nothing is released twice: `verify`
says what must hold after every crash, and `verify_end` what must be there in the end.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamlda.container import read_arrays
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import Ledger
from streamlda.privacy.statement import PRIVATE, check_statement
from streamlda.private.release_manager import RELEASE_FORMAT, RELEASE_VERSION, ReleaseManager
from streamlda.service import running
from streamlda.storage.checkpoint import Checkpoints
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import RecordBatch
from tests.service.daemon_crash import (
    WRONG,
    OnStep,
    die_at,
    die_when,
    hurry,
    kill_at_random,
    main,
    start,
    wait,
    with_steps,
)
from tests.service.daemon_process import settings_of

WINDOW = ("norms", "pairs", "triple norms", "triples")

KINDS: dict[str, dict[str, Any]] = {
    "hashed": {"vocabulary.hash_bits": 5, "privacy.epsilon": 12.0},
    "private": {
        "vocabulary.kind": "private",
        "vocabulary.size": 30,
        "vocabulary.documents": 300,
        "privacy.epsilon": 12.0,
    },
}


#: A kind, the step at which to kill, how many times in a row, and how many releases are lost so.
AGAIN = {
    # Paid for, and never drawn: each time another window is lost, or the votes for words.
    ("private", "draw:begin", 3): 3,
    ("hashed", "draw:begin", 2): 2,
    # Released, and no checkpoint knows of it: the records are skipped, each time.
    ("hashed", "_release:end", 3): 0,
    ("private", "_release:end", 3): 0,
    ("private", "save:begin", 3): 0,
    ("hashed", "store:end", 2): 0,
}


def forget_to_pass() -> None:
    """Go on with the records of a release as if it had not used them."""
    code: Any = running
    opened = code.open_pipeline
    code.open_pipeline = lambda *args: replace(opened(*args), slots_to_skip=0)


def watched(folder: Path, texts: list[str], on_step: OnStep) -> Callable[[], None]:
    """Return a change that checks that record slots are those of the stream, and notes draws."""

    def change() -> None:
        add, release = Pipeline.add, ReleaseManager.release

        def checked_add(self: Pipeline[Any], batch: RecordBatch) -> Any:
            if texts[self.records : self.records + batch.n_records] != batch.texts:
                os._exit(WRONG)
            return add(self, batch)

        def noted_release(
            self: Any,
            name: str,
            first: int,
            last: int,
            event: Any,
            draw: Any,
            about: Any,
            config: str = "",
        ) -> Any:
            def noted_draw(noise: Any) -> Any:
                assert self.ledger.pending is not None
                with (folder / "draws").open("a") as draws:
                    draws.write(f"{self.ledger.pending.number} {first} {last}\n")
                    draws.flush()
                    os.fsync(draws.fileno())
                on_step("draw:begin")
                drawn = draw(noise)
                on_step("draw:end")
                return drawn

            return release(self, name, first, last, event, noted_draw, about, config)

        Pipeline.add = checked_add  # type: ignore[method-assign]
        ReleaseManager.release = noted_release  # type: ignore[method-assign]

    return change


def private_settings(folder: Path, source: Path, kind: str, interval: str) -> dict[str, Any]:
    more = {
        "snapshots.every": 500,
        "privacy.delta": 1e-3,
        "privacy.ledger": str(folder / "ledger"),
        "source.stream": "trial",
        "checkpoint.interval": interval,
    }
    return settings_of(folder, source, {**KINDS[kind], **more})


def published(folder: Path) -> dict[str, bytes]:
    """Return all that is out, by name."""
    files = [
        *folder.glob("ledger.releases/*.safetensors"),
        *folder.glob("snapshots/snapshot-??????"),
    ]
    return {path.name: path.read_bytes() for path in files}


def verify(folder: Path) -> list[dict[str, Any]]:
    """Assert what must hold after every crash; return the releases in order."""
    text = (folder / "draws").read_text() if (folder / "draws").exists() else ""
    # Of a line cut short nothing was used yet.
    draws = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if not (folder / "ledger").exists():
        assert not draws
        return []
    with Ledger.open(folder / "ledger") as ledger:
        shots: list[dict[str, Any]] = ledger.report()["snapshots"]
        spent, budget = ledger.epsilon_spent, ledger.terms.epsilon
    by_number = {shot["intent"]: shot for shot in shots}
    assert len({number for number, *_ in draws}) == len(draws), "noise was drawn twice"
    place = 0
    for shot in shots:
        ((stream, first, last),) = shot["documents"]
        assert (stream, first) == ("trial", place), "every place is in one release"
        place = last
    for number, first, last in draws:
        assert by_number[int(number)]["documents"] == [["trial", int(first), int(last)]]
    drawn = {int(number) for number, *_ in draws}
    for number, shot in by_number.items():
        if shot["state"] == "committed":
            assert number in drawn
            (path,) = folder.glob(f"ledger.releases/{number:06d}-*.safetensors")
            stored = read_arrays(path, RELEASE_FORMAT, RELEASE_VERSION).metadata
            assert [["trial", stored["first"], stored["last"] + 1]] == shot["documents"]
    # Documents are in one release each: they never pay more than the price of one.
    assert spent <= budget
    assert spent > 0 or not shots
    return shots


def verify_end(folder: Path, shots: list[dict[str, Any]], slots: int) -> Counter[str]:
    """Assert that every window gave its snapshot, unless a release of it was lost."""
    topics = [shot for shot in shots if shot["description"] != "words"]
    wanted, window = [], []
    for shot in topics:
        window.append(shot)
        if shot["state"] == "lost":
            window = []
        elif len(window) == len(WINDOW):
            assert tuple(each["description"] for each in window) == WINDOW
            wanted.append(shot["documents"][0][2])
            window = []
    models = [load(path) for path in sorted((folder / "snapshots").glob("snapshot-??????"))]
    assert [model.settings["places"] for model in models] == wanted
    for model in models:
        assert model.privacy["statement"] == PRIVATE
        check_statement(model.privacy)
    (last,) = shots[-1]["documents"]
    # What is left is less than a window, or a choice of words.
    assert slots - last[2] < 500
    with (
        Checkpoints.open(folder / "checkpoints") as store,
        Ledger.open(folder / "ledger") as ledger,
    ):
        newest = store.newest(ledger)
    assert newest is not None
    return Counter(snapshots=len(models), lost=sum(shot["state"] == "lost" for shot in shots))


def private(scratch: Path, kills: int, seed: int) -> Counter[str]:
    """Kill at random moments, until the streams end."""
    moments, counted = random.Random(seed), Counter[str]()
    source = scratch / "documents.jsonl"
    documents = _texts(source)
    for kind in KINDS:
        killed, seconds = 0, 0.0
        while killed < kills / len(KINDS):
            counted["streams"] += 1
            folder = scratch / f"{kind}-{counted['streams']}"
            folder.mkdir()
            settings = private_settings(folder, source, kind, "0.1 s")
            changes = [watched(folder, documents, lambda name: None)]
            status, before = -1, dict[str, bytes]()
            while status:
                began = time.monotonic()
                child = start(settings, folder, *changes)
                if seconds:
                    kill_at_random(child, folder, moments, seconds)
                status = wait(child, folder)
                seconds = seconds or time.monotonic() - began
                assert status != WRONG, "a daemon learned other records than those of its places"
                killed += status != 0
                shots, after = verify(folder), published(folder)
                assert before.items() <= after.items(), "what is out changed"
                before = after
            counted.update(verify_end(folder, shots, len(documents)))
        counted["killed"] += killed
    return counted


def private_steps(scratch: Path, stride: int, first: int, kind: str) -> Counter[str]:
    """Kill at every so-manieth step, each other time twice in a row; then go on."""
    counted, documents = Counter[str](), _texts(scratch / "documents.jsonl")
    killed, step = True, first
    while killed:
        stream = _PrivateStream(scratch, f"{kind}-{step}", kind, documents)
        killed = stream.run(die_at(step)) == -signal.SIGKILL
        counted["killed"] += killed
        if step % 2:
            counted["killed again"] += stream.run(die_at(step // 2 % 60)) == -signal.SIGKILL
        counted.update(stream.end())
        step += stride
    return counted


def private_again(scratch: Path, mistaken: str = "") -> Counter[str]:
    """Kill at the same named step of some starts in a row; then go on."""
    counted, documents = Counter[str](), _texts(scratch / "documents.jsonl")
    changes = [forget_to_pass] if mistaken else []
    for case, lost in AGAIN.items():
        kind, name, times = case
        stream = _PrivateStream(scratch, "-".join(map(str, case)), kind, documents, changes)
        for _ in range(times):
            killed = stream.run(die_when(name))
            counted["killed"] += killed == -signal.SIGKILL
        found = stream.end()
        if not mistaken:
            assert found["lost"] == lost, (case, found)
            assert found["snapshots"] >= 2, (case, found)
        counted.update(found)
    return counted


class _PrivateStream:
    """A folder, and the daemons that work in it one after the other."""

    def __init__(
        self,
        scratch: Path,
        name: str,
        kind: str,
        documents: list[str],
        changes: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.folder, self.documents, self.changes = scratch / name, documents, changes
        self.folder.mkdir()
        source = scratch / "documents.jsonl"
        self.settings = private_settings(self.folder, source, kind, "1 h")
        self.out: dict[str, bytes] = {}
        self.wrong = 0

    def run(self, hook: OnStep) -> int:
        """Run a daemon until it is killed or ends; return its exit status."""
        changes = [hurry, watched(self.folder, self.documents, hook), *self.changes]
        status = wait(start(self.settings, self.folder, *changes, with_steps(hook)), self.folder)
        self.wrong += status == WRONG
        verify(self.folder)
        out = published(self.folder)
        assert self.out.items() <= out.items(), "what is out changed"
        self.out = out
        return status

    def end(self) -> Counter[str]:
        """Run a daemon to its end, and return what there is then."""
        if self.run(lambda name: None) == WRONG or self.wrong:
            return Counter(wrong=1)
        found = verify_end(self.folder, verify(self.folder), len(self.documents))
        return found + Counter(streams=1)


def _texts(source: Path) -> list[str]:
    return [json.loads(line)["text"] for line in source.read_text("utf-8").splitlines()]


if __name__ == "__main__":
    main({"any-moment": private, "steps": private_steps, "again": private_again})
