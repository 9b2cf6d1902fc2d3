"""Daemons killed at any step: in the end everything is as if nobody had killed them.

A crash at a step is one of a *stream*: a folder that lives through its crashes until its daemon
ends by itself; each daemon is a process of its own, with the threads, files and signals of
``streamlda run``. Of private ones nothing is released twice, and nothing that is out changes:
`verify` says what must hold after every crash, and `verify_end` what must be there in the end.
"""

import os
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest

from streamlda.container import read_arrays
from streamlda.kernels import load_kernels
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import Ledger
from streamlda.privacy.statement import PRIVATE, check_statement
from streamlda.private.release_manager import RELEASE_FORMAT, RELEASE_VERSION, ReleaseManager
from streamlda.service import running
from streamlda.service.logs import start_logging
from streamlda.service.signals import leave
from streamlda.service.worker import Worker
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store
from tests.crashes import KILLED, CrashProcess, die_at, die_when, fork, kill_at_steps, serve, wait
from tests.service.daemon_process import (
    Left,
    environment,
    few_or,
    left_by,
    private_settings,
    settings_of,
    texts,
    write_documents,
)

STEPS = {
    # The documents do not follow this model, so that topics are refined; the others' stay spectral.
    "hashed": {"snapshots.every": 2000, "topics.warmup_documents": 3000, "topics.alpha_0": 10.0},
    "learned": {
        "snapshots.every": 2000,
        "vocabulary.kind": "learned",
        "vocabulary.size": 150,
        "vocabulary.documents": 3000,
    },
}


def start(settings, folder, *changes):
    def run():
        os.dup2(os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        for change in changes:
            change()
        checked = load_settings(environment={}, flags=settings)
        start_logging(checked["log.format"], checked["log.level"])
        leave(running.run(checked))

    return fork(run)


def with_steps(on_step):
    """Return a change that calls the hook around all that becomes durable."""

    def opened_with_hook(made):
        return lambda *args, **options: made(*args, on_step=on_step, **options)

    def around(inner, name):
        def outer(*args, **options):
            on_step(f"{name}:begin")
            result = inner(*args, **options)
            on_step(f"{name}:end")
            return result

        return outer

    def change():
        for kind in (Store, Ledger):
            kind.open = opened_with_hook(kind.open)
        for owner, names in ((Store, ("publish",)), (Worker, ("_take", "_release"))):
            for name in names:
                setattr(owner, name, around(getattr(owner, name), name))

    return change


def hurry():
    """Poll little, and checkpoint whenever it is allowed: beside polls that run ahead."""
    make_rules = running.make_rules
    running.make_rules = lambda settings: replace(
        make_rules(settings), poll_records=100 if settings.private else 700, checkpoint_seconds=1e-9
    )


class Stream:
    """A folder, and the daemons that work in it; its kinds say what was `found` in the end."""

    def __init__(self, folder, settings, hurried=True):
        folder.mkdir()
        self.folder, self.settings, self._hurried = folder, settings, hurried

    def changes(self, hook):
        return [*([hurry] if self._hurried else []), with_steps(hook)]

    def run(self, hook=lambda name: None):
        status = wait(start(self.settings, self.folder, *self.changes(hook)), self.folder / "log")
        assert status in (0, KILLED)
        return status


def at_steps(stream_of, stride, first, again=False):
    """Kill at every n-th step, if `again` each other time twice in a row; then continue."""
    counted, streams = Counter(), {}

    def kill(step):
        streams[step] = stream_of(str(step))
        return streams[step].run(die_at(step))

    for step, status in kill_at_steps(kill, first, stride):
        stream = streams.pop(step)
        counted["killed"] += status == KILLED
        if again and step % 2:
            stream.run(die_at(step // 2 % 60))
        stream.run()
        counted.update(stream.found())
    return counted


class PublicStream(Stream):
    """All must be as in an undisturbed run, to the last bit."""

    def __init__(self, folder, flags, wanted=None, hurried=True):
        source = folder.parent / "documents.jsonl"
        super().__init__(folder, settings_of(folder, source, flags), hurried)
        self.wanted = wanted

    def found(self):
        pairs = zip(left_by(self.folder), self.wanted, Left._fields, strict=True)
        others = [f"other {name}" for left, wanted, name in pairs if left != wanted]
        return Counter(["streams", *(others or ["same"])])


def public_steps(scratch, stride, first, kind):
    twin = PublicStream(scratch / "twin", STEPS[kind], hurried=False)
    assert twin.run() == 0
    wanted = left_by(twin.folder)
    return at_steps(lambda name: PublicStream(scratch / name, STEPS[kind], wanted), stride, first)


WINDOW = ("norms", "pairs", "triple norms", "triples")

KINDS = {
    "hashed": {},
    "private": {"vocabulary.kind": "private", "vocabulary.size": 30, "vocabulary.documents": 300},
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
    ("hashed", "publish:end", 2): 0,
}


def watched(folder, on_step):
    """Return a change that notes draws of noise, on the disk, before they are used."""

    def change():
        release = ReleaseManager.release

        def noted_release(self, name, first, last, event, draw, *about, **more):
            def noted_draw(noise):
                with (folder / "draws").open("a") as draws:
                    draws.write(f"{self.ledger.pending.number} {first} {last}\n")
                    draws.flush()
                    os.fsync(draws.fileno())
                on_step("draw:begin")
                drawn = draw(noise)
                on_step("draw:end")
                return drawn

            return release(self, name, first, last, event, noted_draw, *about, **more)

        ReleaseManager.release = noted_release

    return change


def published(folder):
    files = [
        *folder.glob("ledger.releases/*.safetensors"),
        *folder.glob("snapshots/snapshot-??????"),
    ]
    return {path.name: path.read_bytes() for path in files}


def verify(folder):
    """Assert what must hold after every crash; return the releases in order."""
    text = (folder / "draws").read_text() if (folder / "draws").exists() else ""
    # Of a line cut short nothing was used yet.
    draws = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if not (folder / "ledger").exists():
        assert not draws
        return []
    with Ledger.open(folder / "ledger") as ledger:
        shots = ledger.report()["snapshots"]
        spent, budget = ledger.epsilon_spent, ledger.terms.epsilon
    by_number = {shot["intent"]: shot for shot in shots}
    assert len({number for number, *_ in draws}) == len(draws), "noise was drawn twice"
    place, source = 0, str((folder.parent / "documents.jsonl").resolve())
    for shot in shots:
        ((name, first, last),) = shot["documents"]
        assert (name, first) == (source, place), "every place is in one release"
        assert shot["slots"] == [first, last]
        place = last
    for number, first, last in draws:
        assert by_number[int(number)]["slots"] == [int(first), int(last)]
    drawn = {int(number) for number, *_ in draws}
    for number, shot in by_number.items():
        if shot["state"] == "committed":
            assert number in drawn
            (path,) = folder.glob(f"ledger.releases/{number:06d}-*.safetensors")
            stored = read_arrays(path, RELEASE_FORMAT, RELEASE_VERSION).metadata
            assert [stored["first"], stored["last"] + 1] == shot["slots"]
    # Documents are in one release each: they never pay more than the price of one.
    assert spent <= budget
    assert spent > 0 or not shots
    return shots


def verify_end(folder, shots, slots):
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
    with Store.open(folder / "checkpoints") as store, Ledger.open(folder / "ledger") as ledger:
        newest = store.newest(ledger)
    assert newest is not None
    return Counter(snapshots=len(models), lost=sum(shot["state"] == "lost" for shot in shots))


class PrivateStream(Stream):
    """Stream of which releases stay, and nothing is released twice."""

    def __init__(self, folder, kind):
        source = folder.parent / "documents.jsonl"
        self.slots = len(source.read_text().splitlines())
        flags = {**KINDS[kind], "checkpoint.interval": "1 h"}
        super().__init__(folder, private_settings(folder, source, **flags))
        self.out = {}

    def changes(self, hook):
        return [watched(self.folder, hook), *super().changes(hook)]

    def run(self, hook=lambda name: None):
        status = super().run(hook)
        verify(self.folder)
        out = published(self.folder)
        assert self.out.items() <= out.items(), "what is out changed"
        self.out = out
        return status

    def found(self):
        return verify_end(self.folder, verify(self.folder), self.slots) + Counter(streams=1)


def private_steps(scratch, stride, first, kind):
    return at_steps(lambda name: PrivateStream(scratch / name, kind), stride, first, again=True)


def private_again(scratch):
    counted = Counter()
    for case, lost in AGAIN.items():
        kind, name, times = case
        stream = PrivateStream(scratch / "-".join(map(str, case)), kind)
        for _ in range(times):
            counted["killed"] += stream.run(die_when(name)) == KILLED
        stream.run()
        found = stream.found()
        assert found["lost"] == lost, (case, found)
        assert found["snapshots"] >= 2, (case, found)
        counted.update(found)
    return counted


@pytest.fixture(scope="module")
def crash_process():
    with closing(CrashProcess(__name__, environment())) as process:
        yield process


@pytest.fixture
def crash_run(tmp_path, crash_process):
    def run(n_documents, task, *values):
        write_documents(tmp_path / "documents.jsonl", texts(n_documents))
        return crash_process.run(task, tmp_path, *values)

    return run


@pytest.mark.long
@pytest.mark.parametrize("kind", ["hashed", "learned"])
@pytest.mark.parametrize("stride", few_or(29, 1))
def test_a_kill_at_any_step_changes_nothing(crash_run, kind, stride):
    found = crash_run(5500, "steps", stride, stride // 2, kind)
    # How many steps there are depends on how far learning runs ahead of writing.
    killed = found["killed"]
    assert killed >= 30 // stride
    assert found == {"killed": killed, "streams": killed + 1, "same": killed + 1}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["hashed", "private"])
@pytest.mark.parametrize("stride", few_or(97, 1))
def test_a_kill_at_any_step_releases_nothing_twice(crash_run, kind, stride):
    found = crash_run(1400, "private-steps", stride, stride // 2, kind)
    assert found["killed"] == found["streams"] - 1 >= 150 // stride
    assert found["snapshots"] >= 2 * found["streams"] - 2 * found["lost"]


@pytest.mark.long
def test_private_crashes_in_a_row_lead_on(crash_run):
    found = crash_run(2500, "again")
    assert (found["killed"], found["streams"], found["lost"]) == (16, 6, 5)


if __name__ == "__main__":
    load_kernels()
    serve({"steps": public_steps, "private-steps": private_steps, "again": private_again})
