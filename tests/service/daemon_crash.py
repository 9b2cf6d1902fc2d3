"""Daemons that are killed: run by tests as ``python -m tests.service.daemon_crash``.

This process imports all there is and forks one daemon after the other: each is a process of its
own, with the threads, files and signals of ``streamlda run``, but without the second that the
interpreter takes to start. Run with one thread for BLAS. It prints what it counted.

A crash at a step is one of a *stream*: a folder that lives through its crashes until its daemon
ends by itself. Then all that it left must be as if there had been none.
"""

import json
import os
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from streamlda.kernels import load_kernels
from streamlda.privacy.ledger import Ledger
from streamlda.service import running
from streamlda.service.logs import start_logging
from streamlda.service.signals import leave
from streamlda.service.worker import Worker
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store
from tests.service.daemon_process import left_by, settings_of

#: Exit status of a daemon that saw what must never be.
WRONG = 99

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
    child = os.fork()
    if child:
        return child
    try:
        os.dup2(os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        for change in changes:
            change()
        checked = load_settings(environment={}, flags=settings)
        start_logging(checked["log.format"], checked["log.level"])
        leave(running.run(checked))
    except BaseException as error:
        print(f'{{"event": "not-started", "error": {json.dumps(repr(error))}}}', file=sys.stderr)
    finally:
        os._exit(1)


def wait(child, folder):
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    log = (folder / "log").read_text() if (folder / "log").exists() else ""
    assert status in (0, WRONG, -signal.SIGKILL), f"a daemon failed with {status}: {log[-3000:]}"
    return status


def die_at(step):
    """Return a hook that kills the process at a step, counted from 0."""
    steps = iter(range(step + 1))

    def on_step(name):
        if next(steps, None) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def die_when(wanted):
    def on_step(name):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


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
    rules_of = running.rules_of
    running.rules_of = lambda settings: replace(
        rules_of(settings), poll_records=100 if settings.private else 700, checkpoint_seconds=1e-9
    )


# Mistakes that the tests must find.


def forget_rows():
    """Leave out of the checkpoint what waits for its block."""
    capture = Store.capture
    Store.capture = lambda *args: capture(*args[:-1])


def publish_again():
    """Publish each release under a new number, however often it is made."""
    Store.publish = lambda self, model: (
        number := (self.snapshots.latest() or 0) + 1,
        self.snapshots.publish(number, model),
    )[0]


#: Each with the step to kill at.
BUGS = {
    "forget-rows": ("save:cleaned", forget_rows),
    "publish-again": ("publish:end", publish_again),
}


class Stream:
    """A folder, and the daemons that work in it; its kinds say what was `found` in the end."""

    def __init__(self, folder, settings, mistakes=(), hurried=True):
        folder.mkdir()
        self.folder, self.settings = folder, settings
        self.code_changes = [*([hurry] if hurried else []), *mistakes]

    def changes(self, hook):
        # The hook comes last, and so is around the mistakes.
        return [*self.code_changes, with_steps(hook)]

    def run(self, hook=lambda name: None):
        return wait(start(self.settings, self.folder, *self.changes(hook)), self.folder)


def at_steps(stream_of, stride, first, again=False):
    """Kill at every n-th step, if `again` each other time twice in a row; then go on."""
    counted, status, step = Counter(), -signal.SIGKILL, first
    while status == -signal.SIGKILL:
        stream = stream_of(str(step))
        status = stream.run(die_at(step))
        counted["killed"] += status == -signal.SIGKILL
        if again and step % 2:
            stream.run(die_at(step // 2 % 60))
        stream.run()
        counted.update(stream.found())
        step += stride
    return counted


class PublicStream(Stream):
    """All must be as in an undisturbed run, to the last bit."""

    def __init__(self, folder, flags, wanted=None, mistakes=(), hurried=True):
        source = folder.parent / "documents.jsonl"
        super().__init__(folder, settings_of(folder, source, flags), mistakes, hurried)
        self.wanted = wanted

    def found(self):
        return Counter(streams=1, same=left_by(self.folder) == self.wanted)


def _twin(scratch, kind):
    stream = PublicStream(scratch / "twin", STEPS[kind], hurried=False)
    assert stream.run() == 0
    return left_by(stream.folder)


def public_steps(scratch, stride, first, kind):
    wanted = _twin(scratch, kind)
    return at_steps(lambda name: PublicStream(scratch / name, STEPS[kind], wanted), stride, first)


def public_mistakes(scratch):
    """Kill at a named step, without a mistake in the code and with each; then go on."""
    wanted, counted = _twin(scratch, "hashed"), Counter()
    for bug, (name, *mistakes) in {"right": ("save:cleaned",), **BUGS}.items():
        stream = PublicStream(scratch / bug, STEPS["hashed"], wanted, mistakes)
        assert stream.run(die_when(name)) == -signal.SIGKILL
        assert stream.run() == 0
        counted[bug] = stream.found()["same"]
    return counted


def main(tasks):
    task, scratch, *rest = sys.argv[1:]
    values = [int(value) if value.isdecimal() else value for value in rest]
    load_kernels()
    print(json.dumps(tasks[task](Path(scratch), *values)))


if __name__ == "__main__":
    main({"steps": public_steps, "mistakes": public_mistakes})
