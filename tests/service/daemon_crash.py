"""Daemons that are killed: run by tests as ``python -m tests.service.daemon_crash``.

This process imports all there is and forks one daemon after the other: each is a process of its
own, with the threads, files and signals of ``streamlda run``, but without the second that the
interpreter takes to start. Run with one thread for BLAS. It prints what it counted.

A crash at a step is one of a *stream*: a folder that lives through its crashes until its daemon
ends by itself. Then all that it left must be as if there had been none.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamlda.kernels import load_kernels
from streamlda.privacy.ledger import Ledger
from streamlda.service import running
from streamlda.service.daemon import leave
from streamlda.service.logs import start_logging
from streamlda.service.worker import Worker
from streamlda.settings.load import load_settings
from streamlda.storage.checkpoint import Checkpoints
from streamlda.storage.publishing import Publisher
from tests.service.daemon_process import Left, left_by, settings_of

OnStep = Callable[[str], None]

#: Exit status of a daemon that saw what must never be.
WRONG = 99

PUBLIC: dict[str, dict[str, Any]] = {
    # The documents do not follow this model, so that topics are refined; the others' stay spectral.
    "hashed": {"snapshots.every": 5000, "topics.alpha_0": 10.0},
    "learned": {
        "snapshots.every": 5000,
        "vocabulary.kind": "learned",
        "vocabulary.size": 150,
        "vocabulary.documents": 3000,
    },
}


def start(settings: dict[str, Any], folder: Path, *changes: Callable[[], None]) -> int:
    """Fork a daemon, with changes to its code; return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 2)
        for change in changes:
            change()
        checked = load_settings(environment={}, flags=settings)
        start_logging(checked["log.format"], checked["log.level"])
        leave(running.run(checked))
    except BaseException as error:
        print(f'{{"event": "not-started", "error": {json.dumps(repr(error))}}}', file=sys.stderr)
    finally:
        os._exit(1)


def wait(child: int, folder: Path) -> int:
    """Return the exit status of a daemon, or minus the signal that ended it."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    log = (folder / "log").read_text() if (folder / "log").exists() else ""
    assert status in (0, WRONG, -signal.SIGKILL), f"a daemon failed with {status}: {log[-3000:]}"
    return status


def kill_at_random(child: int, folder: Path, moments: random.Random, seconds: float) -> None:
    """Kill a daemon anywhere within that time, or soon after the next checkpoint it makes."""
    log = folder / "log"
    read = log.stat().st_size if log.exists() else 0
    anywhere = moments.random() < 0.3
    delay = moments.uniform(0.0, seconds if anywhere else seconds / 10)
    until = time.monotonic() + 60
    while not anywhere and time.monotonic() < until:
        found = log.read_bytes()[read:] if log.exists() else b""
        if b'"checkpoint"' in found or b'"exit"' in found:
            break
        time.sleep(0.003)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)


def die_at(step: int) -> OnStep:
    """Return a hook that kills the process at a step, counted from 0."""
    steps = iter(range(step + 1))

    def on_step(name: str) -> None:
        if next(steps, None) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def die_when(wanted: str) -> OnStep:
    """Return a hook that kills the process at the first step of that name."""

    def on_step(name: str) -> None:
        if name == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def with_steps(on_step: OnStep) -> Callable[[], None]:
    """Return a change that calls the hook around all that becomes durable."""

    def change() -> None:
        for kind in (Checkpoints, Ledger):
            _with_hook(kind, on_step)
        for owner, name in (
            (Publisher, "store"),
            (Publisher, "send"),
            (Worker, "_take"),
            (Worker, "_release"),
        ):
            _around(owner, name, on_step)

    return change


def _with_hook(kind: Any, on_step: OnStep) -> None:
    made = kind.open
    kind.open = lambda *args, **options: made(*args, on_step=on_step, **options)


def _around(owner: Any, name: str, on_step: OnStep) -> None:
    inner = getattr(owner, name)

    def outer(*args: Any, **options: Any) -> Any:
        on_step(f"{name}:begin")
        result = inner(*args, **options)
        on_step(f"{name}:end")
        return result

    setattr(owner, name, outer)


def hurry() -> None:
    """Poll little, and checkpoint whenever it is allowed: beside polls that run ahead."""
    rules_of = running.rules_of
    running.rules_of = lambda settings: replace(
        rules_of(settings),
        poll_records=100 if settings.private else 700,
        checkpoint_seconds=1e-9,
    )


# Mistakes that the tests must find.


def save_what_is_read() -> None:
    """Save the position of what was polled, not of what was learned."""
    from streamlda.service.daemon import Daemon

    inner = Daemon._carry_out

    def outer(self: Any, instruction: Any) -> None:
        self._learned_to = self._polled_to
        inner(self, instruction)

    Daemon._carry_out = outer  # type: ignore[method-assign]
    # Slow learning lets polls run ahead.
    learn = Worker._learn

    def slowly(self: Any, batch: Any) -> None:
        time.sleep(0.1)
        learn(self, batch)

    Worker._learn = slowly  # type: ignore[method-assign]


def forget_rows() -> None:
    """Leave out of the checkpoint what waits for its block."""
    capture = Checkpoints.capture
    Checkpoints.capture = lambda *args: capture(*args[:-1])  # type: ignore[method-assign]


def publish_again() -> None:
    """Publish each release under a new number, however often it is made."""
    Publisher.store = lambda self, model: (  # type: ignore[method-assign]
        number := (self.snapshots.latest() or 0) + 1,
        self.snapshots.publish(number, model),
    )[0]


#: Each with the step to kill at.
BUGS: dict[str, tuple[str, Callable[[], None]]] = {
    "save-what-is-read": ("save:cleaned", save_what_is_read),
    "forget-rows": ("save:cleaned", forget_rows),
    "publish-again": ("store:end", publish_again),
}


# Public streams: all is as in an undisturbed run, to the last bit.


def public(scratch: Path, kills: int, seed: int) -> Counter[str]:
    """Kill at random moments; each stream must end as its undisturbed twin."""
    moments, counted = random.Random(seed), Counter[str]()
    source = scratch / "documents.jsonl"
    for kind, flags in PUBLIC.items():
        twin = scratch / kind
        twin.mkdir()
        settings = settings_of(twin, source, flags)
        began = time.monotonic()
        assert wait(start(settings, twin), twin) == 0
        seconds, wanted = time.monotonic() - began, left_by(twin)
        killed = 0
        while killed < kills / len(PUBLIC):
            counted["streams"] += 1
            folder = scratch / f"{kind}-{counted['streams']}"
            folder.mkdir()
            settings = settings_of(folder, source, flags)
            status = -1
            while status:
                child = start(settings, folder)
                kill_at_random(child, folder, moments, seconds)
                status = wait(child, folder)
                killed += status != 0
            counted["same"] += left_by(folder) == wanted
        counted["killed"] += killed
    return counted


def public_steps(scratch: Path, stride: int, first: int) -> Counter[str]:
    """Kill at every n-th step; then go on."""
    counted = Counter[str]()
    wanted = _twin(scratch)
    status, step = -signal.SIGKILL, first
    while status == -signal.SIGKILL:
        folder = scratch / str(step)
        folder.mkdir()
        settings = steps_settings(folder, scratch)
        status = wait(start(settings, folder, hurry, with_steps(die_at(step))), folder)
        counted["killed"] += status != 0
        assert wait(start(settings, folder, hurry), folder) == 0
        counted["streams"] += 1
        counted["same"] += left_by(folder) == wanted
        step += stride
    return counted


def public_mistakes(scratch: Path) -> Counter[str]:
    """Kill at a named step, without a mistake in the code and with each; then go on."""
    wanted, counted = _twin(scratch), Counter[str]()
    for bug, (name, change) in {"right": ("save:cleaned", hurry), **BUGS}.items():
        folder = scratch / bug
        folder.mkdir()
        settings = steps_settings(folder, scratch)
        # The hook comes last, and so is around the mistake.
        child = start(settings, folder, hurry, change, with_steps(die_when(name)))
        assert wait(child, folder) == -signal.SIGKILL
        assert wait(start(settings, folder, hurry, change), folder) == 0
        counted[bug] = int(left_by(folder) == wanted)
    return counted


def steps_settings(folder: Path, scratch: Path) -> dict[str, Any]:
    fixed = {"snapshots.every": 2000, "topics.warmup_documents": 3000}
    return settings_of(folder, scratch / "documents.jsonl", fixed)


def _twin(scratch: Path) -> Left:
    twin = scratch / "twin"
    twin.mkdir()
    assert wait(start(steps_settings(twin, scratch), twin), twin) == 0
    return left_by(twin)


def main(tasks: dict[str, Callable[..., Counter[str]]]) -> None:
    """Run the task that the arguments name, and print what it counted."""
    task, scratch, *rest = sys.argv[1:]
    values = [int(value) if value.isdecimal() else value for value in rest]
    load_kernels()
    print(json.dumps(tasks[task](Path(scratch), *values)))


if __name__ == "__main__":
    main({"any-moment": public, "steps": public_steps, "mistakes": public_mistakes})
