"""Stages that are rounds of power methods.

Noise is seeded, so that no statistical test varies from run to run; a correct program fails one,
over the choice of seeds, with the probability that stands with it.
"""

import re

import numpy as np
import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.private.power import PowerStatistic, answer_norm, centre_answers
from streamlda.simulate import PlantedLDA
from streamlda.spectral.associations import DocumentAssociation
from streamlda.spectral.power import unit_columns
from streamlda.utils.arrays import take_named
from tests.private.streams import (
    PROBES,
    PROJECTION,
    D,
    Run,
    assert_same_snapshots,
    batch_of_counts,
    check_resumes,
    replayed,
    run,
    settings_of,
    slot_of,
    sums_of,
    view_of,
)

K, V, N = 2, 12, 2000
CORPUS = PlantedLDA(K, V, topic_concentration=0.2, mean_length=30, seed=4)
ROWS = CORPUS.documents(N)

#: How rounds come to be, and how many a window has.
WAYS = {
    "noisy power": ({"solver": "noisy-power"}, K * 5),
    "simultaneous": ({"solver": "simultaneous"}, 8),
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
    assert len(rounds) == config.n_rounds == WAYS[way][1]
    lengths = [last - first for _, first, last in rounds]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_topics_are_found_and_noise_hides_them_where_it_is_large(way):
    small, large = (run(config_of(way, epsilon=eps), ROWS) for eps in (20, 0.02))
    (snapshot,) = small.snapshots
    topics = snapshot.topics
    assert matched_l1_error(CORPUS.components, topics.components).mean < 0.3
    assert np.all(np.diff(topics.prevalence) <= 0)
    assert topics.prevalence.sum() == pytest.approx(1.0)
    assert topics.alpha.sum() == pytest.approx(topics.spectral.alpha_0)
    np.testing.assert_array_equal(topics.alpha, topics.spectral.alpha)
    assert np.all((topics.mixed >= 0) & (topics.mixed <= 1))
    noise = topics.spectral.eigenvalue_noise
    assert np.all((noise > 0) & np.isfinite(noise))
    for snapshot in large.snapshots:
        found = snapshot.topics.components
        assert len(found) < K or matched_l1_error(CORPUS.components, found).mean > 0.5


@pytest.mark.parametrize(
    ("way", "stage"),
    [("noisy power", "power 1"), ("noisy power", "power 4"), ("simultaneous", "power 4")],
)
def test_a_saved_engine_continues_bit_for_bit(way, stage):
    config = config_of(way)
    arrays = check_resumes([Run(config), Run(config)], ROWS, slot_of(config, stage))
    assert take_named(arrays, "sums/").keys() == {"images", "triple_kept"}


@pytest.mark.parametrize(
    "options",
    [*(options for options, *_ in WAYS.values()), {"alpha_0": None}, {"clipping": "worst-case"}],
)
def test_snapshots_are_made_of_released_sums_alone(options):
    """Blanks in place of all documents, with the released sums of another run fed in."""
    config = settings_of(n_features=V, documents_per_snapshot=N, snapshots=1, **options)
    own = run(config, ROWS)
    assert_same_snapshots(own, replayed(own, config))


@pytest.mark.parametrize("way", WAYS)
def test_a_round_of_noise_alone_loses_the_window(way):
    config = config_of(way, clipping="worst-case")
    own = Run(config).add(ROWS, stop=rounds_of(config)[0][1])
    own.learner.skip(own.learner.stage.slots_left)
    sums = own.learner.due_stage.release(own.noise)
    sums["triple_kept"] = np.array(-3.0)
    own.learner.accept(sums)
    assert re.search(r"than its noise hides, got \w+=-", own.learner.private.missed)
    assert (own.learner.stage.name, own.learner.last) == ("pairs", None)


@pytest.mark.parametrize("values_only", [False, True])
def test_corrections_are_those_of_the_public_twin(values_only):
    rng = np.random.default_rng(2)
    documents = [{int(w): 2 for w in rng.choice(D, 3, replace=False)} for _ in range(20)]
    batch, first, pairs = batch_of_counts(documents), rng.dirichlet(np.ones(D)), np.eye(3) + 0.1
    probes = PROBES["spread out"]
    twin = DocumentAssociation(PROJECTION, 0.7, first, pairs)
    twin.begin(probes)
    twin.add(batch)
    answer = twin.answer()
    part = PowerStatistic(PROJECTION, probes, 1e6, values_only=values_only)
    sums = sums_of(part, view_of(documents))
    images = None if values_only else sums["images"] / 20
    values = sums["values"] / 20 if values_only else np.sum(probes * images, axis=0)
    found = centre_answers(images, values, probes, PROJECTION.T @ first, pairs, 0.7)
    np.testing.assert_allclose(found[1], np.sum(probes * answer, axis=0), atol=1e-10)
    if values_only:
        assert found[0] is None
    else:
        np.testing.assert_allclose(found[0], answer, atol=1e-10)


def test_the_joint_norm_of_answers_is_at_most_that_of_the_tensor_times_the_spectral_norm():
    rng = np.random.default_rng(3)
    for t, L in ((2, 9), (5, 3), (6, 6)):
        U = unit_columns(*[rng.normal(size=(t, L))] * 2)
        for times, product, answer in (
            (2, "al,bl->abl", "abc,bl,cl->al"),
            (3, "al,bl,cl->abcl", "abc,al,bl,cl->l"),
        ):
            norm = answer_norm(U, times)
            matrix = np.einsum(product, *[U] * times).reshape(-1, L)
            assert norm == pytest.approx(np.linalg.norm(matrix, 2))
            T = rng.normal(size=(t, t, t))
            answers = np.einsum(answer, T, *[U] * times)
            assert np.linalg.norm(answers) <= norm * np.linalg.norm(T)
            assert 1 <= norm <= np.sqrt(L)
    assert answer_norm(np.eye(4), 2) == pytest.approx(1)
    assert answer_norm(PROBES["equal"], 2) == pytest.approx(np.sqrt(5))


@pytest.mark.parametrize("way", WAYS)
def test_topics_of_rounds_that_have_not_converged_are_not_marked_as_supported(way):
    corpus = PlantedLDA(4, 60, topic_concentration=0.2, mean_length=30, seed=4)
    rows = corpus.documents(20_000)
    options = {"n_features": 60, "n_components": 4, "epsilon": 20, "documents_per_snapshot": 20_000}
    options |= WAYS[way][0]
    for iterations in (1, None):
        (snapshot,) = run(settings_of(n_iterations=iterations, **options), rows).snapshots
        found = snapshot.topics
        nearest = np.abs(found.components[:, None] - corpus.components).sum(axis=2).min(axis=1)
        supported = found.spectral.is_supported
        assert supported.any() == (iterations is None)
        assert nearest[supported].max(initial=0.0) < 0.2


@pytest.mark.parametrize("solver", ["noisy-power", "simultaneous"])
def test_rounds_of_prefix_sums_turn_the_components_of_the_first_window(solver):
    corpus = PlantedLDA(5, 200, topic_concentration=0.2, mean_length=30, seed=4)
    rows, n = corpus.documents(32_000), 8000
    options = {"n_features": 200, "n_components": 5, "epsilon": 4.0, "mode": "prefix"}
    config = settings_of(solver=solver, documents_per_snapshot=n, **options)
    own = Run(config)
    own.add(rows.rows(0, 2 * n + 100))
    probes = own.learner.window.power.method.probes
    own.save(and_restore=True)
    own.add(rows.rows(2 * n + 100, 4 * n))
    np.testing.assert_array_equal(own.learner.window.power.method.probes, probes)
    found = [s.topics.components for s in own.snapshots]
    errors = [matched_l1_error(corpus.components, topics).mean for topics in found]
    # A window by itself stays where the first is.
    assert errors[1:] == sorted(errors[1:], reverse=True)
    assert errors[-1] < 0.6 * errors[0]
    assert_same_snapshots(own, run(config, rows))


def test_rounds_that_are_left_refine_the_components_found():
    config = config_of("noisy power", n_components=3, epsilon=4.0)
    own = run(config, ROWS)
    assert own.stages == config.stage_slots()
    (snapshot,) = own.snapshots
    assert snapshot.topics.components.shape == (2, V)
