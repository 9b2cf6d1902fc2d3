"""What holds for all stages that are rounds: of power methods, and of refinement.

Noise is seeded, so that no statistical test varies from run to run; a correct program fails one,
over the choice of seeds, with the probability that stands with it.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from streamlda.errors import BudgetExceededError, InsufficientDataError
from streamlda.learner import feed
from streamlda.model.evaluation import matched_l1_error
from streamlda.privacy.accounting import noise_multiplier
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.noise import SecureNoise
from streamlda.privacy.statement import check_statement
from streamlda.private import power
from streamlda.private.learner import PrivateLearner
from streamlda.private.power import answer_norm
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.private.settings import REFINEMENT_FRACTION
from streamlda.simulate import PlantedLDA
from tests.private.streams import Run, assert_same_snapshots, replayed, run, settings_of

ALARM = 1e-6
K, V, N = 2, 12, 2000
CORPUS = PlantedLDA(K, V, topic_concentration=0.2, mean_length=30, seed=4)
ROWS = CORPUS.documents(N)

#: How rounds come to be, how many a window has, and the first part of their names.
WAYS = {
    "noisy power": ({"solver": "noisy-power"}, K * 5, "power"),
    "simultaneous": ({"solver": "simultaneous"}, 8, "power"),
    "refinement": ({"refinement_rounds": 3}, 3, "refine"),
    "both": ({"solver": "simultaneous", "refinement_rounds": 3, "n_iterations": 4}, 7, ""),
}


def config_of(way, **options):
    return settings_of(n_features=V, **{"documents_per_snapshot": N, **WAYS[way][0], **options})


def rounds_of(config):
    return [stage for stage in config.stage_slots() if stage[0][-1].isdigit()]


@pytest.mark.parametrize("clipping", ["quantile", "worst-case"])
@pytest.mark.parametrize("way", WAYS)
def test_rounds_are_stages_that_fill_the_window(way, clipping):
    config = config_of(way, snapshots=1, clipping=clipping)
    own = run(config, ROWS)
    assert own.stages == config.stage_slots()
    # Each slot in one stage: parallel composition, so every stage spends the whole budget.
    assert [first for _, first, _ in own.stages] == [0, *(last for *_, last in own.stages[:-1])]
    assert own.stages[-1][2] == N
    rounds = rounds_of(config)
    assert len(rounds) == config.n_rounds + config.n_refinement_rounds == WAYS[way][1]
    for prefix in ("power", "refine"):
        lengths = [last - first for name, first, last in rounds if name.startswith(prefix)]
        assert not lengths or max(lengths) - min(lengths) <= 1
    if config.n_refinement_rounds:
        assert rounds[-3][1] == pytest.approx((1 - REFINEMENT_FRACTION) * N, abs=2)
    blocks = [sorted(sums) for sums in own.released[-len(rounds) :]]
    # One dimension of answers a round of images; an eigenvalue round wants values alone.
    expected = {
        "noisy power": [["images", "triple_kept"]] * 4 + [["triple_kept", "values"]],
        "simultaneous": [["images", "triple_kept"]],
        "refinement": [["shares"]],
        "both": [["images", "triple_kept"]] * 4 + [["shares"]] * 3,
    }[way]
    assert blocks == list(itertools.islice(itertools.cycle(expected), len(blocks)))


@pytest.mark.parametrize("way", WAYS)
def test_topics_are_found_and_noise_hides_them_where_it_is_large(way):
    small, large = (run(config_of(way, epsilon=eps, clip_quantile=0.9), ROWS) for eps in (20, 0.02))
    (snapshot,) = small.snapshots
    topics = snapshot.topics
    assert matched_l1_error(CORPUS.components, topics.components).mean < 0.3
    assert np.all(np.diff(topics.alpha) <= 0)
    assert topics.alpha.sum() == pytest.approx(topics.spectral.alpha_0)
    np.testing.assert_array_equal(topics.alpha, topics.spectral.alpha)
    assert np.all((topics.mixed >= 0) & (topics.mixed <= 1))
    noise = topics.spectral.eigenvalue_noise
    assert np.all((noise > 0) & np.isfinite(noise))
    for snapshot in large.snapshots:
        found = snapshot.topics.components
        assert len(found) < K or matched_l1_error(CORPUS.components, found).mean > 0.5


@pytest.mark.parametrize(
    ("way", "stage", "in_state"),
    [
        ("noisy power", "power 1", False),
        ("noisy power", "power 4", True),
        ("simultaneous", "power 4", False),
        ("refinement", "refine 1", True),
        ("refinement", "refine 3", False),
        ("both", "refine 2", False),
    ],
)
def test_a_saved_engine_goes_on_bit_for_bit(way, stage, in_state):
    config = config_of(way, noise_in_state=in_state)
    middle = {name: first + 7 for name, first, _ in config.stage_slots()}[stage]
    runs = [Run(config).add(ROWS, stop=middle) for _ in range(2)]
    # Saving ends the running group of the other one, too.
    runs[0].save(and_restore=False)
    arrays = runs[1].save(and_restore=True)
    raw = {"sums/shares"} if "refine" in stage else {"sums/images", "sums/triple_kept"}
    assert {name for name in arrays if name.startswith("sums/")} == raw
    kept = "refinement/" if "refine" in stage else "power/"
    assert any(name.startswith(kept) for name in arrays)
    for own in runs:
        own.add(ROWS, start=middle)
    assert_same_snapshots(*runs)


@pytest.mark.parametrize("way", WAYS)
def test_snapshots_are_made_of_released_sums_alone(way):
    """Blanks in place of all documents, with the released sums of another run fed in."""
    config = config_of(way, snapshots=1)
    own = run(config, ROWS)
    assert_same_snapshots(own, replayed(own, config))


@pytest.mark.statistical
@pytest.mark.parametrize("way", ["noisy power", "simultaneous", "refinement"])
def test_the_noise_is_that_of_the_exact_accounting(way):
    """Blanks in the rounds: what is released is noise. False-alarm rate 1e-6; 1.5 is refused."""
    more = {"documents_per_snapshot": 40 * N, "n_iterations": 40}
    more = {"refinement_rounds": 10} if way == "refinement" else more
    config = config_of(way, clipping="worst-case", **more)
    z = noise_multiplier(config.epsilon, config.delta_left)
    begun = rounds_of(config)[0][1]
    own, scaled = Run(config, seed=6).add(ROWS, stop=min(begun, N)), []
    while (stage := own.engine.stage) is not None and own.engine.snapshot is None:
        window = own.engine.window
        probes = None if window.power is None else window.power.method.probes
        own.engine.skip(stage.slots_left)
        sums = own.engine.due.release(own.noise)
        if probes is not None:
            name = "values" if "values" in sums else "images"
            clip = window.bounds.triple * answer_norm(probes, 3 if name == "values" else 2)
            scaled.append((sums[name] / (z * clip / np.sqrt(1 - power.KEPT_FRACTION))).ravel())
            # The answer of a round of noise alone may be lost; go on with a plausible one.
            sums["triple_kept"] = np.array(1.0)
        elif "shares" in sums:
            scaled.append(sums["shares"].ravel() / z)
            sums["shares"] = np.abs(sums["shares"])
        own.engine.accept(sums)
    values = np.concatenate(scaled)
    assert len(values) >= 150

    def accepted(wrong):
        total = float(np.sum((values / wrong) ** 2))
        tails = stats.chi2.cdf(total, len(values)), stats.chi2.sf(total, len(values))
        return 2 * min(tails) > ALARM

    assert accepted(1.0)
    assert not accepted(1.5)


@pytest.mark.parametrize("way", ["noisy power", "simultaneous", "refinement"])
def test_a_round_of_noise_alone_loses_the_window(way):
    config = config_of(way, clipping="worst-case")
    own = Run(config).add(ROWS, stop=rounds_of(config)[0][1])
    own.engine.skip(own.engine.stage.slots_left)
    sums = own.engine.due.release(own.noise)
    if way == "refinement":
        sums["shares"] = -np.abs(sums["shares"])
    else:
        sums["triple_kept"] = np.array(-3.0)
    with pytest.raises(InsufficientDataError, match=r"than its noise hides, got \w+=-"):
        own.engine.accept(sums)
    assert (own.engine.stage.name, own.engine.snapshot) == ("pairs", None)


@pytest.mark.parametrize("way", WAYS)
def test_rounds_go_through_the_ledger_and_into_the_statement(way, folder):
    config = config_of(way, clipping="worst-case")
    with open_ledger(folder / "ledger", config) as ledger:
        learner = PrivateLearner(config, ReleaseManager(SecureNoise(), ledger), vocabulary="public")
        feed(learner, ROWS.rows(0, N - 3))
        # The last round is filled well enough.
        assert learner.ends_well
        model = learner.release()
        assert learner.missed == ""
        with pytest.raises(BudgetExceededError):
            ledger.check(GaussianRelease(0.9 * config.noise_multiplier))
        assert len(list((folder / "ledger.releases").iterdir())) == len(config.stages)
    check_statement(model.privacy)
    assert [stage["name"] for stage in model.privacy["stages"]] == list(config.stages)
    assert model.privacy["noise_multiplier"] == pytest.approx(config.noise_multiplier)
    assert model.settings["solver"] == config.solver
    norm = {"l2_clip_norm": 1.0, "source": "fixed"} if config.n_refinement_rounds else None
    assert model.privacy["clip_bounds"].get("shares") == norm


def test_a_state_from_before_a_round_goes_on_behind_its_release(folder):
    """As after a crash: no document is released twice, and the topics are the same."""
    config = config_of("refinement")
    with open_ledger(folder / "ledger", config) as ledger:
        releaser = ReleaseManager(SecureNoise(), ledger)
        learner = PrivateLearner(config, releaser, vocabulary="public")
        _, begin, end = rounds_of(config)[1]
        feed(learner, ROWS.rows(0, begin + 50))
        saved = learner.engine.state()
        feed(learner, ROWS.rows(begin + 50, end))
        again = PrivateLearner(config, releaser, vocabulary="public")
        again.engine = type(learner.engine).from_state(*saved)
        assert again.catch_up(ledger.last_intent) == end - begin - 50
        assert again.engine.stage.name == learner.engine.stage.name == "refine 3"
        topics = [each.engine.window.refinement.components for each in (learner, again)]
        np.testing.assert_array_equal(*topics)
        feed(again, ROWS.rows(end, N))
    assert [stage.name for stage in again.engine.snapshot.stages] == list(config.stages)
