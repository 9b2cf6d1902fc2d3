"""Audit of whole private pipelines: from a file of records to all that a run lets out.

A run is `streamlda fit` in this process, with a file, a ledger and `SecureNoise`. The adversary
(`tests.private.audit`) has all releases and the published model. It runs the program again without
the canary, and lets the releases come out as they did (`reenact`): so it knows all sums but for
their noise, and the model that the releases lead to. A stream that is blank but for the canary
gives what the canary adds to each release.
"""

import copy
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from streamlda.container import read_arrays
from streamlda.errors import InsufficientDataError
from streamlda.guarantee.accounting import mu_of
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz
from streamlda.private.release_manager import RELEASE_FORMAT, RELEASE_VERSION, ReleaseManager
from streamlda.run import opening
from streamlda.run.fit import fit
from streamlda.settings.load import load_settings
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import WORDS
from tests.private.audit import Evidence, NoNoise, Release, Verdict, in_noise, less, look_along

EPSILON, DELTA = 1.0, 1e-6

CLAIM = mu_of(EPSILON, DELTA)


@dataclass(frozen=True)
class Canary:
    """A record that is at its slots, or another that is; `text` is blank without one."""

    name: str
    slots: tuple[int, ...]
    text: str
    other: str = ""


@dataclass(frozen=True)
class Run:
    releases: list[Release]
    published: object


def _stored(path, words):
    found = read_arrays(path, RELEASE_FORMAT, RELEASE_VERSION)
    arrays, about = found.arrays, found.metadata
    if about["stage"] != WORDS:
        # Besides sums, the first holds what a model of them needs.
        sums = {name: arrays[name] for name in about["stddevs"]}
        return Release(about["stage"], sums, sums, about["stddevs"])
    kept, values = kept_words(arrays), {}
    for name in ("weights", "votes"):
        found = dict(zip(kept, arrays[name], strict=True))
        values[name] = np.array([found.get(word, np.nan) for word in words])
    stddevs = dict(zip(values, about["selection"]["stddevs"], strict=True))
    return Release(WORDS, arrays, values, stddevs)


def kept_words(arrays):
    return arrays["words"].tobytes().decode("utf-8").split("\n")


def published(model):
    """Return all that a model says but where it comes from, to be compared bit by bit."""
    if model is None:
        return None
    arrays = (model.components, model.alpha, model.prevalence, model.background)
    of_ledger = ("ledger", "generation")
    promise = {name: said for name, said in model.privacy.items() if name not in of_ledger}
    words = model.vocabulary.words
    return [*(a.tobytes() for a in arrays), words, repr(model.diagnostics), repr(promise)]


class _Ended(Exception):
    """Nothing comes after it: of a process, or of the last release of a re-enacted run."""


class _AnotherWay(Exception):
    """The releases that came before led to another stage than they do here."""


class _Reenactment(ReleaseManager):
    """Lets releases come out as they did, and keeps what would have come out without noise."""

    def __init__(self, releases, words, to_the_end):
        super().__init__(NoNoise())
        self.left, self.sums, self._words = list(releases), [], words
        self._to_the_end = to_the_end

    def release(self, name, first, last, event, draw, about, config="", beside=None):
        known = self.left.pop(0)
        if known.stage != name:
            raise _AnotherWay
        if name == WORDS:
            self.sums.append(self._sums_of_words(draw.__self__._selection, known.arrays))
        else:
            self.sums.append(draw(self.noise))
        if not (self.left or self._to_the_end):
            raise _Ended
        return known.arrays

    def _sums_of_words(self, selection, arrays):
        """Return both rounds without noise; of hints, those of words that were kept are known."""
        hints = np.zeros(len(selection._numbers), dtype=np.int64)
        for word, weight in zip(kept_words(arrays), arrays["weights"], strict=True):
            if word in selection._numbers:
                hints[selection._numbers[word]] = round(weight / selection.step)
        at = [selection._numbers.get(word, -1) for word in self._words]
        rounds = {"weights": selection.weights(), "votes": selection.votes(hints)}
        return {name: np.append(found, 0)[at] * selection.step for name, found in rounds.items()}


@dataclass(frozen=True)
class Scene:
    """Records and settings of a run, and its canaries; `users` are whose the records are."""

    flags: Mapping[str, object]
    texts: tuple[str, ...]
    canaries: tuple[Canary, ...]
    users: tuple[str, ...] = ()
    taken_up: bool = False  # Whether runs end behind each release, and the command resumes them.

    def records(self, present):
        texts = list(self.texts)
        for number, canary in enumerate(self.canaries):
            for slot in canary.slots:
                texts[slot] = canary.text if number in present else canary.other
        return texts

    def alone(self, number, is_there):
        """Return a stream that is blank but for one canary, or what is there in its place."""
        texts, canary = [""] * len(self.texts), self.canaries[number]
        for slot in canary.slots:
            texts[slot] = canary.text if is_there else canary.other
        return texts

    @cached_property
    def whose(self):
        """Users of all slots: a canary's are its own."""
        users = list(self.users)
        if users:
            for canary in self.canaries:
                for slot in canary.slots:
                    users[slot] = canary.name
        return users

    @cached_property
    def words(self):
        texts = [*self.texts, *(f"{c.text} {c.other}" for c in self.canaries)]
        return sorted({word for text in texts for word in text.split()})

    @property
    def strategy(self):
        """Strategy of rounds of prefix mode: users are in all of them, each by itself."""
        none = ((), ()) if self.users else ()
        return BufferedToeplitz(*none, horizon=self.flags.get("snapshots.most"))

    def settings(self, folder):
        flags = {
            "source.files": [str(folder / ("records.jsonl" if self.users else "records.txt"))],
            "source.user_field": "user" if self.users else None,
            "vocabulary.file": str(folder / "words"),
            "topics.count": 2,
            "privacy.epsilon": EPSILON,
            "privacy.delta": DELTA,
            "privacy.ledger": str(folder / "ledger"),
            # So that each run has a model to look at.
            "privacy.publish_useless": True,
            "output.file": str(folder / "model"),
            "checkpoint.folder": str(folder / "kept") if self.taken_up else None,
            **self.flags,
        }
        if flags.get("vocabulary.kind") == "private":
            del flags["vocabulary.file"]
        given = {
            name: value if isinstance(value, list) else str(value)
            for name, value in flags.items()
            if value is not None
        }
        return load_settings(environment={}, flags=given, command="fit")

    def shows_a_lone_word(self, run):
        in_records = Counter(word for text in self.texts for word in set(text.split()))
        shown = {w for r in run.releases if r.stage == WORDS for w in kept_words(r.arrays)}
        return any(in_records[word] == 1 for word in shown)

    def prepared(self, folder):
        """Write the words, and return the settings and terms of runs that are re-enacted."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "words").write_text("\n".join(self.words) + "\n", "utf-8")
        settings = self.settings(folder)
        return settings, opening.PrivateTerms.of(settings)

    def perform(self, present, folder):
        self.prepared(folder)
        lines = self.records(present)
        if self.users:
            rows = zip(lines, self.whose, strict=True)
            lines = [json.dumps({"text": text, "user": user}) for text, user in rows]
        (path,) = self.settings(folder).source.files
        Path(path).write_text("".join(f"{line}\n" for line in lines), "utf-8")
        try:
            model = self._fit(self.settings(folder))
        except InsufficientDataError:
            model = None
        files = sorted((folder / "ledger.releases").iterdir())
        releases = [_stored(path, self.words) for path in files]
        shutil.rmtree(folder)
        return Run(releases, published(model))

    def _fit(self, settings):
        if not self.taken_up:
            return fit(settings).model
        release = ReleaseManager.release

        def ended(*given, **more):
            release(*given, **more)
            raise _Ended

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReleaseManager, "release", ended)
            while True:
                with suppress(_Ended):
                    return fit(settings).model

    def reenact(self, prepared, texts, releases, *, to_the_end=True):
        """Run the program with the releases of another run: sums without noise, and the model."""
        settings, terms = prepared
        terms = copy.deepcopy(terms)
        manager = _Reenactment(releases, self.words, to_the_end)
        pipeline = opening.make_private_pipeline(settings, terms, manager)
        model, at = None, 0
        while manager.left:
            start, at = at, at + pipeline.due
            if pipeline.learner is None or any(texts[start:at]):
                pipeline.add(RecordBatch(texts[start:at], users=self.whose[start:at]))
            else:
                # The same as blank records, and quicker.
                pipeline.learner.skip(at - start)
            try:
                model = pipeline.release().model or model
            except (InsufficientDataError, _Ended):
                break
        return manager.sums, published(model)


def audit(scene, n_runs, folder, *, echoes=True, seed=None, until=None):
    """Make runs, each canary in half of them, and return the verdict."""
    prepared = scene.prepared(folder / "known")
    rng = np.random.default_rng(seed)
    half = np.arange(n_runs) % 2 == 0
    bits = np.array([rng.permutation(half) for _ in scene.canaries]).T
    evidence = Evidence(CLAIM, [canary.name for canary in scene.canaries])
    for i, row in enumerate(bits):
        run = scene.perform(set(np.flatnonzero(row)), folder / str(i))
        examine(evidence, scene, prepared, row, run, echoes=echoes)
        said = Verdict(CLAIM, {}, evidence.told, evidence.lone_words, [])
        if until in said.faults:
            return said
    return evidence.verdict()


def examine(evidence, scene, prepared, bits, run, *, echoes=True):
    """Add what an adversary has of a run.

    What is published must be the same, to the bit, if the releases come of any other stream: of one
    without canaries, of blanks, and of blanks but for one document in the last release.
    """
    last = max(range(len(scene.canaries)), key=lambda number: max(scene.canaries[number].slots))
    streams = [scene.records(()), [""] * len(scene.texts), scene.alone(last, True)]
    try:
        reenacted = [scene.reenact(prepared, texts, run.releases) for texts in streams]
    except _AnotherWay:
        reenacted = [((), "another way")]
    if any(outcome != run.published for _, outcome in reenacted):
        evidence.add(bits, [{} for _ in scene.canaries], {}, told=True)
        return
    expected, _ = reenacted[0]

    def alone(number, is_there):
        texts = scene.alone(number, is_there)
        return scene.reenact(prepared, texts, run.releases, to_the_end=False)[0]

    added = []
    for number, canary in enumerate(scene.canaries):
        sums = alone(number, True)
        if canary.other:
            sums = [less(one, two) for one, two in zip(sums, alone(number, False), strict=True)]
        added.append(in_noise(run.releases, sums, scene.strategy))
    left = [less(r.values, sums) for r, sums in zip(run.releases, expected, strict=True)]
    noise = in_noise(run.releases, left, scene.strategy)
    for bit, shift in zip(bits, added, strict=True):
        for name in noise:
            noise[name] -= bit * shift[name]
    # A word that is not released tells nothing of its votes, but that they are few.
    seen = {name: np.nan_to_num(values) for name, values in noise.items()}
    for shift in added:
        for name, values in shift.items():
            values[np.isnan(noise[name])] = 0.0
    looks = [look_along(seen, shift, echoes=echoes) for shift in added]
    evidence.add(bits, looks, noise, lone=scene.shows_a_lone_word(run))
