"""Models of what a run that was cut short has released: of noisy sums alone, at no cost."""

from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.guarantee.noise import SecureNoise, SeededNoise
from streamlda.learner import feed
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import Provenance
from streamlda.privacy.statement import check_statement, statement_lines
from streamlda.private import settings as settings_module
from streamlda.private.learner import PrivateLearner
from streamlda.private.ledger_model import describe_spending, load_released
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.simulate import PlantedLDA
from streamlda.text.vocabulary import Vocabulary
from tests.private import streams

K, V, N = 2, 20, 2000
WORDS = Vocabulary.given([f"word{chr(97 + i)}" for i in range(V)])
FACTS = {"stream": "name", "places": N}
CORPUS = PlantedLDA(K, V, topic_concentration=0.2, mean_length=30, seed=4)
ROWS = CORPUS.documents(4 * N)

WAYS = {
    "moments": {"clipping": "worst-case"},
    "refinement": {"refinement_rounds": 1},
    "projection": {"oversampling": 5, "refinement_rounds": 0},
    "prefix": {"mode": "prefix", "snapshots": 4},
}

#: Stages of refinement, before which there are no topics.
ROUNDS = 2


def settings_of(way):
    usual = {"documents_per_snapshot": N, "epsilon": 20.0, "n_features": V}
    return streams.settings_of(**usual, **WAYS[way])


class Killed(BaseException):
    """Error that ends a run as a kill does: nothing is brought in order."""


class Cut(ReleaseManager):
    """Ends the run when a number of releases were made: before the next, or in its draw."""

    def __init__(self, ledger, releases, *, paid=False):
        super().__init__(None, ledger)
        self.left, self.paid = releases, paid

    def release(self, name, first, last, event, draw, *rest, **options):
        self.left -= 1
        if self.left < 0 and not self.paid:
            raise Killed
        return super().release(
            *(name, first, last, event, self.killed if self.left < 0 else draw), *rest, **options
        )

    def killed(self, noise):
        raise Killed


def cut_short(path, settings, releases, **how):
    made = []
    with open_ledger(path, settings) as ledger:
        given = {"vocabulary": "public", "delta_of_words": 1e-6}
        learner = PrivateLearner(settings, Cut(ledger, releases, **how), **given)
        learner.release = partial(learner.release, WORDS, FACTS)
        with suppress(Killed):
            for start in range(0, ROWS.n_documents, 500):
                feed(learner, ROWS.rows(start, start + 500), on_model=made.append)
    return learner, made


def assert_same(model, other):
    """Equal in all but the time they were made at, and what the ledger has begun since."""
    for name in ("components", "alpha", "prevalence", "background"):
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name))
    assert (model.vocabulary, model.settings) == (other.vocabulary, other.settings)
    assert (model.diagnostics, model.documents_seen) == (other.diagnostics, other.documents_seen)
    whole = {**model.privacy, "generation": None}
    assert whole == {**other.privacy, "generation": None}


def left_in(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def way(request, monkeypatch):
    if request.param == "projection":
        monkeypatch.setattr(settings_module, "DENSE_FEATURES", V - 1)
        assert settings_of(request.param).n_columns == 6 * K
    return request.param


@pytest.mark.parametrize("paid", [False, True], ids=["before", "in its draw"])
def test_a_run_cut_short_in_a_round_has_a_model(folder, monkeypatch, paid):
    """It is that of the noisy sums, reads no record, draws no noise, and leaves all as it was."""
    settings = settings_of("refinement")
    stages = list(settings.stages)
    for rounds in range(ROUNDS):
        path = folder / f"L{rounds}"
        released = len(stages) - ROUNDS + rounds
        learner, made = cut_short(path, settings, released, paid=paid)
        assert not made
        before = left_in(folder)
        with monkeypatch.context() as patch:
            guard(patch)
            model = load_released(path)
        assert left_in(folder) == before
        assert_same(model, learner.model_of(learner.get_released(), WORDS, FACTS))
        check_statement(model.privacy)
        missing = stages[released:]
        assert model.privacy["missing"] == missing
        assert [stage["name"] for stage in model.privacy["stages"]] == stages[:released]
        assert (model.privacy["epsilon"], model.privacy["delta"]) == (20.0, settings.delta + 1e-6)
        assert f"incomplete  without {', '.join(missing)}" in statement_lines(model.privacy)
        assert any("incomplete" in warning for warning in model.diagnostics["warnings"])
        model.save(folder / f"model{rounds}")
        assert_same(load(folder / f"model{rounds}"), model)


def guard(patch):
    """Let what draws, pays or takes rows fail the test; there is nothing but a ledger to read."""

    def refuses(*args, **options):
        raise AssertionError("a model of what was released must read, draw and pay nothing")

    for where, name in (
        *((SecureNoise, "discrete_gaussian"), (ReleaseManager, "release")),
        *((ReleaseManager, "__init__"), (PrivateLearner, "add")),
    ):
        patch.setattr(where, name, refuses)


@pytest.mark.parametrize(
    ("way", "rounds"),
    [(way, 0) for way in ("moments", "refinement", "prefix", "projection")]
    + [("prefix", 1), ("prefix", 3)],
    indirect=["way"],
)
def test_a_whole_window_or_the_newest_round_gives_the_model_that_its_run_made(folder, way, rounds):
    settings = settings_of(way)
    _, made = cut_short(folder / "L", settings, settings.n_stages + rounds)
    assert len(made) == 1 + rounds
    assert_same(load_released(folder / "L"), made[-1])
    assert "missing" not in made[-1].privacy


def test_what_does_not_suffice_is_refused_and_not_offered(folder):
    """Before the last stage of the moments; with the window before it complete, too."""
    settings = settings_of("refinement")
    stages = list(settings.stages)
    moments = stages.index("refine")
    for number, released in enumerate([*range(moments), len(stages) + 1]):
        path = folder / f"L{number}"
        cut_short(path, settings, released, paid=True)
        done = released % len(stages)
        with pytest.raises(InsufficientDataError) as refused:
            load_released(path)
        if done:
            assert f"missing={', '.join(stages[done:])!r}" in str(refused.value)
            assert f"released={', '.join(stages[:done])!r} " in str(refused.value)
        with open_ledger(path, settings) as ledger:
            said = describe_spending(ledger)
        assert "--publish" not in said
        assert "give no model of the newest window: " in said
        assert f"by releases={released + 1} " in said


def test_a_lost_window_says_why_it_gives_no_model(folder):
    """Of blanks, noise leaves less than no document in half of all draws."""
    settings = settings_of("moments")
    for seed in range(20):
        path = folder / f"L{seed}"
        with open_ledger(path, settings) as ledger:
            releaser = ReleaseManager(SeededNoise(seed), ledger)
            learner = PrivateLearner(settings, releaser, vocabulary="public")
            learner.skip(learner.due)
            learner.release()
        if learner.lost:
            break
    assert learner.lost == [learner.private.missed]
    assert (learner.progress.rounds, learner.stage.name) == (1, "pairs")
    with pytest.raises(InsufficientDataError, match="than its noise hides"):
        load_released(path)


def test_what_was_released_with_a_seed_is_not_private(folder):
    settings, path = settings_of("moments"), folder / "L"
    with open_ledger(path, settings) as ledger:
        releaser = ReleaseManager(SeededNoise(1), ledger)
        feed(PrivateLearner(settings, releaser, vocabulary="public"), ROWS.rows(0, N))
    assert load_released(path).privacy == {"statement": "not private (seeded)"}


def test_what_suffices_is_offered_with_the_command(folder):
    settings = settings_of("refinement")
    stages = list(settings.stages)
    for name, released, of in (
        ("a b", len(stages) - 1, f"incomplete, without {stages[-1]}"),
        ("L", len(stages), "complete"),
    ):
        path = (folder / name).resolve()
        cut_short(path, settings, released)
        with open_ledger(path, settings) as ledger:
            said = describe_spending(ledger)
        quoted = f"'{path}'" if " " in name else path
        assert f"({of}): streamlda budget {quoted} --publish MODEL" in said


def test_a_lost_file_ends_what_is_read_and_a_changed_one_too(folder):
    settings, path = settings_of("refinement"), folder / "L"
    stages = list(settings.stages)
    cut_short(path, settings, len(stages) - 1)
    *_, pairs, refine = sorted((folder / "L.releases").iterdir())
    assert refine.stem[7:] == "refine"
    assert load_released(path).privacy["missing"] == stages[-1:]
    refine.write_bytes(pairs.read_bytes())
    assert load_released(path).privacy["missing"] == stages[-2:]
    pairs.unlink()
    with pytest.raises(InsufficientDataError, match="stages before refinement"):
        load_released(path)


def test_the_noise_is_what_the_ledger_says(folder, monkeypatch):
    """A version that works it out otherwise refuses; rounding is none."""
    settings, path = settings_of("moments"), folder / "L"
    cut_short(path, settings, 2)
    paid = settings.noise_multiplier
    said = property(lambda self: paid * (1 + 1e-12))
    monkeypatch.setattr(settings_module.PrivateSettings, "noise_multiplier", said)
    stages = load_released(path).privacy["stages"]
    assert [stage["noise_multiplier"] for stage in stages] == [paid, paid]
    for factor in (0.999, 1.001):
        other = property(lambda self, z=paid * factor: z)
        monkeypatch.setattr(settings_module.PrivateSettings, "noise_multiplier", other)
        with pytest.raises(InsufficientDataError, match="noise of a release is not what") as shown:
            load_released(path)
        assert f"release=1 noise_multiplier={paid}" in str(shown.value)


@pytest.mark.parametrize("stage", ["words", "pairs"])
def test_of_a_run_that_has_released_too_little_no_older_one_is_offered(folder, stage):
    settings, path = settings_of("moments"), folder / "L"
    runs = iter("ab")
    for stop in (settings.n_stages, 0):
        with open_ledger(path, settings) as ledger:
            releaser = Cut(ledger, stop)
            releaser.provenance = Provenance(ledger.key, f"stream{stop}", by_slots=True)
            releaser.run = next(runs)
            if stop:
                learner = PrivateLearner(settings, releaser, vocabulary="public")
                feed(learner, ROWS.rows(0, N))
            else:
                releaser.paid = True
                with pytest.raises(Killed):
                    releaser.release(stage, 0, 9, settings.event, None, {})
            if stop:
                assert "missing" not in load_released(path).privacy
    with pytest.raises(InsufficientDataError, match="the first release of a window"):
        load_released(path)


def test_a_release_that_was_never_made_is_refused(folder):
    cut_short(folder / "L", settings_of("moments"), 2)
    for number in (0, 3):
        with pytest.raises(InvalidSettingError, match="has no such release"):
            load_released(folder / "L", number)
