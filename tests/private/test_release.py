"""Releases of real runs: the noise is as large as they say, paid for before it is drawn, stored.

Statistical tests use `SecureNoise`; each fails by chance with probability below 1e-8.
"""

from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from streamlda.container import read_arrays
from streamlda.documents import DocumentBatch
from streamlda.errors import BudgetExceededError, InvalidSettingError, LedgerError
from streamlda.guarantee.noise import SecureNoise, SeededNoise
from streamlda.learner import feed
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.ledger import Ledger, LedgerReader
from streamlda.privacy.statement import check_statement
from streamlda.private.budget import ledger_terms
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import (
    RELEASE_FORMAT,
    RELEASE_VERSION,
    ReleaseManager,
    open_ledger,
)
from streamlda.simulate import PlantedLDA
from tests.crashes import CrashProcess
from tests.privacy.chance import has_scale
from tests.private import streams
from tests.private.streams import Recorder


@pytest.fixture(scope="module")
def crashes():
    process = CrashProcess("tests.private.release_crash")
    yield process
    process.close()


D = 12
ALARM = 1e-9
BOUNDS = ClipBounds(0.5, 0.3, 100.0, "fixed")


#: Of documents, noise ends a window behind its pairs with probability below 1e-10.
USUAL = {"epsilon": 12.0, "delta": 1e-5, "documents_per_snapshot": 100, "clipping": BOUNDS}
settings_of = partial(streams.settings_of, n_features=D, **USUAL)

#: Of windows whose noise leaves topics.
LARGE = settings_of(documents_per_snapshot=1000, epsilon=20.0)


@contextmanager
def opened(path, settings, noise=None, **values):
    with open_ledger(path, settings) as ledger:
        yield ledger, learner_of(settings, ReleaseManager(noise, ledger), **values)


def documents(n):
    return PlantedLDA(2, D, mean_length=20, seed=1).documents(n)


def learner_of(settings, releaser, **values):
    return PrivateLearner(settings, releaser, vocabulary="public", **values)


def blank_run(settings, slots, noise=None):
    recorder = Recorder(noise)
    feed(learner_of(settings, recorder), DocumentBatch.from_matrix(np.zeros((slots, D))))
    return recorder.released


@pytest.mark.statistical
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clipping": "quantile"},
        {"clipping": "worst-case"},
        {"neighboring_relation": "replace-one"},
        {"privacy_unit": "user", "documents_per_user": 3, "snapshots": 200},
    ],
    ids=["fixed", "quantile", "worst-case", "replace-one", "user"],
)
def test_released_noise_is_as_large_as_it_says(changes):
    settings = settings_of(**changes)
    found = defaultdict(list)
    # Seeded for quantiles: one in some thousand, of noise alone, is too low for a clip bound.
    noise = SeededNoise(5) if settings.clipping == "quantile" else SecureNoise()
    for _, arrays, stddevs in blank_run(settings, 6000, noise):
        for name, array in arrays.items():
            found[name].extend(array.ravel() / stddevs[name])
    large = {name: np.array(values) for name, values in found.items() if len(values) >= 600}
    assert large
    for name, values in large.items():
        assert has_scale(values, alarm=ALARM), name
        assert stats.kstest(values, "norm").pvalue > ALARM


def independent(a, b):
    return bool(stats.pearsonr(a.ravel(), b.ravel()).pvalue > ALARM)


@pytest.mark.statistical
def test_noise_of_windows_stages_and_blocks_is_independent():
    released = blank_run(settings_of(), 20_000)

    def draws(stage, block):
        # Of noise alone, one window in some thousand has fewer directions.
        found = [arrays[block] for name, arrays, _ in released if name == stage]
        usual = Counter(each.shape for each in found).most_common(1)[0][0]
        return np.array([each for each in found if each.shape == usual][:60])

    pair, first, triple = (
        draws("pairs", "pair"),
        draws("pairs", "first"),
        draws("triples", "triple"),
    )
    assert independent(pair[:-1], pair[1:])
    assert independent(pair[:, :D], first)
    assert independent(pair[:, :-1], pair[:, 1:])
    assert independent(pair.ravel()[: triple.size], triple)
    # The test does find noise that is shared in part.
    assert not independent(pair[:-1], pair[1:] + 0.3 * pair[:-1])


class Witness(SecureNoise):
    """Looks into the ledger, on the disk, when noise is drawn."""

    __slots__ = ("path", "seen")

    def __init__(self, path):
        super().__init__()
        self.path, self.seen = path, []

    def discrete_gaussian(self, sigma, shape=()):
        pending = LedgerReader(self.path).pending
        assert pending is not None, "noise was drawn before its price was on the disk"
        self.seen.append((pending.description, pending.cohort.slots))
        return super().discrete_gaussian(sigma, shape)


def test_price_is_on_the_disk_before_noise_is_drawn_and_sums_are_stored(folder):
    settings, steps, path = settings_of(), [], folder / "ledger"
    witness = Witness(path)
    with Ledger.open(path, ledger_terms(settings), create=True, on_step=steps.append) as ledger:
        recorder = Recorder(witness, ledger)
        learner = learner_of(settings, recorder)
        feed(learner, documents(99))
        assert steps.count("intent:durable") == 1
        feed(learner, documents(1))
        assert ledger.loss.mu_squared == pytest.approx(settings.noise_multiplier**-2, rel=1e-12)
        assert ledger.pending is None
    assert Counter(witness.seen) == {("pairs", (0, 88)): 4, ("triples", (88, 100)): 4}
    assert steps.count("intent:durable") == steps.count("committed:durable") == 2
    names = ["000001-pairs.safetensors", "000002-triples.safetensors"]
    stored = folder / "ledger.releases"
    assert sorted(path.name for path in stored.iterdir()) == names
    assert stored.stat().st_mode & 0o077 == 0
    slots = [(0, 87), (88, 99)]
    for name, released, ends in zip(names, recorder.released, slots, strict=True):
        found = read_arrays(stored / name, RELEASE_FORMAT, RELEASE_VERSION)
        about = found.metadata
        assert found.arrays.keys() == released[1].keys()
        assert all(np.array_equal(found.arrays[b], array) for b, array in released[1].items())
        assert (about["stage"], about["first"], about["last"]) == (released[0], *ends)
        assert (about["secure"], about["stddevs"]) == (True, released[2])
        assert about["settings"]["clipping"]["pair"] == BOUNDS.pair


class BrokenOff(ReleaseManager):
    def release(self, *args, **values):
        super().release(*args, **values)
        raise OSError


def test_noise_is_not_drawn_again_where_no_ledger_knows_of_it():
    learner = learner_of(settings_of(), BrokenOff())
    learner.add(documents(100))
    for error, match in ((OSError, None), (InvalidSettingError, "a release was drawn")):
        with pytest.raises(error, match=match):
            learner.release()


@pytest.mark.parametrize("clipping", [BOUNDS, "worst-case"], ids=["same names", "other names"])
def test_no_new_ledger_is_made_beside_the_releases_of_another(folder, clipping):
    path = folder / "ledger"
    with opened(path, settings_of()) as (_, learner):
        feed(learner, documents(100))
    before = sorted((folder / "ledger.releases").iterdir())
    for name in ("ledger", "ledger.documents"):
        (folder / name).unlink()
    with pytest.raises(LedgerError, match="beside what another one left"):
        open_ledger(path, settings_of(clipping=clipping))
    assert sorted((folder / "ledger.releases").iterdir()) == before
    assert not path.exists()


def test_nothing_is_paid_or_drawn_where_another_release_lies(folder):
    path, witness = folder / "ledger", Witness(folder / "ledger")
    with opened(path, settings_of(), witness) as (ledger, learner):
        (folder / "ledger.releases").mkdir()
        taken = folder / "ledger.releases/000001-pairs.safetensors"
        taken.write_bytes(b"of another")
        with pytest.raises(LedgerError, match="this ledger did not publish"):
            feed(learner, documents(100))
        assert (witness.seen, ledger.generation, ledger.loss.mu_squared) == ([], 0, 0)
    assert [file.name for file in taken.parent.iterdir()] == [taken.name]


def test_noisy_sums_of_a_lost_release_are_deleted(folder):
    path, ended = folder / "ledger", []

    def killed(step):
        if step == "publish:checked":
            raise KeyboardInterrupt

    with Ledger.open(path, ledger_terms(settings_of()), create=True, on_step=killed) as ledger:
        learner = learner_of(settings_of(), ReleaseManager(None, ledger))
        with pytest.raises(KeyboardInterrupt):
            feed(learner, documents(100))
    left = folder / "ledger.releases"
    assert [file.name for file in left.iterdir()] == ["000001-pairs.safetensors.new"]
    (left / f".streamlda-{'0' * 16}.tmp").touch()  # As a kill leaves it.
    open_ledger(path, settings_of(), on_recovery=ended.append).close()
    assert ended == ["release 1: lost"]
    assert list(left.iterdir()) == []


def test_budget_is_refused_before_noise_and_documents(folder):
    users = {"privacy_unit": "user", "documents_per_user": 2, "snapshots": 1}
    users = replace(LARGE, **users)  # of 100 documents, noise alone may end the window
    path, small = folder / "ledger", folder / "small"
    with opened(path, users) as (_, learner):
        feed(learner, documents(1000), [f"user {i}" for i in range(1000)])
    witness = Witness(path)
    with pytest.raises(BudgetExceededError), opened(path, users, witness, first_slot=1000):
        pass
    with open_ledger(small, settings_of(epsilon=1.0)) as ledger:
        with pytest.raises(BudgetExceededError):
            learner_of(settings_of(), ReleaseManager(witness, ledger))
        assert (ledger.loss.mu_squared, ledger.generation) == (0, 0)
    assert witness.seen == []
    assert len(LedgerReader(path).report()["snapshots"]) == 2


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])
def test_killed_at_every_step(stride, folder, crashes):
    counted = crashes.run("every-step", folder, stride)
    assert counted["steps"] > 40 // stride
    assert counted["killed pending"] > 25 // stride
    assert counted["killed committed"] >= 3 // stride


@pytest.mark.parametrize(
    ("kills", "seed"), [(12, 20261121), pytest.param(500, 7, marks=pytest.mark.soak)]
)
def test_killed_at_any_moment(kills, seed, folder, crashes):
    counted = crashes.run("any-moment", folder, kills, seed)
    # Of 12 kills 4 to 9 were, on a busy machine.
    assert counted["killed pending"] > 0
    assert counted["artifacts"] > 10


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clipping": "worst-case"},
        {"neighboring_relation": "replace-one"},
        {"privacy_unit": "user", "documents_per_user": 2, "snapshots": 1},
        {"mode": "prefix", "snapshots": 3},
        {"mode": "prefix", "snapshots": 3, "privacy_unit": "user", "documents_per_user": 2},
        {"clipping": "quantile"},
        {"solver": "noisy-power", "n_iterations": 2},
        {"refinement_rounds": 1},
    ],
)
def test_statement_agrees_with_the_settings(changes, folder):
    settings = replace(LARGE, **changes)
    clipping, horizon = changes.get("clipping", "fixed"), 3 if "mode" in changes else None
    source = {"quantile": "private-quantile"}.get(clipping, clipping)
    with opened(folder / "ledger", settings, delta_of_words=1e-6) as (ledger, learner):
        feed(learner, documents(1000), [f"user {i}" for i in range(1000)])
        model = learner.snapshot()
        of_ledger, spent = (ledger.ledger_id, ledger.generation), ledger.loss.mu_squared
    said = model.privacy
    check_statement(said)
    assert said["statement"] == "private"
    assert (said["epsilon"], said["delta"]) == (settings.epsilon, settings.delta + 1e-6)
    for key in ("privacy_unit", "documents_per_user", "neighboring_relation", "mode"):
        assert said[key] == getattr(settings, key)
    assert (said["horizon"], said["noise"]) == (horizon, "secure")
    assert (said["ledger"], said["generation"]) == of_ledger
    assert said["noise_multiplier"] == settings.noise_multiplier
    assert {bound["source"] for bound in said["clip_bounds"].values()} == {source}
    assert said["cohort"] == {"first": 0, "last": 999}
    slots = [(name, first, last - 1) for name, first, last in settings.stage_slots()]
    assert [(s["name"], s["first"], s["last"]) for s in said["stages"]] == slots
    assert model.documents_seen == 1000
    refined = {"l2_clip_norm": 1.0, "source": "fixed"} if settings.refinement_rounds else None
    assert said["clip_bounds"].get("shares") == refined
    if settings.privacy_unit == "document":
        assert spent == pytest.approx(settings.noise_multiplier**-2, rel=1e-9)


def test_users_pay_for_every_round_of_prefix_sums_and_all_fit_their_epsilon(folder):
    of_users = {"mode": "prefix", "snapshots": 3, "privacy_unit": "user", "documents_per_user": 2}
    settings = replace(LARGE, **of_users)
    with opened(folder / "ledger", settings) as (ledger, learner):
        feed(learner, documents(3000), [f"user {i % 900}" for i in range(3000)])
        releases = settings.n_stages + 2
        assert (learner.due, ledger.generation) == (None, releases)
        said = learner.snapshot().privacy["stages"]
        assert [stage["name"] for stage in said] == [*settings.stages, "prefix", "prefix"]
        assert float(ledger.loss.mu_squared) == pytest.approx(
            releases / settings.noise_multiplier**2
        )
        with pytest.raises(BudgetExceededError):
            ledger.check(settings.event)
    # As many windows would cost a user more, so that each has more noise.
    windows = replace(settings, mode="window")
    expected = np.sqrt(releases / (3 * settings.n_stages))
    found = settings.noise_multiplier / windows.noise_multiplier
    assert found == pytest.approx(expected, rel=1e-3)


LONG = settings_of(documents_per_snapshot=100_000, epsilon=12.0, delta=1e-3)


@pytest.mark.parametrize(
    ("settings", "before", "after", "ended"),
    [
        (LONG, 2000, 0, False),
        (LONG, 2000, 700, False),
        (LARGE, 880, 0, False),
        (LARGE, 700, 0, True),
    ],
)
def test_a_state_resumes_behind_the_release_that_follows(tmp_path, settings, before, after, ended):
    """Of a stage that a clock ended, or that was whole when saved: a checkpoint on the way out."""
    end = before + after
    with opened(tmp_path / "ledger", settings) as (ledger, learner):
        learner.add(documents(before))
        if ended:
            learner.end_stage()
        saved = learner.state()
        if after:
            learner.add(documents(after))
        assert learner.release() is None
        again = learner_of(settings, ReleaseManager(ledger=ledger))
        again.restore(*saved)
        assert again.catch_up(ledger.last_release) == after
        for each in (learner, again):
            stage = each.stage
            assert (stage.name, stage.first, each.slots) == ("triples", end, end)
            assert each.progress.rounds == 1
        last = again.add(documents(1500))
        model = again.release()
    ends = [(stage["name"], stage["last"]) for stage in model.privacy["stages"]]
    assert ends == [("pairs", end - 1), ("triples", end + last - 1)]


def test_a_state_does_not_continue_behind_another_release(tmp_path):
    with opened(tmp_path / "ledger", LONG) as (ledger, learner):
        feed(learner, documents(2000))
        learner.release()
        other = learner_of(replace(LONG, n_components=3), ReleaseManager())
        ahead = learner_of(LONG, ReleaseManager())
        feed(ahead, documents(2001))
        for each, rule in ((other, "same_settings=False"), (ahead, "directly follow")):
            each._releaser = learner.releaser
            with pytest.raises(LedgerError, match=rule):
                each.catch_up(ledger.last_release)


@pytest.mark.parametrize("mode", ["window", "prefix"])
def test_a_lost_release_takes_its_window_and_noise_of_prefix_sums_does_not_come_back(
    tmp_path, mode
):
    settings = replace(LARGE, mode=mode, snapshots=None if mode == "window" else 2)
    with opened(tmp_path / "ledger", settings) as (ledger, learner):
        rows = documents(2000)
        for rounds in range(len(settings.stages) + (mode == "prefix")):
            assert learner.progress.rounds == rounds
            begun = learner.slots
            saved = learner.state()
            learner.add(rows)
            learner.release()
        again = learner_of(settings, ReleaseManager(ledger=ledger))
        again.restore(*saved)
        if mode == "prefix":
            with pytest.raises(LedgerError, match=r"release='prefix'.*mode=prefix"):
                again.catch_up(ledger.last_release)
            return
        [*_, last] = sorted(ledger.folder.iterdir())
        last.unlink()
        assert again.catch_up(ledger.last_release) == learner.slots - begun
    stage = again.stage
    assert (stage.name, stage.first, stage.slots_filled) == ("pairs", learner.slots, 0)
