"""Releases that are killed: scenes of a `tests.crashes.CrashProcess`.

A worker writes down every draw of noise, on the disk, before it uses it. After each crash
every draw was paid for, no release drew twice, what was published has not changed, and the
ledger's checksums hold.
"""

import hashlib
import os
import resource
import shutil
import signal
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from streamlda.errors import LedgerError
from streamlda.privacy.costs import cost
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.ledger import Ledger, LedgerTerms
from streamlda.privacy.ledger.documents import KEY_BYTES
from streamlda.privacy.ledger.ledger import unpublished_path
from streamlda.privacy.ledger.terms import round_up
from tests.crashes import fork, kill_after, serve, wait
from tests.privacy.ledger_cases import cohort_of

TERMS = LedgerTerms(epsilon=1.0, delta=1e-6, privacy_unit="user")
EVENT = GaussianRelease(1000.0)
PRICE = Fraction(cost(EVENT).mu_squared)

REFUSED, CANNOT_WRITE = 3, 4
STATUSES = {LedgerError: REFUSED, OSError: CANNOT_WRITE}


def write_draw(folder, *values):
    with (folder / "draws").open("a") as draws:
        print(*values, file=draws, flush=True)
        os.fsync(draws.fileno())


def read_draws(folder):
    """Return what was written down; a line that was cut short was not used yet."""
    text = (folder / "draws").read_text() if (folder / "draws").exists() else ""
    return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]


def release(folder, ledger):
    last = ledger.last_release
    start = 0 if last is None else last.cohort.documents[0].stop
    if last is not None:
        with pytest.raises(LedgerError, match="two releases"):
            ledger.begin(last.cohort, EVENT)
    intent = ledger.begin(cohort_of(start, start + 10), EVENT)
    noise = os.urandom(2000)
    write_draw(folder, intent.number, start, hashlib.blake2b(noise).hexdigest())
    final = folder / f"artifact-{intent.number}"
    with unpublished_path(final).open("wb", buffering=0) as file:
        file.write(noise[:1000])
        file.write(noise[1000:])
    ledger.publish(intent, final)


def work(folder, releases, on_step=None):
    with Ledger.open(folder / "ledger", TERMS, create=True, on_step=on_step) as ledger:
        ledger.recover()
        for _ in range(releases):
            release(folder, ledger)


def verify(folder, *, recover=False):
    """Assert all that must hold after a crash, and return what became of the last release."""
    draws = read_draws(folder)
    if not (folder / "ledger").exists():
        assert not draws
        keys = folder.glob("ledger.documents")
        assert all(key.stat().st_size == KEY_BYTES for key in keys)
        return "none"
    with Ledger.open(folder / "ledger", TERMS) as ledger:
        if recover:
            ledger.recover()
            assert ledger.recover() is None
            assert ledger.pending is None
        report = ledger.report()
    spent = Fraction(report["spent"]["mu_squared"])
    shots = {shot["intent"]: shot for shot in report["snapshots"]}
    assert sorted(shots) == list(range(1, report["generation"] + 1))
    numbers = [int(number) for number, _, _ in draws]
    assert len(set(numbers)) == len(numbers)
    assert all(shots[int(number)]["slots"][0] == int(start) for number, start, _ in draws)
    assert len({start for _, start, _ in draws}) == len(draws)
    assert len({shot["slots"][0] for shot in shots.values()}) == len(shots)
    assert spent == Fraction(round_up(len(shots) * PRICE))

    noise = {int(number): digest for number, _, digest in draws}
    for number, shot in shots.items():
        artifact = folder / f"artifact-{number}"
        if shot["state"] == "committed" or artifact.exists():
            content = artifact.read_bytes()
            assert shot["state"] != "lost"
            assert hashlib.blake2b(content, digest_size=32).hexdigest() == shot["digest"]
            assert hashlib.blake2b(content).hexdigest() == noise[number]
    assert len(list(folder.glob("artifact-*[0-9]"))) <= len(shots)
    return str(shots[max(shots)]["state"]) if shots else "none"


def published(folder):
    paths = [*folder.glob("artifact-*[0-9]"), *folder.glob("ledger.releases/*.safetensors")]
    return {path.name: path.read_bytes() for path in paths}


def any_moment(scratch, kills, seed, work=work, verify=verify):
    """Kill a worker at random moments; one ledger survives thirty crashes."""
    rng = np.random.default_rng(seed)
    outcomes = Counter()
    folder, before = scratch, {}
    for i in range(kills):
        if i % 30 == 0:
            folder, before = scratch / str(i), {}
            folder.mkdir()
        kill_after(int(rng.integers(0, 90)), lambda on_step, f=folder: work(f, 1000, on_step))
        outcomes[f"killed {verify(folder)}"] += 1
        after = published(folder)
        assert before.items() <= after.items()
        before = after
        if rng.random() < 0.3:
            verify(folder, recover=True)
            before = published(folder)
            assert after.items() <= before.items()
    outcomes["artifacts"] = sum(len(published(folder)) for folder in scratch.iterdir())
    return outcomes


def full_disk(scratch):
    """Let no file grow beyond a limit, for every limit that a release can meet."""
    outcomes = Counter()
    model = scratch / "model"
    model.mkdir()
    work(model, 12)
    size = (model / "ledger").stat().st_size

    def limited(folder, limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        work(folder, 12)

    for limit in range(0, 5 * size // 2, 2000):
        folder = scratch / str(limit)
        shutil.copytree(model, folder)
        status = wait(fork(lambda f=folder, n=limit: limited(f, n), STATUSES))
        outcomes[str(status)] += 1
        before = published(folder)
        verify(folder)
        verify(folder, recover=True)
        assert before.items() <= published(folder).items()
        work(folder, 1)
        shutil.rmtree(folder)
    return outcomes


def full_disk_for_repeats(scratch):
    """Let no file grow to the size that repeats are counted with: no release is charged."""

    def begin(limit):
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with Ledger.open(scratch / "ledger", TERMS, create=True) as ledger:
            ledger.recover()
            start = 2000 * ledger.generation
            values = np.arange(start, start + 2000, dtype=np.uint64)
            ledger.begin(replace(cohort_of(start, start + 2000), values=values), EVENT)

    limits = (None, 8000, 8000, None)
    statuses = [str(wait(fork(lambda n=n: begin(n), STATUSES))) for n in limits]
    with Ledger.open(scratch / "ledger", TERMS) as ledger:
        return Counter(statuses) + Counter(charged=ledger.generation)


def forked_writer(scratch):
    """A child must not write with its parent's ledger, nor keep it locked."""
    ledger = Ledger.open(scratch / "ledger", TERMS, create=True)
    cohort = cohort_of(0, 1)
    read_end, write_end = os.pipe()

    def misuse():
        try:
            ledger.begin(cohort, EVENT)
        except LedgerError as error:
            if "fork" in str(error):
                os.write(write_end, b".")
                signal.pause()

    child = fork(misuse)
    try:
        os.close(write_end)
        assert os.read(read_end, 1) == b".", "a child wrote with its parent's ledger"
        ledger.begin(cohort, EVENT)
        ledger.close()
        with Ledger.open(scratch / "ledger") as again:
            assert again.generation == 1
    finally:
        os.kill(child, signal.SIGKILL)
    return Counter(status=wait(child))


if __name__ == "__main__":
    serve(
        {
            "any-moment": any_moment,
            "full-disk": full_disk,
            "full-disk-for-repeats": full_disk_for_repeats,
            "forked-writer": forked_writer,
        }
    )
