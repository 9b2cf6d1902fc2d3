"""Daemons that are killed: scenes of a `tests.crashes.CrashProcess` with one thread for BLAS.

Each daemon is a process of its own, with the threads, files and signals of ``streamlda run``.

A crash at a step is one of a *stream*: a folder that lives through its crashes until its daemon
ends by itself. Then all that it left must be as if there had been none.
"""

import os
from collections import Counter
from dataclasses import replace

from streamlda.kernels import load_kernels
from streamlda.privacy.ledger import Ledger
from streamlda.service import running
from streamlda.service.logs import start_logging
from streamlda.service.signals import leave
from streamlda.service.worker import Worker
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store
from tests.crashes import KILLED, die_at, fork, kill_at_steps, serve, wait
from tests.service.daemon_process import Left, left_by, settings_of

STEPS = {
    # The documents do not follow this model, so that topics are refined; the others' stay spectral.
    "hashed": {
        "snapshots.every": 2000,
        "topics.warmup_documents": 3000,
        "topics.alpha_0": 10.0,
    },
    "learned": {
        "snapshots.every": 2000,
        "vocabulary.kind": "learned",
        "vocabulary.size": 150,
        "vocabulary.documents": 3000,
    },
}


def start(settings, folder, *changes):
    """Fork a daemon, with changes to its code; return its process id."""

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
        for owner, names in ((Store, ("publish", "send")), (Worker, ("_take", "_release"))):
            for name in names:
                setattr(owner, name, around(getattr(owner, name), name))

    return change


def hurry():
    """Poll little, and checkpoint whenever it is allowed: beside polls that run ahead."""
    make_rules = running.make_rules
    running.make_rules = lambda settings: replace(
        make_rules(settings), poll_records=100 if settings.private else 700, checkpoint_seconds=1e-9
    )


# Mistakes that the tests must find.


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


if __name__ == "__main__":
    load_kernels()
    serve({"steps": public_steps})
