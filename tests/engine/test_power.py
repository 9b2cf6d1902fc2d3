"""The engine with an online power method: rounds, resumption, bounded state, what it says."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.generation import Generation
from streamlda.engine.power import PowerEngine, new_engine, restored_engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.model.evaluation import matched_l1_error
from streamlda.simulate import PlantedLDA
from streamlda.spectral.coordinates import turned
from streamlda.spectral.power import DeflatedPower
from streamlda.storage.state import load_state, save_state

SOLVERS = ["online-power", "simultaneous"]


@pytest.fixture(scope="module")
def planted():
    return PlantedLDA(4, 150, seed=7, topic_concentration=0.1)


@pytest.fixture(scope="module")
def documents(planted):
    """Documents, every twentieth too short to be learned from."""
    planted.seek(0)
    drawn = planted.documents(12_000).to_csr().tolil()
    drawn[::20] = 0
    return DocumentBatch.from_matrix(drawn.tocsr())


def engine(solver, **changes):
    asked = {"n_components": 4, "n_features": 150, "warmup_documents": 400, "oversampling": 10}
    rounds = {"documents_per_round": 100, "n_iterations": 4, "n_restarts": 6}
    return new_engine(EngineSettings(**{**asked, **rounds, **changes, "solver": solver}))


def fed(learner, documents, cuts):
    for start, stop in zip([0, *cuts], [*cuts, len(documents)], strict=True):
        learner.add(documents.rows(start, stop))
    return learner


def assert_same_state(one, other):
    (mine, my_values), (theirs, their_values) = one.state(), other.state()
    assert my_values == their_values
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


# Measured 0.003 to 0.004 and 0.018 to 0.020 over four corpora: the bounds leave a half to spare.
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("k", "d", "bound"), [(5, 50, 0.006), (10, 1000, 0.03)])
def test_planted_topics_are_found_and_supported(solver, k, d, bound):
    planted = PlantedLDA(k, d, seed=5, topic_concentration=0.1)
    learner = new_engine(EngineSettings(n_components=k, n_features=d, solver=solver))
    for _ in range(20):
        learner.add(planted.documents(10_000))
    model = learner.snapshot()
    assert matched_l1_error(planted.components, model.components).mean < bound
    assert model.diagnostics["topic_supported"] == [True] * k
    assert model.diagnostics["warnings"] == []
    assert learner.components_finished == k
    np.testing.assert_allclose(model.alpha, 1 / k, atol=0.05)


@pytest.mark.parametrize(
    ("solver", "whitening"),
    [("online-power", "streamlda.engine.generation.inverse_root"), ("simultaneous", "anew")],
)
def test_whitening_by_all_documents_lowers_the_error(planted, monkeypatch, solver, whitening):
    """The warm-up of 400 documents limits what 40,000 can show: 0.055 for 0.010, 0.032 for 0.012.

    Free vectors need the correction at the end only; orthogonal ones need the right coordinates.
    """
    planted.seek(0)
    drawn = planted.documents(40_000)

    def error():
        learner = engine(solver, documents_per_round=None)
        learner.add(drawn)
        return matched_l1_error(planted.components, learner.snapshot().components).mean

    if whitening != "anew":
        monkeypatch.setattr(Generation, "_whiten_anew", lambda self: None)
    corrected = error()
    if whitening == "anew":
        monkeypatch.setattr(Generation, "_whiten_anew", lambda self: None)
    else:
        monkeypatch.setattr(whitening, lambda pairs: np.eye(len(pairs)))
    assert corrected < 0.5 * error()


def test_turned_state_is_that_of_the_turned_tensor():
    rng = np.random.default_rng(4)
    a = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    turn = np.diag([1.0, 1.2, 0.9]) + 0.05
    found = DeflatedPower(3, 3, n_restarts=2, n_iterations=2).state()
    found |= {"vectors": a, "probes": a, "values": np.array([3.0, 2.0, 1.0])}
    state = turned(found, turn)
    tensor = np.einsum("l,il,jl,kl->ijk", found["values"], *[turn @ a] * 3)
    again = np.einsum("l,il,jl,kl->ijk", state["values"], *[state["vectors"]] * 3)
    np.testing.assert_allclose(again, tensor, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(state["vectors"], axis=0), 1.0)
    np.testing.assert_array_equal(state["probes"], state["vectors"])
    # The simultaneous method stays orthonormal, and keeps the first direction.
    probes = turned({"probes": a, "values": np.ones(3)}, turn)["probes"]
    np.testing.assert_allclose(probes.T @ probes, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(probes[:, 0], state["vectors"][:, 0], atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n", [100, None])
@pytest.mark.parametrize("cuts", [[1], [399, 400, 401], [4000, 4001, 11_999], range(7, 9000, 97)])
def test_stream_equals_batch_bit_for_bit_however_it_is_cut(documents, solver, n, cuts):
    whole = fed(engine(solver, documents_per_round=n), documents, [])
    parts = fed(engine(solver, documents_per_round=n), documents, cuts)
    assert_same_state(whole, parts)
    np.testing.assert_array_equal(whole.topics().topics, parts.topics().topics)
    # Four documents less are seen.
    other = fed(engine(solver, documents_per_round=n), documents.rows(5, len(documents)), [])
    assert not np.array_equal(whole.topics().topics, other.topics().topics)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("cut", [1, 400, 451, 2000, 2750, 11_999])
def test_resume_equals_uninterrupted_bit_for_bit(documents, solver, cut, tmp_path):
    straight = engine(solver)
    straight.add(documents.rows(0, cut))
    save_state(tmp_path / "state", straight)
    arrays, values = straight.state()
    in_memory = restored_engine({name: array.copy() for name, array in arrays.items()}, values)
    from_file = load_state(tmp_path / "state")
    assert isinstance(from_file, PowerEngine)
    for learner in (straight, in_memory, from_file):
        learner.add(documents.rows(cut, len(documents)))
    for learner in (in_memory, from_file):
        assert_same_state(straight, learner)
        np.testing.assert_array_equal(straight.topics().topics, learner.topics().topics)


@pytest.mark.parametrize("solver", SOLVERS)
def test_reading_leaves_the_engine_unchanged(documents, solver):
    read, unread = engine(solver), engine(solver)
    for start in range(0, 6000, 250):
        for learner in (read, unread):
            learner.add(documents.rows(start, start + 250))
        read.snapshot()
        assert_same_state(read, unread)


@pytest.mark.parametrize("solver", SOLVERS)
def test_memory_bounded_by_the_formula_whatever_the_stream(documents, solver):
    learner, sizes = engine(solver, n_restarts=3), []
    for _ in range(3):
        learner.add(documents)
        sizes.append(sum(array.nbytes for array in learner.state()[0].values()))
    assert sizes[0] == sizes[1] == sizes[2]
    # d (k + L): no k^3, no d^2, no documents.
    assert 0.9 * learner.settings.state_bytes < sizes[-1] < 1.1 * learner.settings.state_bytes
    assert learner.settings.state_bytes < Engine(EngineSettings(**TENSOR)).settings.state_bytes / 4


TENSOR = {"n_components": 4, "n_features": 150}


def test_equal_documents_give_equal_topics_and_other_seeds_others(documents):
    found = [
        fed(engine("online-power", seed=seed), documents, []).topics().topics for seed in (3, 3, 4)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_stream_that_ends_early_gives_what_is_finished_and_says_what_is_missing(documents):
    learner = engine("online-power")
    learner.add(documents.rows(0, 1200))
    usable = int(documents.rows(0, 1200).usable.sum())
    model = learner.snapshot()
    # A component takes 4 rounds of 100 documents and one for its eigenvalue.
    assert learner.components_finished == usable // 500 == 2
    assert learner.documents_missing == 4 * 5 * 100 - usable
    assert model.n_components == 3
    assert sorted(model.diagnostics["topic_supported"])[0] is False
    assert any(f"documents_missing={2000 - usable}" in w for w in model.diagnostics["warnings"])
    learner.add(documents.rows(1200, 1200 + 2 * (2000 - usable)))
    assert learner.documents_missing == 0
    assert learner.snapshot().n_components == 4


def test_components_are_supported_as_soon_as_they_are_finished(documents):
    learner = engine("online-power", documents_per_round=1000)
    learner.add(documents)
    found = learner.snapshot().diagnostics
    assert learner.components_finished == 2
    assert sorted(found["topic_supported"]) == [False, True, True]
    assert min(noise for noise in found["eigenvalue_noise"] if noise is not None) > 0


def test_no_round_at_all_is_an_error_that_says_so(documents):
    learner = engine("online-power", documents_per_round=1000)
    learner.add(documents.rows(0, 900))
    with pytest.raises(InsufficientDataError, match="documents_per_round=1000"):
        learner.snapshot()
    with pytest.raises(InsufficientDataError, match="documents_seen=0"):
        engine("simultaneous").snapshot()


@pytest.mark.parametrize("solver", SOLVERS)
def test_stream_that_ends_in_the_warmup_is_divided_into_rounds(documents, planted, solver):
    learner = engine(solver, warmup_documents=20_000, documents_per_round=None)
    learner.add(documents)
    model = learner.snapshot()
    assert model.n_components == 4
    assert model.diagnostics["documents_missing"] == 0
    assert matched_l1_error(planted.components, model.components).mean < 0.3


def test_warnings_of_rounds_go_to_the_diagnostics_until_refining(documents):
    learner = engine("online-power", documents_per_round=20, n_iterations=1, warmup_documents=50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.add(documents.rows(0, 175))
        said = learner.snapshot().diagnostics["warnings"]
        assert learner.documents_missing == 0
        resumed = restored_engine(*learner.state())
        assert resumed.snapshot().diagnostics == learner.snapshot().diagnostics
        assert any("Theorem 3.1" in text and "documents_per_round=20" in text for text in said)
        learner.add(documents.rows(175, 1000))
        said = learner.snapshot().diagnostics["warnings"]
    assert not any("Theorem 3.1" in text for text in said)


@pytest.mark.parametrize("solver", SOLVERS)
def test_topics_beyond_the_data_are_not_supported(solver):
    planted = PlantedLDA(2, 80, seed=1, topic_concentration=0.2)
    learner = engine(solver, n_components=6, n_features=80, documents_per_round=None)
    learner.add(planted.documents(20_000))
    found = learner.snapshot().diagnostics
    assert found["topic_supported"].count(False) >= 1
    assert any("do not stand above sampling noise" in text for text in found["warnings"])


def test_bad_input_is_refused_and_nothing_learned(documents):
    learner = engine("simultaneous")
    learner.add(documents.rows(0, 500))
    with pytest.raises(InvalidDocumentsError, match="n_features=3 expected=150"):
        learner.add(DocumentBatch.from_matrix(np.ones((5, 3))))
    assert learner.documents_seen == int(documents.rows(0, 500).usable.sum())
    with pytest.raises(InvalidSettingError, match="solver='whitened-tensor'"):
        PowerEngine(EngineSettings(**TENSOR))
    for name in ("documents_per_round", "n_restarts", "n_iterations"):
        with pytest.raises(InvalidSettingError, match=f"{name} must be .*>= 1, got {name}=0"):
            engine("online-power", **{name: 0})
    with pytest.raises(InvalidSettingError, match=r"whitened-tensor.*solver='gibbs'"):
        engine("gibbs")
