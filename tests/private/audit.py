"""Audit of private releases: how well can two neighbouring streams really be told apart?

The adversary knows all documents but one, the *canary*, chooses that one, and knows the code. Its
best test for a shift in Gaussian noise is a weighted inner product of all that is released with the
shift. It learns the covariance of the noise from draws of its own, so that nothing that the
mechanism claims of its noise goes into the audit. Stages are filled once through the learner, in
both neighbouring streams, and released again and again with fresh noise.
"""

import copy
import itertools
import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.stats import norm

from streamlda.documents import DocumentBatch
from streamlda.guarantee.accounting import epsilon_of
from streamlda.guarantee.matrix_mechanism import StrategyRows
from streamlda.guarantee.noise import SecureNoise, SeededNoise
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.prefix_release import PrefixSums
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager
from streamlda.simulate import PlantedLDA
from tests.private import streams

#: Standard deviations of a sound audit's bound: a correct mechanism exceeds its claim by chance
#: with probability 1.0e-8, as the lower bound has this confidence.
SURE = float(norm.isf(1e-8))

#: Of the bound that is reported, at 95 % confidence.
LIKELY = float(norm.isf(0.05))

BOUNDS = ClipBounds(0.3, 0.15, 1.0, "fixed")


#: Of small runs, with public bounds that one word attains.
USUAL = {"epsilon": 4.0, "delta": 1e-5, "documents_per_snapshot": 400, "clipping": BOUNDS}
settings_of = partial(streams.settings_of, n_features=20, **USUAL)


class Recorder(ReleaseManager):
    """Keeps what was released: stage, arrays, standard deviations."""

    def __init__(self, *args):
        super().__init__(*args)
        self.released = []

    def release(self, *args, **values):
        arrays = super().release(*args, **values)
        self.released.append((args[0], arrays, args[5]["stddevs"]))
        return arrays


@dataclass(frozen=True)
class Stream:
    """Rows of a stream as counts, shape (n, d), and whose they are."""

    counts: np.ndarray
    users: tuple[str, ...]

    def with_rows(self, slots, row):
        """The stream with a document, or a blank, at the slots."""
        counts, users = self.counts.copy(), list(self.users)
        counts[list(slots)] = 0.0 if row is None else row
        for slot in slots:
            users[slot] = "canary"
        return Stream(counts, tuple(users))


@dataclass(frozen=True)
class Finding:
    """Lower bounds of the epsilon that a release gives away, and the claim."""

    claim: float
    likely: float  # At 95 % confidence.
    sure: float  # At confidence 1 - 1e-8.

    @property
    def sound(self):
        """False where the claim is refuted: by chance with probability 1e-8."""
        return self.sure <= self.claim


class ManyDraws(SecureNoise):
    """Draws from one key for many releases at once: a new key takes longer than a draw."""

    def __init__(self):
        super().__init__()
        self._drawn = {}

    def discrete_gaussian(self, sigma, shape=()):
        drawn = self._drawn.setdefault((sigma, shape), [])
        if not drawn:
            drawn += list(super().discrete_gaussian(sigma, (200, *shape)))
        return drawn.pop()


def documents(n, d, seed=1):
    """Planted documents of some twenty words, each of another user."""
    counts = PlantedLDA(2, d, mean_length=20, seed=seed).documents(n).to_csr().toarray()
    return Stream(counts.astype(np.float64), tuple(f"user {i}" for i in range(n)))


def one_word(d, word):
    """A document that attains the largest norm of every statistic: one word, ten times."""
    return 10.0 * np.eye(d)[word]


def slot_in(settings, stage, offset=1):
    """A slot of a stage of the first window, or of the first round after it."""
    firsts = {name: first for name, first, _ in settings.stage_slots()}
    return firsts.get(stage, settings.documents_per_snapshot) + offset


def _fed(settings, stream, script):
    """Yield the learner at each full stage; `script` is what they release, and grows at its end."""
    learner, noise, start = PrivateLearner(settings), SeededNoise(11), 0
    for i in itertools.count():
        if start == len(stream.counts) or learner.stage is None:
            return
        batch = DocumentBatch.from_matrix(stream.counts[start:])
        start += learner.add(batch, stream.users[start:])
        if learner.due_stage is None:
            return
        yield learner
        if i == len(script):
            script.append(learner.due_stage.release(noise))
        learner.accept(script[i])


def fill(settings, stream, script):
    """Stages filled by a stream, without those that it does not fill."""
    return [learner.stage for learner in _fed(settings, stream, script)]


def whitening(settings, stream):
    """The projection of the triples that `fill` comes to: the adversary may know it."""
    learners = _fed(settings, stream, [])
    return next(e.window.whitening for e in learners if e.stage.name == "triples")


def attained_by(settings, stream):
    """Settings with a word that is at the bounds of all three moments of the triples, and it."""
    rows = np.linalg.norm(whitening(settings, stream), axis=1)
    return with_triple_bound(settings, float(rows.max()) ** 3), int(rows.argmax())


def with_triple_bound(settings, bound):
    return replace(settings, clipping=replace(settings.clipping, triple=bound))


def audit(settings, absent, present, draws):
    """How well the releases on two neighbouring streams can be told apart, by 2.5 `draws` each."""
    noise, script = ManyDraws(), []
    without = fill(settings, absent, script)
    within = fill(settings, present, script)
    assert len(without) == len(within) == len(script)
    before, after = _expected(without), _expected(within)
    shift = [{name: b[name] - a[name] for name in a} for a, b in zip(before, after, strict=True)]
    # Stages that the canary is not in have noise of their own, which tells nothing.
    shifted = [
        i
        for i, stage in enumerate(without)
        if stage.prefix is not None or any(np.any(s) for s in shift[i].values())
    ]
    without, within = [without[i] for i in shifted], [within[i] for i in shifted]
    probes = _probes(without, [shift[i] for i in shifted])
    moved = np.array([np.vdot(probe, shift[shifted[i]][name]) for i, name, probe in probes])
    learned = _looks(without, probes, draws // 2, noise)
    covariance = np.atleast_2d(np.cov(learned, rowvar=False))
    # Where noise is missing the variance is 0; that little must do for it.
    covariance += 1e-9 * np.diag(moved**2 + 1e-9)
    weights = np.linalg.solve(covariance, moved)
    scores = [_looks(stages, probes, draws, noise) @ weights for stages in (without, within)]
    likely, sure = (mu_below(scores[0], scores[1], quantile) for quantile in (LIKELY, SURE))
    delta = settings.delta
    return Finding(settings.epsilon, epsilon_of(likely, delta), epsilon_of(sure, delta))


def mu_below(absent, present, quantile):
    """A lower bound of shift over noise from equally many scores of both streams.

    With n scores each, difference over pooled deviation times sqrt(n / 2) is noncentral t of
    variance 1 + t^2 / (4 n): normal, for the hundreds of scores there are.
    """
    n = len(absent)
    spread = math.sqrt((absent.var(ddof=1) + present.var(ddof=1)) / 2)
    difference = float(present.mean() - absent.mean())
    # From 50 on two streams are as good as told apart.
    t = difference / max(spread, difference / 50, 1e-300) * math.sqrt(n / 2)
    return max(0.0, (t - quantile * math.sqrt(1 + t * t / (4 * n))) / math.sqrt(n / 2))


def _expected(stages):
    """What each stage releases, but for the noise."""
    expected = []
    running = {}
    for stage in stages:
        sums = stage.mechanism.from_grid(stage.sums.aggregates)
        if stage.prefix is not None:
            running = {name: running.get(name, 0.0 * array) + array for name, array in sums.items()}
            sums = running
        expected.append(sums)
    return expected


def _probes(stages, shift):
    """Stage, block and direction of what is looked at, in units of the noise."""
    probes = []
    for i, stage in enumerate(stages):
        for name, stddev in stage.mechanism.stddevs.items():
            direction = shift[-1 if stage.prefix is not None else i][name]
            length = np.linalg.norm(direction)
            if length > 0:
                probes.append((i, name, direction / (length * stddev)))
    return probes


def _looks(stages, probes, draws, noise):
    """Inner products of fresh releases with the probes, shape (draws, probes)."""
    looks = np.empty((draws, len(probes)))
    for row in looks:
        released = release_again(stages, noise)
        row[:] = [np.vdot(probe, released[i][name]) for i, name, probe in probes]
    return looks


def release_again(stages, noise):
    """Release filled stages with fresh noise: each call stands for a run of its own."""
    rounds = [stage for stage in stages if stage.prefix is not None]
    if rounds:
        begun = copy.copy(rounds[0].prefix)
        shapes = {block.name: block.shape for block in begun.mechanism.blocks}
        begun._noisy = copy.copy(begun._noisy)
        begun._noisy.rows = {name: StrategyRows(begun.strategy, shapes[name]) for name in shapes}
        begun._sums = {name: PrefixSums(begun.strategy, shapes[name]) for name in shapes}
        begun.rounds = 0
        for stage in rounds:
            stage.prefix = begun
    for stage in stages:
        stage.drawn = False
    return [stage.release(noise) for stage in stages]
