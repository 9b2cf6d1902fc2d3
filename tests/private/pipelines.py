"""Audit of whole private pipelines: from a file of records to all that a run lets out.

A run is `streamlda fit` in this process, with a file, a ledger and `SecureNoise`. The adversary
has all releases and the published model; it knows the code and all records but a *canary* that it
chose, which is in the stream or not (or another record is in its slot).

It runs the program again without the canary, and lets the releases come out as they did
(`reenact`): so it knows all sums but for their noise, and the model that the releases lead to. A
stream that is blank but for the canary gives what the canary adds to each release. Released less
expected sums, along what the canary adds, is a draw from two Gaussians. The covariance of the noise
is learned from other runs, with that of the same places in all other releases, so that noise that
is used twice is found. Canaries are in or out independently; each is judged given the others.
"""

import copy
import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import solve_triangular
from scipy.stats import chi2, norm

from streamlda.container import read_arrays
from streamlda.errors import InsufficientDataError
from streamlda.guarantee.accounting import mu_of
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz
from streamlda.guarantee.noise import Noise
from streamlda.privacy.prefix_release import PrefixSums
from streamlda.private.release_manager import RELEASE_FORMAT, RELEASE_VERSION, ReleaseManager
from streamlda.private.window import PREFIX
from streamlda.run import opening
from streamlda.run.fit import fit
from streamlda.settings.load import load_settings
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import WORDS
from tests.private.audit import mu_below

EPSILON, DELTA = 1.0, 1e-6

#: What is promised at these.
CLAIM = mu_of(EPSILON, DELTA)

#: Probability that a sound pipeline is refuted by one bound; some hundred are looked at.
ALPHA = 1e-8


@dataclass
class Evidence:
    """Features of the noise and the shift, of each run and canary, as an adversary has them."""

    scene: object
    bits: list = field(default_factory=list)
    looks: list = field(default_factory=list)
    told: int = 0  # Runs in which something else was published than the releases lead to.
    lone_words: int = 0  # Runs that show a word that one record has.
    noise: dict = field(default_factory=dict)  # Squares and number, in units of what it should be.

    def add(self, bits, looks, told, lone, noise):
        self.bits.append(bits)
        self.looks.append(looks)
        self.told += told
        self.lone_words += lone
        for name, values in noise.items():
            seen = values[~np.isnan(values)]
            # Of the block, and of its whole release.
            for of in (name, name.rpartition(" ")[0]):
                squares, n = self.noise.get(of, (0.0, 0))
                self.noise[of] = squares + float(seen @ seen), n + len(seen)

    def verdict(self):
        """Weigh all of it."""
        found = [self._of_canary(j) for j in range(len(self.scene.canaries))]
        return Verdict(
            {c.name: one for c, one in zip(self.scene.canaries, found, strict=True)},
            self.told,
            self.lone_words,
            [name for name, (squares, n) in self.noise.items() if chi2.cdf(squares, n) < ALPHA],
        )

    def _of_canary(self, j):
        bits = np.array([row[j] for row in self.bits], dtype=bool)
        looks = [row[j] for row in self.looks]
        moved = [tuple(name for name, (by, _) in look.items() if by) for look in looks]
        usual = Counter(moved).most_common(1)[0][0]
        # The others lost a window: the canary is elsewhere, or in nothing.
        whole = np.array([names == usual for names in moved])
        echoes = Counter(name for look in looks for name, (by, _) in look.items() if not by)
        usual += tuple(name for name, n in echoes.items() if 2 * n > len(looks))
        shift = np.zeros((len(looks), len(usual)))
        noise = np.zeros_like(shift)
        for i in np.flatnonzero(whole):
            found = [looks[i].get(name, (0.0, 0.0)) for name in usual]
            shift[i], noise[i] = np.reshape(found, (-1, 2)).T
        # Along each feature: the noise, and half of the shift one way or the other.
        features = noise + np.where(bits, 0.5, -0.5)[:, None] * shift
        scores = np.zeros(len(looks))
        folds = np.arange(len(looks)) % 2
        for fold in (0, 1):
            learned = _covariance(noise[whole & (folds != fold)], shift)
            weights = np.linalg.solve(learned, shift[folds == fold].T).T
            scores[folds == fold] = np.sum(weights * features[folds == fold], axis=1)
        covariance, mean = _covariance(noise[whole], shift), shift[whole].mean(axis=0)
        squared = float(mean @ np.linalg.solve(covariance, mean))
        # n squared / its estimate is chi-square of n - p + 1 degrees of freedom.
        n, p = int(whole.sum()), len(usual)
        surely = squared * chi2.ppf(ALPHA, n - p + 1) / n if n > p else 0.0
        return Finding(
            reach=float(np.linalg.norm(shift, axis=1).max()),
            noise=math.sqrt(surely),
            runs=mu_below(scores[~bits], scores[bits], float(norm.isf(ALPHA))),
        )


def _covariance(noise, shift):
    # Where noise is missing the variance is 0, of few runs in all: that little must do for it.
    found = noise.T @ noise / max(1, len(noise))
    return found + 1e-6 * np.diag(np.diag(found) + np.square(shift).mean(axis=0) + 1e-9)


@dataclass(frozen=True)
class Finding:
    """Lower bounds of mu, shift over noise, of one canary; each holds but with probability `ALPHA`.

    `reach`: by the noise that is said to be there. `noise`: by the noise that was seen. `runs`: by
    scores of runs with the canary and without it.
    """

    reach: float
    noise: float
    runs: float


@dataclass(frozen=True)
class Verdict:
    """Evidence about all canaries."""

    findings: dict[str, Finding]
    told: int
    lone_words: int
    quiet: list[str]  # Blocks and releases with less noise than is said.

    @property
    def faults(self):
        """Return what refutes the claim: by chance with probability `ALPHA` each."""
        said = {"published": self.told, "lone words": self.lone_words}
        found = [name for name, runs in said.items() if runs]
        found += [f"{name}: quiet" for name in self.quiet]
        for name, each in self.findings.items():
            most = CLAIM * (1 + 1e-9)
            found += [f"{name}: {how}" for how, mu in vars(each).items() if mu > most]
        return found


#: Part of the squared shift from which on noise in a block is sought in other releases, too.
_ECHOED = 0.05


@dataclass(frozen=True)
class Canary:
    """A record that is at its slots, or another that is; `text` is blank without one."""

    name: str
    slots: tuple[int, ...]
    text: str
    other: str = ""


@dataclass(frozen=True)
class Release:
    """A release as it is stored: noisy sums by block, and the noise that is said to be in them.

    `values` are the arrays, but of words their votes, NaN where they are not released.
    """

    stage: str
    arrays: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    stddevs: dict[str, float]


@dataclass(frozen=True)
class Run:
    """Publications of a run."""

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
    """Return the words of a release of words."""
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


class _NoNoise(Noise):
    """None, in place of that of a run whose releases are known."""

    secure = True

    def __init__(self):
        pass

    def discrete_gaussian(self, sigma, shape=()):
        return np.zeros(shape, dtype=np.int64)


class _Ended(Exception):
    """Nothing comes after it: of a process, or of the last release of a re-enacted run."""


class _AnotherWay(Exception):
    """The releases that came before led to another stage than they do here."""


class _Reenactment(ReleaseManager):
    """Lets releases come out as they did, and keeps what would have come out without noise."""

    def __init__(self, releases, words, to_the_end):
        super().__init__(_NoNoise())
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
        """Return the texts with the canaries of these numbers."""
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
        """All words of the stream."""
        texts = [*self.texts, *(f"{c.text} {c.other}" for c in self.canaries)]
        return sorted({word for text in texts for word in text.split()})

    def settings(self, folder):
        """Return the settings of a run in a folder."""
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
        """Return whether a run lets a word out that one record has."""
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
        """Make a run with these canaries in a new folder, and read what it lets out."""
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
    evidence = Evidence(scene)
    for i, row in enumerate(bits):
        run = scene.perform(set(np.flatnonzero(row)), folder / str(i))
        evidence.add(row, *examine(scene, prepared, row, run, echoes=echoes))
        said = Verdict({}, evidence.told, evidence.lone_words, [])
        if until in said.faults:
            return said
    return evidence.verdict()


def examine(scene, prepared, bits, run, *, echoes=True):
    """Return features of the noise and shifts, by canary, and whether something else was told.

    What is published must be the same, to the bit, if the releases come of any other stream: of one
    without canaries, of blanks, and of blanks but for one document in the last release.
    """
    last = max(range(len(scene.canaries)), key=lambda number: max(scene.canaries[number].slots))
    streams = [scene.records(()), [""] * len(scene.texts), scene.alone(last, True)]
    try:
        reenacted = [scene.reenact(prepared, texts, run.releases) for texts in streams]
    except _AnotherWay:
        return [{} for _ in scene.canaries], True, False, {}
    if any(outcome != run.published for _, outcome in reenacted):
        return [{} for _ in scene.canaries], True, False, {}
    expected, _ = reenacted[0]

    def alone(number, is_there):
        texts = scene.alone(number, is_there)
        return scene.reenact(prepared, texts, run.releases, to_the_end=False)[0]

    added = []
    for number, canary in enumerate(scene.canaries):
        sums = alone(number, True)
        if canary.other:
            sums = [_less(one, two) for one, two in zip(sums, alone(number, False), strict=True)]
        added.append(_in_noise(scene, run.releases, sums))
    left = [_less(r.values, sums) for r, sums in zip(run.releases, expected, strict=True)]
    noise = _in_noise(scene, run.releases, left)
    for bit, shift in zip(bits, added, strict=True):
        for name in noise:
            noise[name] -= bit * shift[name]
    # A word that is not released tells nothing of its votes, but that they are few.
    seen = {name: np.nan_to_num(values) for name, values in noise.items()}
    for shift in added:
        for name, values in shift.items():
            values[np.isnan(noise[name])] = 0.0
    looks = [_look(seen, shift, echoes) for shift in added]
    return looks, False, scene.shows_a_lone_word(run), noise


def _less(one, two):
    return {name: one[name] - two[name] for name in one}


def _in_noise(scene, releases, sums):
    """Return flat sums of each release and block in units of its noise, independent of others."""
    found, numbers, rounds = {}, Counter(), []
    for release, arrays in zip(releases, sums, strict=True):
        if release.stage == PREFIX:
            rounds.append((release, arrays))
            continue
        numbers[release.stage] += 1
        label = f"{release.stage} ({numbers[release.stage]})"
        for name, stddev in release.stddevs.items():
            found[f"{label} {name}"] = np.reshape(arrays[name], -1) / stddev
    if rounds:
        # Users are in all rounds, each of which is released by itself.
        none = ((), ()) if scene.users else ()
        strategy = BufferedToeplitz(*none, horizon=scene.flags.get("snapshots.most"))
        impulses = PrefixSums(strategy, (len(rounds),))
        mixed = np.array([impulses.step(row) for row in np.eye(len(rounds))])
        for name, stddev in rounds[0][0].stddevs.items():
            sums = np.array([np.reshape(arrays[name], -1) for _, arrays in rounds])
            apart = solve_triangular(mixed, sums, lower=True)
            for number, values in enumerate(apart, 1):
                found[f"{PREFIX} ({number}) {name}"] = values * mixed[0, 0] / stddev
    return found


def _look(noise, shift, echoes):
    """Return shift and noise along what a canary adds to each block, and in other releases."""
    squares = {name: float(values @ values) for name, values in shift.items()}
    total, found, echoed = sum(squares.values()), {}, set()
    for name, square in squares.items():
        if square == 0:
            continue
        along = shift[name] / math.sqrt(square)
        found[name] = math.sqrt(square), float(along @ noise[name])
        if not echoes or square < _ECHOED * total:
            continue
        for other, values in noise.items():
            n = min(len(values), len(along))
            length = np.linalg.norm(along[:n])
            if squares[other] > 0 or length <= 0.5:
                continue
            echo = float(along[:n] @ values[:n]) / length
            if (other, echo) not in echoed:
                echoed.add((other, echo))
                found[f"{name} in {other}"] = 0.0, echo
    return found
