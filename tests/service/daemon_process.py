"""Parts that the tests of the daemon share: documents, settings, processes and their files."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from streamlda.container import to_json
from streamlda.model.topic_model import load
from streamlda.settings.table import SETTINGS
from streamlda.simulate import PlantedLDA
from streamlda.storage.checkpoint import read_state
from streamlda.storage.store import Store
from streamlda.utils.exit_codes import INTERNAL
from tests.service import planted

ROOT = Path(__file__).resolve().parents[2]
STREAMLDA = [sys.executable, "-P", "-m", "streamlda"]

#: No wait ends before, on however slow or busy a machine, unless something is wrong.
SECONDS = 300.0

#: A small engine: it learns some 50,000 documents a second.
SMALL = {
    "topics.count": 3,
    "topics.oversampling": 5,
    "topics.warmup_documents": 2000,
    "vocabulary.hash_bits": 8,
    "http.port": 0,
    "log.format": "json",
    "log.level": "debug",
    "checkpoint.interval": "0.1 s",
}


def texts(n, *, seed=1):
    corpus = PlantedLDA(3, 200, seed=seed, mean_length=20)
    corpus.words = planted.words(200)
    return [f"{number} {text}" for number, text in enumerate(corpus.texts(n))]


def write_documents(path, documents):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), "utf-8")
    return path


def settings_of(folder, source, flags=None, **more):
    changes = {**(flags or {}), **{name.replace("__", "."): value for name, value in more.items()}}
    found = {
        "source.kind": "files",
        "source.files": str(source),
        "checkpoint.folder": str(folder / "checkpoints"),
        "output.folder": str(folder / "snapshots"),
        **SMALL,
    }
    if changes.keys() & {"vocabulary.kind", "topics.projection_file"}:
        del found["vocabulary.hash_bits"]
    if "privacy.epsilon" in changes:
        del found["topics.warmup_documents"]
    return {**found, **changes}


def private_settings(folder, source, **flags):
    more = {
        **({} if "vocabulary.kind" in flags else {"vocabulary.hash_bits": 5}),
        "privacy.epsilon": 12.0,
        "privacy.delta": 1e-3,
        "privacy.ledger": str(folder / "ledger"),
        "snapshots.every": 500,
        "source.stream": "trial",
    }
    return settings_of(folder, source, {**more, **flags})


def arguments(settings):
    flags, sources = [], []
    for name, value in settings.items():
        if name == "source.files":
            sources.append(value)
        else:
            kind = SETTINGS[name].kind
            shown = str(value).lower() if kind == "bool" else value
            flags += ["--set", f"{name}{'_file' if kind == 'secret' else ''}={shown}"]
    return [*STREAMLDA, "run", *flags, *sources]


#: Stands in place of ``-m streamlda``, with changes to the code before the command runs.
CHANGED = """
from streamlda.__main__ import main
main()
"""

#: Lets a daemon take longer to end than it has, on a machine that is slow or busy.
PATIENT = """
from dataclasses import replace
from streamlda.service import running, signals
signals.LATEST_EXIT_SECONDS = 300.0
make_rules = running.make_rules
running.make_rules = lambda settings: replace(make_rules(settings), grace_seconds=250.0)
"""


def changed(settings, lines):
    python, safe, _, _, *rest = arguments(settings)
    return [python, safe, "-c", lines + CHANGED, *rest]


def environment(**more):
    found = {name: v for name, v in os.environ.items() if not name.startswith("STREAMLDA_")}
    return {**found, "OPENBLAS_NUM_THREADS": "1", **more}


class Daemon:
    """A daemon in a process of its own, and the log lines that it wrote; it logs JSON."""

    def __init__(self, settings, command=None, **options):
        options.setdefault("env", environment())
        command = command or changed(settings, PATIENT)
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
        )
        self.raw = []
        self._came = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self._came:
                self.raw.append(line)
                self._came.notify_all()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.end()

    @property
    def lines(self):
        with self._came:
            return [json.loads(line) for line in self.raw]

    def events(self, name):
        return [line for line in self.lines if line["event"] == name]

    def wait_for(self, name, n=1, seconds=SECONDS):
        until = time.monotonic() + seconds
        with self._came:
            while len(found := self.events(name)) < n:
                left = until - time.monotonic()
                assert left > 0, f"no {name} came: {b''.join(self.raw).decode()}"
                self._came.wait(left)
        return found[n - 1]

    def end(self, seconds=SECONDS):
        code = self.process.wait(seconds)
        self._reader.join()
        if not self.process.stdout.closed:
            assert self.process.stdout.read() == b"", "all that is said is said in the log"
            self.process.stdout.close()
            self.process.stderr.close()
        return code

    def stop(self, number=signal.SIGTERM):
        """End by a signal; return the exit code. The log of an internal error is printed."""
        self.process.send_signal(number)
        code = self.end()
        if code == INTERNAL:
            print(b"".join(self.raw).decode())
        return code


def run_to_end(settings, **options):
    with Daemon(settings, **options) as daemon:
        code = daemon.end()
    assert code == 0, b"".join(daemon.raw).decode()
    return daemon


def few_or(few, many):
    """Return few in every run of the tests, and many in a long one."""
    return [few, pytest.param(many, marks=pytest.mark.soak)]


class Left(NamedTuple):
    """Digests of the files of a run, without times, to be compared."""

    state: str
    place: str
    about: str
    snapshots: dict[int, str]


def left_by(folder):
    with Store.open(folder / "checkpoints") as store:
        newest = store.newest()
    assert newest.skipped == ()
    arrays, metadata, _ = read_state(folder / "checkpoints" / f"state-{newest.generation:06d}")
    named = {name: [str(array.dtype), array.shape] for name, array in sorted(arrays.items())}
    learned = {name: metadata[name] for name in ("state", "run", "vocabulary")}
    parts = [to_json([learned, named]).encode()]
    state = b"".join(parts + [arrays[name].tobytes() for name in named])
    # The end of a file is a position in it, or the beginning of the next: either may be kept.
    place = to_json(newest.position.get("records", newest.position))
    return Left(_digest(state), place, to_json(newest.about), snapshots_in(folder))


def snapshots_in(folder):
    found = {}
    for path in sorted((folder / "snapshots").glob("snapshot-??????")):
        model = load(path)
        arrays = (model.components, model.alpha, model.background)
        values = (model.settings, model.diagnostics, model.documents_seen, model.privacy)
        content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        found[int(path.name[-6:])] = _digest(content + to_json(values).encode())
    return found


def _digest(content):
    return hashlib.blake2b(content, digest_size=16).hexdigest()
