"""Online and private power methods: rounds of fresh documents, each one Gaussian release.

Noise is seeded, so that no statistical test varies from run to run; a correct program fails one,
over the choice of seeds, with the probability that stands with it.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bench import wa16_solvers
from streamlda.errors import BudgetExceededError, InsufficientDataError, InvalidSettingError
from streamlda.model.evaluation import matched_l1_error
from streamlda.privacy.accounting import mu_of, noise_multiplier
from streamlda.privacy.clipping import clip_factors
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.noise import SecureNoise, SeededNoise
from streamlda.privacy.statement import check_statement
from streamlda.private import power as solvers
from streamlda.private.contributions import TripleNorms, View
from streamlda.private.engine import PrivateEngine
from streamlda.private.learner import PrivateLearner
from streamlda.private.power import PowerRounds, PowerStatistic, answer_norm, centred_answers
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.private.settings import LEAST_ROUND, PrivateSettings
from streamlda.private.topics import PairView
from streamlda.simulate import PlantedLDA
from streamlda.spectral.associations import DocumentAssociation
from streamlda.spectral.power import unit_columns
from tests import oracle
from tests.private.streams import (
    MAP,
    POOL,
    D,
    batch_of_counts,
    distance,
    filled,
    settings_of,
    stage_of,
)

ALARM = 1e-6
SOLVERS = ["noisy-power", "simultaneous"]

#: Along the longest row of the map, at right angles to it, and the row itself five times.
LONGEST = unit_columns(MAP[[3]].T, MAP[[3]].T)
ORTHONORMAL = np.linalg.qr(np.hstack([LONGEST, np.random.default_rng(0).normal(size=(3, 2))]))[0]
EQUAL = np.repeat(LONGEST, 5, axis=1)
SPREAD_OUT = unit_columns(*[np.random.default_rng(1).normal(size=(3, 7))] * 2)
PROBES = {"orthonormal": ORTHONORMAL, "equal": EQUAL, "spread out": SPREAD_OUT}


def view_of(documents):
    batch = batch_of_counts(documents)
    return View(batch, np.ones(len(documents), dtype=bool))


def moved(probes, here, there, *, values_only=False, relation="add-remove", bound=0.3, group=None):
    """Return how far two streams are apart, over what the mechanism says at most."""
    asked, largest = settings_of(relation), float(np.linalg.norm(MAP, axis=1).max()) ** 3
    stages = []
    for documents in (here, there):
        part = PowerStatistic(MAP, probes, bound * largest, values_only=values_only)
        stages.append(filled(stage_of([part], asked, 24, group), documents, asked))
    mechanism = stages[0].mechanism
    return distance(mechanism, *(s.aggregates for s in stages)) / mechanism.l2_sensitivity


# Sums.


@pytest.mark.parametrize("values_only", [False, True])
@pytest.mark.parametrize("name", PROBES)
def test_sums_are_those_of_the_clipped_tensor(name, values_only):
    probes, view, bound = PROBES[name], view_of(POOL.values()), 0.5
    factors = clip_factors(TripleNorms(MAP).norms(view), bound) * view.active
    T = np.zeros((3, 3, 3))
    for factor, document in zip(factors, POOL.values(), strict=True):
        tokens = [word for word, count in document.items() for _ in range(count)]
        if len(tokens) >= 3:
            T += factor * oracle.through(oracle.statistic(tokens, D, 3), MAP)
    images = np.einsum("abc,bl,cl->al", T, probes, probes)
    expected = np.sum(images * probes, axis=0) if values_only else images
    part = PowerStatistic(MAP, probes, bound, values_only=values_only)
    part.add(view)
    sums = part.take()
    np.testing.assert_allclose(sums["values" if values_only else "images"], expected, atol=1e-9)
    assert sums["triple_kept"] == pytest.approx(factors.sum())
    assert not any(np.any(array) for array in part.take().values())
    assert {b.name: b.shape for b in part.blocks()} == {k: np.shape(v) for k, v in sums.items()}


@pytest.mark.parametrize("values_only", [False, True])
def test_corrections_are_those_of_the_public_twin(values_only):
    rng = np.random.default_rng(2)
    documents = [{int(w): 2 for w in rng.choice(D, 3, replace=False)} for _ in range(20)]
    batch, first, pairs = batch_of_counts(documents), rng.dirichlet(np.ones(D)), np.eye(3) + 0.1
    twin = DocumentAssociation(MAP, 0.7, first, pairs)
    twin.begin(SPREAD_OUT, values_only=values_only)
    twin.add(batch)
    part = PowerStatistic(MAP, SPREAD_OUT, 1e6, values_only=values_only)
    part.add(view_of(documents))
    sums = part.take()
    images = None if values_only else sums["images"] / 20
    values = sums["values"] / 20 if values_only else np.sum(SPREAD_OUT * images, axis=0)
    found = centred_answers(images, values, SPREAD_OUT, MAP.T @ first, pairs, 0.7)
    for mine, theirs in zip(found, twin.answer(), strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(mine, theirs, atol=1e-10)


# Sensitivity.


documents = st.sampled_from(sorted(POOL)).map(POOL.__getitem__) | st.dictionaries(
    st.integers(0, D - 1), st.integers(1, 30)
)


@pytest.mark.fuzz
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@given(
    stream=st.lists(documents, min_size=1, max_size=6),
    other=documents,
    probes=st.sampled_from(sorted(PROBES)),
    bound=st.sampled_from([0.001, 0.3, 1.0]),
    group=st.sampled_from([1, 3, 64]),
    values_only=st.booleans(),
)
def test_no_neighbours_are_farther_apart_than_the_sensitivity(
    relation, stream, other, probes, bound, group, values_only
):
    changed = [{} if relation == "add-remove" else other, *stream[1:]]
    options = {"relation": relation, "bound": bound, "group": group}
    assert moved(PROBES[probes], stream, changed, values_only=values_only, **options) <= 1


@pytest.mark.parametrize("values_only", [False, True])
@pytest.mark.parametrize("name", ["orthonormal", "equal"])
def test_one_word_along_a_probe_attains_the_sensitivity(name, values_only):
    rest = [POOL["all words"], POOL["one word"]]
    here, there = [POOL["longest row"], *rest], [{}, *rest]
    # At the bound, the document counts in full in the number of documents as well.
    apart = moved(PROBES[name], here, there, values_only=values_only, bound=1.0)
    assert 0.99 < apart <= 1
    assert 0.97 < moved(PROBES[name], here, there, values_only=values_only) <= 1


def test_opposite_words_attain_the_sensitivity_of_replace_one():
    probe = MAP[[0]].T  # The documents' rows are this one and its opposite, of norm 1.
    here, there = [POOL["one word"]], [POOL["its opposite"]]
    # All but the share of the number of documents, which is the same in both.
    assert 0.97 < moved(probe, here, there, relation="replace-one", bound=0.002) <= 1


def test_the_joint_norm_of_answers_is_at_most_that_of_the_tensor_times_the_spectral_norm():
    rng = np.random.default_rng(3)
    for t, L in ((2, 9), (5, 3), (6, 6)):
        U = unit_columns(*[rng.normal(size=(t, L))] * 2)
        for power, worst in ((2, "abc,bl,cl->al"), (3, "abc,al,bl,cl->l")):
            product = np.stack([np.multiply.outer(u, u).ravel() for u in U.T], axis=1)
            if power == 3:
                product = np.einsum("pl,al->apl", product, U).reshape(-1, L)
            norm = answer_norm(U, power)
            assert norm == pytest.approx(np.linalg.norm(product, 2))
            T = rng.normal(size=(t, t, t))
            answers = np.einsum(worst, T, *[U] * power)
            assert np.linalg.norm(answers) <= norm * np.linalg.norm(T)
            assert 1 <= norm <= np.sqrt(L)
    assert answer_norm(np.eye(4), 2) == pytest.approx(1)
    assert answer_norm(EQUAL, 2) == pytest.approx(np.sqrt(5))


@pytest.mark.parametrize("bug", ["restarts for the price of one", "no clipping", "own factors"])
def test_planted_bugs_are_caught(bug, monkeypatch):
    if bug == "restarts for the price of one":
        monkeypatch.setattr(solvers, "answer_norm", lambda probes, power: 1.0)
    elif bug == "no clipping":
        monkeypatch.setattr(solvers, "clip_factors", lambda norms, bound: np.ones_like(norms))
    else:
        monkeypatch.setattr(
            solvers, "clip_factors", lambda norms, bound: np.minimum(1, 2 * bound / (norms + 1e-9))
        )
    apart = moved(EQUAL, [POOL["longest row"]], [{}])
    assert apart > 1.5


# Rounds of the engine.


K, N = 2, 2000


def asked_of(solver, **options):
    values = {
        "n_components": K,
        "n_features": 12,
        "epsilon": 20.0,
        "delta": 1e-4,
        "documents_per_snapshot": N,
        "solver": solver,
    }
    return PrivateSettings(**{**values, **options})


CORPUS = PlantedLDA(K, 12, topic_concentration=0.2, mean_length=30, seed=4)
ROWS = CORPUS.documents(2 * N)


def run(engine, noise, batch=ROWS, start=0, stop=None):
    """Feed rows and accept releases; return the stages and what each released."""
    released = []
    while engine.stage is not None and start < (stop or batch.n_documents):
        start += engine.add(batch.rows(start, stop or batch.n_documents))
        if engine.due is not None:
            due = engine.due
            sums = due.release(noise)
            released.append(((due.stage, due.first, due.last), due.event, due.stddevs, sums))
            engine.accept(sums)
    return released


@pytest.mark.parametrize("clipping", ["quantile", "worst-case"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_rounds_are_stages_of_equal_length_that_fill_the_window(solver, clipping):
    asked = asked_of(solver, snapshots=1, clipping=clipping)
    found = run(PrivateEngine(asked), SeededNoise(1))
    places = [stage for stage, *_ in found]
    assert places == asked.stage_slots()
    rounds = [(first, last) for name, first, last in places if name.startswith("power")]
    assert len(rounds) == asked.n_rounds == {"noisy-power": K * 5, "simultaneous": 8}[solver]
    lengths = {last - first for first, last in rounds}
    assert max(lengths) - min(lengths) <= 1
    # Each place in one stage: parallel composition, so every stage spends the whole budget.
    assert [first for _, first, _ in places] == [0, *(last for _, _, last in places[:-1])]
    assert places[-1][2] == N
    assert {event for _, event, _, _ in found} == {asked.event}
    # One dimension of answers a round of images; an eigenvalue round asks for values alone.
    blocks = [sorted(sums) for (name, *_), _, _, sums in found if name.startswith("power")]
    values = [i % 5 == 4 and solver == "noisy-power" for i in range(len(blocks))]
    assert blocks == [["triple_kept", "values"] if v else ["images", "triple_kept"] for v in values]


@pytest.mark.parametrize("solver", SOLVERS)
def test_topics_are_found_and_noise_hides_them_where_it_is_large(solver):
    errors = []
    for epsilon in (20.0, 0.02):
        engine = PrivateEngine(asked_of(solver, epsilon=epsilon, clip_quantile=0.9))
        try:
            run(engine, SeededNoise(2), stop=N)
        except InsufficientDataError:
            errors.append(np.inf)
            continue
        topics = engine.snapshot.topics
        errors.append(np.inf)
        if len(topics.components) == K:
            errors[-1] = matched_l1_error(CORPUS.components, topics.components).mean
            noise = topics.spectral.eigenvalue_noise
            assert np.all((noise > 0) & np.isfinite(noise))
    assert errors[0] < 0.25
    assert errors[1] > 0.5


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("stage", ["power 1", "power 4"])
def test_a_saved_engine_goes_on_bit_for_bit(solver, stage):
    asked = asked_of(solver)
    middle = {name: first + 7 for name, first, _ in asked.stage_slots()}[stage]
    whole, first = PrivateEngine(asked), PrivateEngine(asked)
    run(whole, noise := SeededNoise(3), stop=middle)
    # Saving ends the running group of the other one, too.
    whole.state()
    run(whole, noise, start=middle, stop=N)
    run(first, noise := SeededNoise(3), stop=middle)
    arrays, values = first.state()
    assert any(name.startswith("power/") for name in arrays)
    second = PrivateEngine.from_state(arrays, values)
    run(second, noise, start=middle, stop=N)
    np.testing.assert_array_equal(
        whole.snapshot.topics.components, second.snapshot.topics.components
    )
    assert whole.snapshot.stages == second.snapshot.stages


@pytest.mark.parametrize("solver", SOLVERS)
def test_snapshots_are_made_of_released_sums_alone(solver):
    """Blanks in place of all documents, with the released sums of another run fed in."""
    asked = asked_of(solver, snapshots=1)
    own, other = PrivateEngine(asked), PrivateEngine(asked)
    for _, _, _, sums in run(own, SeededNoise(5)):
        other.skip(other.stage.open_places)
        other.accept(sums)
    np.testing.assert_array_equal(own.snapshot.topics.components, other.snapshot.topics.components)


@pytest.mark.statistical
@pytest.mark.parametrize("wrong", [1.0, 1.5])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_noise_is_that_of_the_exact_accounting(solver, wrong):
    """Blanks in the rounds: what is released is noise. False-alarm rate 1e-6; 1.5 is refused."""
    asked = asked_of(solver, documents_per_snapshot=40 * N, n_iterations=40, clipping="worst-case")
    z = noise_multiplier(asked.epsilon, asked.delta_left)
    engine, noise, scaled = PrivateEngine(asked), SeededNoise(6), []
    run(engine, noise, stop=2 * N)
    # The rest of the pairs is blank.
    while (stage := engine.stage) is not None and engine.snapshot is None:
        probes = None if engine._power is None else engine._power.method.probes
        engine.skip(stage.open_places)
        sums = engine.due.release(noise)
        if probes is not None:
            name = "values" if "values" in sums else "images"
            clip = engine._triple_bound * answer_norm(probes, 3 if name == "values" else 2)
            scale = z * clip / np.sqrt(1 - solvers.KEPT_FRACTION)
            scaled.append((sums[name] / scale).ravel())
            # The answer of a round of noise alone may be lost; go on with a plausible one.
            sums["triple_kept"] = np.array(1.0)
        engine.accept(sums)
    values = np.concatenate(scaled) / wrong
    assert len(values) >= 150
    total = float(np.sum(values**2))
    tail = 2 * min(stats.chi2.cdf(total, len(values)), stats.chi2.sf(total, len(values)))
    assert (tail > ALARM) == (wrong == 1.0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_round_of_noise_alone_loses_the_window(solver):
    asked = asked_of(solver, clipping="worst-case")
    engine, noise = PrivateEngine(asked), SeededNoise(7)
    run(engine, noise, stop=asked.stage_slots()[0][2])
    engine.skip(engine.stage.open_places)
    sums = {**engine.due.release(noise), "triple_kept": np.array(-3.0)}
    with pytest.raises(InsufficientDataError, match="noisy number of documents=-3"):
        engine.accept(sums)
    assert (engine.stage.name, engine.snapshot) == ("pairs", None)


def test_rounds_that_are_left_refine_the_components_found():
    settings = asked_of("noisy-power")
    rng = np.random.default_rng(0)
    first, d = rng.dirichlet(np.ones(12)), 12
    direction = unit_columns(*[rng.normal(size=(d, 1))] * 2)
    view = PairView(
        first, np.eye(d), None, 1e-3, np.ones(1), direction, np.ones(2), 1e-3, centre=0.5
    )
    rounds = PowerRounds(settings, view, view.whitening)
    for _ in range(settings.n_rounds):
        part = rounds.part(1.0)
        shape = rounds.method.probes.shape
        answer = (
            {"values": np.ones(shape[1])}
            if part.blocks()[0].name == "values"
            else {"images": np.ones(shape)}
        )
        rounds.answer({**answer, "triple_kept": np.array(1.0)}, {"images": 0.1, "values": 0.1})
    assert rounds.method.finished
    assert rounds.method.components().eigenvectors.shape == (1, 1)
    assert rounds.topics(100, rng).components.shape == (1, 12)


# Settings.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "magic"}, "solver='magic'"),
        ({"mode": "prefix", "snapshots": 3}, "mode='prefix'"),
        ({"documents_per_snapshot": 199}, "places=9 rounds=10"),
        ({"n_restarts": 0}, "n_restarts=0"),
        ({"n_iterations": 0}, "n_iterations=0"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(InvalidSettingError, match=message):
        asked_of(**{"solver": "noisy-power", **options})


def test_the_fewest_places_of_a_round_are_accepted():
    asked = asked_of("noisy-power", documents_per_snapshot=200)
    lengths = [last - first for name, first, last in asked.stage_slots() if "power" in name]
    assert min(lengths) >= LEAST_ROUND - 1
    assert sum(asked.stages.values()) == pytest.approx(1)


def test_users_pay_for_every_round():
    options = {"privacy_unit": "user", "documents_per_user": 2, "snapshots": 3}
    asked = asked_of("simultaneous", **options)
    releases = 3 * len(asked.stages)
    assert asked.noise_multiplier == noise_multiplier(asked.epsilon, asked.delta_left, releases)


# Through the ledger.


@pytest.mark.parametrize("solver", SOLVERS)
def test_rounds_go_through_the_ledger_and_into_the_statement(solver, tmp_path):
    asked = asked_of(solver, clipping="worst-case")
    with open_ledger(tmp_path / "ledger", asked) as ledger:
        learner = PrivateLearner(asked, ReleaseManager(SecureNoise(), ledger), vocabulary="public")
        learner.add(ROWS.rows(0, N - 3))
        # The last round is filled well enough.
        learner.finish()
        assert learner.missed == []
        model = learner.snapshot()
        mu = 1 / asked.noise_multiplier
        with pytest.raises(BudgetExceededError):
            ledger.check(GaussianRelease(0.9 / mu))
        assert len(list((tmp_path / "ledger.releases").iterdir())) == len(asked.stages)
    check_statement(model.privacy)
    names = [stage["name"] for stage in model.privacy["stages"]]
    assert names == list(asked.stages)
    assert model.privacy["noise_multiplier"] == pytest.approx(1 / mu)
    assert model.settings["solver"] == solver


# Replayed queries, for comparison.


@pytest.mark.parametrize("epsilon", wa16_solvers.EPSILONS)
def test_the_budget_of_replay_is_split_exactly(epsilon):
    parts = [mu_of(part, wa16_solvers.DELTA) for part in wa16_solvers.split_budget(epsilon)]
    whole = mu_of(epsilon, wa16_solvers.DELTA)
    assert sum(mu**2 for mu in parts) == pytest.approx(whole**2, rel=1e-6)
    assert parts[0] ** 2 == pytest.approx(wa16_solvers.PAIRS_SHARE * whole**2, rel=1e-6)


def test_replayed_queries_find_the_topics_where_noise_is_small(monkeypatch):
    monkeypatch.setattr(wa16_solvers, "DELTA", 1e-3)
    parameters = {"n_components": K, "n_features": 12, "documents": 2 * N, "epsilon": 25.0}
    found = wa16_solvers.replayed(ROWS, parameters, 0, SeededNoise(8))
    assert matched_l1_error(CORPUS.components, found.components).mean < 0.25
