"""Every private contender runs on one small corpus, and the figures of DP-LDA are those of runs."""

import numpy as np
import pytest

from bench.kinds import mark
from bench.papers import dplda, dplda_figures
from bench.papers.dplda import (
    RIVALS,
    UNNOISED,
    VI_UNNOISED,
    cases_2,
    cases_3,
    cases_4,
    cases_v2,
    details_2,
    details_3,
    details_4,
    figures_2,
    figures_3,
    figures_4,
    figures_v2,
)
from bench.papers.dplda_tasks import spaced
from bench.private_contenders import (
    CONTENDERS,
    DPVI,
    ENGINE,
    NOT_PROVEN,
    PRIVATE,
    WA16,
    filled,
    halved,
)
from streamlda.model.evaluation import matched_l1_error
from streamlda.privacy.accounting import mu_of
from tests.bench.results import measured_by, result_of
from tests.papers.corpora import planted


@pytest.fixture(scope="module")
def documents():
    return planted(3000, d=30, k=3, alpha_0=0.3)[1]


@pytest.mark.parametrize("epsilon", [0.05, 10.0])
@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_returns_k_topics_whatever_the_noise_hides(documents, name, epsilon):
    # The paper's accounting holds up to there; and the price of sampling takes long beyond.
    if "accounting" in name or "variational" in name:
        epsilon = min(epsilon, 2.0)
    topics, alpha = CONTENDERS[name].fit(documents, 3, 0.3, epsilon, 1e-4, 0)
    assert topics.shape == (3, 30)
    np.testing.assert_allclose(topics.sum(axis=1), 1)
    assert topics.min() >= 0
    assert alpha.shape == (3,)
    assert alpha.min() > 0


def test_algorithm_3_finds_topics_of_many_words_through_a_public_projection():
    """Above 1024 words the engine and this contender see pairs through a random projection."""
    truth, many = planted(8000, d=1100, k=3, concentration=0.01)
    topics, _ = CONTENDERS[WA16].fit(many, 3, 0.5, 12.0, 1e-4, 0)
    assert matched_l1_error(truth.components, topics).mean < 0.8


def test_claims_are_those_of_the_configurations():
    claims = {name: contender.claim for name, contender in CONTENDERS.items()}
    assert {claims[f"DP-LDA {number}"] for number in "234"} == {NOT_PROVEN}
    assert claims["DP-LDA 1"] == claims[ENGINE] == PRIVATE
    assert not {UNNOISED, VI_UNNOISED} & set(RIVALS)


def test_budgets_topics_and_documents_are_cut_and_filled(documents):
    parts = [mu_of(epsilon, 1e-5) ** 2 for epsilon in halved(1.0, 1e-5)]
    assert sum(parts) == pytest.approx(mu_of(1.0, 1e-5) ** 2, rel=1e-6)
    # Topics that are missing are the background.
    topics, alpha = filled(np.eye(2)[:1], np.array([0.4]), np.array([0.5, 0.5]), 3, 0.9)
    np.testing.assert_array_equal(topics, [[1, 0], [0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(alpha, [0.4, 0.3, 0.3])
    assert spaced(documents, 10**6) is documents
    rows = documents.to_csr()[np.linspace(0, 2999, 7).astype(int)]
    np.testing.assert_array_equal(spaced(documents, 7).to_csr().toarray(), rows.toarray())


def by_epsilon(name, cases, good, bad):
    """Return a result in which errors fall with epsilon, those of the engine from `good`."""

    def measured(case):
        level = good if case.parameters["contender"] == ENGINE else bad
        errors = {mark(epsilon): level / epsilon for epsilon in case.parameters["epsilons"]}
        return {**errors, "frequencies": 2000.0}

    return result_of(name, cases, measured)


@pytest.mark.parametrize(("good", "met"), [(0.01, True), (0.9, False)])
def test_figures_show_whether_the_engine_is_before_every_configuration(good, met, tmp_path):
    two = by_epsilon("dplda-figure-2", cases_2(False, ()), good, 0.5)
    three = by_epsilon("dplda-figure-3", cases_3(False, ()), good, 0.5)
    for found in (figures_2(two), figures_3(three)):
        judged = [figure for figure in found if figure.met is not None]
        assert judged
        assert all(figure.met is met for figure in judged)
    ordered = [figure for figure in figures_2(two) if "before 3 and 4" in figure.name]
    assert {figure.measured for figure in ordered} == {"none"}  # ties are not ahead
    for details, result in ((details_2, two), (details_3, three)):
        page = details(result)
        names = {case["parameters"]["contender"] for case in result["cases"].values()}
        assert all(f"| {name} |" in page for name in names)
        assert "not proven private" in page
    dplda_figures.plot_2(two, tmp_path)
    dplda_figures.plot_3(three, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["dplda-figure-2.png", "dplda-figure-3.png"]


@pytest.mark.parametrize(("searched", "agrees"), [(0.4, True), (0.6, False)])
def test_version_2_is_judged_by_every_configuration_against_dpvi(searched, agrees, tmp_path):
    def measured(case):
        level = searched if case.parameters["contender"] == "DP-LDA 4, searched" else 0.3
        level = 0.5 if case.parameters["contender"] == DPVI else level
        return {mark(epsilon): level / epsilon for epsilon in case.parameters["epsilons"]}

    result = result_of("dplda-v2-figure-2", cases_v2(False, ()), measured)
    verdict = dplda_figures.verdict_v2(result)
    assert verdict.agrees is agrees
    assert f"1 at 20, 2 at 20, 3 at 20, 4 at {20 * agrees} is before DP-VI" in verdict.because
    found = figures_v2(result)
    assert len(found) == 8
    assert {figure.measured for figure in found} == {"1.00"}
    assert "| DP-LDA 1, searched, all paid | replace-one | private |" in details_2(result)
    dplda_figures.plot_2(result, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["dplda-v2-figure-2.png"]


def test_figure_4_counts_bounds_that_are_left(tmp_path):
    def measured(case):
        left = float(case.parameters["n_components"] == 5)
        return {
            **{"sigma_k": 0.1, "gamma_s": 0.2},
            **{"released sigma_k": 0.05, "released gamma_s": left},
        }

    result = result_of("dplda-figure-4", cases_4(False, ()), measured)
    found = {figure.name: figure.measured for figure in figures_4(result)}
    runs = len(result["runs"])
    assert found["released sigma_k above 0"] == f"{runs} of {runs} runs"
    assert found["released gamma_s above 0"] == f"{runs // 5} of {runs} runs"
    assert "| 1.00e-01 | 5.00e-02 | 2.00e-01 |" in details_4(result)
    dplda_figures.plot_4(result, tmp_path)
    assert (tmp_path / "dplda-figure-4.png").stat().st_size > 1000


def test_tasks_measure_what_the_figures_read(tmp_path):
    small = {"documents": 2000, "n_features": 20, "n_components": 3}
    for case in (cases_2(True, ())[0], cases_4(True, ())[0]):
        measured = measured_by(case.task, {**case.parameters, **small})
        wanted = [mark(e) for e in case.parameters.get("epsilons", [])] or dplda.QUANTITIES
        assert all(np.isfinite(measured[name]) for name in wanted)
    rows = planted(900, d=40, k=3)[1]
    arrays = {"n_features": np.array(40)}
    for part in ("train", "held_out"):
        names = ("counts", "word_ids", "row_pointers")
        arrays |= {f"{part}.{name}": getattr(rows, name) for name in names}
    path = tmp_path / "counts.npz"
    np.savez(path, **arrays)
    case = cases_3(True, ())[0]
    parameters = {**case.parameters, "documents": 600, "n_components": 3, "epsilons": [5.0]}
    measured = measured_by(case.task, parameters, {"counts": str(path)})
    assert 1 < measured[mark(5.0)] < 50
    assert measured["frequencies"] < 40
