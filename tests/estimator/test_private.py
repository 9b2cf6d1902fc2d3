"""The private estimator: what it publishes, what it keeps to itself, what it refuses.

Fits that must succeed have ample documents at epsilon = 10: of 900 fits like those here (1,000 to
3,000 rows, users, prefix mode, public bounds) under other keys none failed or warned. Here keys are
the same in every run.
"""

import copy
import math
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import streamlda
from streamlda import StreamLDA
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.guarantee.noise import SeededNoise
from streamlda.model.evaluation import matched_l1_error
from streamlda.privacy.ledger import LedgerReader
from streamlda.privacy.statement import check_statement
from streamlda.private import settings as settings_module
from streamlda.private.learner import PrivateLearner
from streamlda.private.ledger_model import load_released
from streamlda.simulate import PlantedLDA

pytestmark = [
    pytest.mark.usefixtures("same_noise"),
    pytest.mark.filterwarnings("ignore:rows were in earlier private fits of this process"),
]

BUDGET = {"epsilon": 10.0, "delta": 1e-6}
FEW_TOPICS = "ignore:. of 3 topics stand above the noise:UserWarning"


@pytest.fixture(scope="module")
def planted():
    return PlantedLDA(3, 40, seed=4, topic_concentration=0.1)


@pytest.fixture(scope="module")
def X(planted):
    planted.seek(0)
    return planted.documents(3000).to_csr()


def private(**changes):
    return StreamLDA(**{"n_components": 3, "random_state": 0, **BUDGET, **changes})


@pytest.fixture
def seeded(monkeypatch):
    monkeypatch.setattr(StreamLDA, "_new_noise", staticmethod(lambda: SeededNoise(1)))


def test_fit_makes_one_private_snapshot_of_all_rows(X, planted, tmp_path):
    lda = private().fit(X)
    assert matched_l1_error(planted.components, lda.components_).mean < 0.12
    assert lda.n_components_ == 3
    assert lda.documents_seen_ == 3000
    assert lda.alpha_.shape == (3,)
    check_statement(lda.privacy_)
    said = lda.privacy_
    assert (said["statement"], said["epsilon"], said["delta"]) == ("private", 10.0, 1e-6)
    assert (said["ledger"], said["vocabulary"]) == ("in memory", "columns of a matrix: public")
    assert said["cohort"] == {"first": 0, "last": 2999}
    words = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(40)]
    lda.to_model(words).save(tmp_path / "model")
    model = streamlda.load(tmp_path / "model")
    assert model.privacy == said
    assert model.vocabulary.words == tuple(words)
    assert model.settings["solver"] == "whitened-tensor"
    np.testing.assert_array_equal(model.transform(X[:9]), lda.transform(X[:9]))
    assert lda.perplexity(X) < 40
    # The seed is that of the public projection, not of the noise.
    assert not np.array_equal(private().fit(X).components_, lda.components_)


@pytest.mark.filterwarnings(FEW_TOPICS)
@pytest.mark.parametrize("kind", ["window", "prefix", "user"])
def test_partial_fit_equals_one_call_however_rows_are_cut(X, seeded, kind):
    changes = {
        "window": {},
        "prefix": {"mode": "prefix", "snapshots": 2},
        "user": {"privacy_unit": "user", "documents_per_user": 2, "snapshots": 2, "epsilon": 11.0},
    }[kind]
    users = [f"u{i % 900}" for i in range(3000)] if kind == "user" else None
    whole = private(documents_per_snapshot=1500, **changes).fit(X, users=users)
    parts = private(documents_per_snapshot=1500, **changes)
    for rows in np.split(np.arange(3000), [1, 7, 1499, 1500, 2100]):
        own = None if users is None else [users[i] for i in rows]
        parts.partial_fit(X[rows], users=own)
    np.testing.assert_array_equal(whole.components_, parts.components_)
    assert parts.documents_seen_ == (3000 if kind == "prefix" else 1500)


def test_before_the_first_window_is_full_it_says_what_is_missing(X):
    lda = private(documents_per_snapshot=1000)
    assert not hasattr(lda, "components_")
    for start, stop, missing in ((0, 10, 990), (10, 400, 600), (400, 999, 1)):
        lda.partial_fit(X[start:stop])
        assert not hasattr(lda, "components_")
        assert not hasattr(lda, "privacy_")
        with pytest.raises(NotFittedError, match=rf"slots_missing={missing} .*further rows"):
            lda.transform(X[:5])
        with pytest.raises(InsufficientDataError, match=f"slots_missing={missing} "):
            _ = lda.alpha_
        with pytest.raises(AttributeError, match=f"slots_missing={missing} "):
            lda.to_model()
    lda.partial_fit(X[999:1000])
    first = lda.components_
    lda.partial_fit(X[1000:1900])
    assert lda.components_ is first
    lda.partial_fit(X[1900:2000])
    assert lda.privacy_["cohort"] == {"first": 1000, "last": 1999}
    again = clone(lda)
    assert again.get_params() == lda.get_params()
    assert not hasattr(again, "_learner")


def test_pickles_and_copies_do_not_depend_on_rows_behind_the_snapshot(X):
    lda = private(documents_per_snapshot=1000).partial_fit(X[:100])
    before = pickle.dumps(lda)
    assert pickle.dumps(lda.partial_fit(X[100:900])) == before
    with pytest.raises(NotFittedError, match=r"slots_missing=None .*; fit it"):
        pickle.loads(before).transform(X[:5])
    published = pickle.dumps(lda.partial_fit(X[900:1000]))
    lda.partial_fit(X[1000:1700])
    assert pickle.dumps(lda) == published
    raw, _ = lda._learner.state()
    assert raw["sums/pair"].any()
    assert pickle.dumps(lda) == published
    for again in (pickle.loads(published), copy.copy(lda), copy.deepcopy(lda)):
        np.testing.assert_array_equal(again.transform(X[:5]), lda.transform(X[:5]))
        assert again.privacy_ == lda.privacy_
        assert again.to_model().privacy == lda.privacy_
        with pytest.raises(InvalidSettingError, match="keeps the published model only"):
            again.partial_fit(X[:5])
        assert again.fit(X).documents_seen_ == 1000
    assert "sums" not in repr(lda)
    shown = {name for name in vars(lda) if not name.startswith("_")}
    assert shown == {*lda.get_params(), "n_features_in_"}


def test_blank_rows_take_record_slots_and_users_need_names(X, seeded):
    blanks = X.toarray()
    blanks[::3] = 0
    assert private().fit(blanks).documents_seen_ == 3000
    by_user = private(privacy_unit="user", documents_per_user=1)
    with pytest.raises(InvalidSettingError, match=r"users are missing.*users=False"):
        by_user.fit(X)
    with pytest.raises(InvalidDocumentsError, match="n_users=2 n_samples=3000"):
        by_user.fit(X, users=["a", "b"])
    with pytest.raises(InvalidDocumentsError, match="a user is no str"):
        by_user.fit(X, users=range(3000))
    lda = by_user.fit(X, users=np.array([f"u{i}" for i in range(3000)]))
    assert lda.documents_seen_ == 3000
    with pytest.raises(InvalidSettingError, match=r"privacy_unit='document' users=True"):
        private().fit(X, users=["a"] * 3000)
    with pytest.raises(InvalidSettingError, match="users are given without epsilon"):
        StreamLDA(2).fit(X, users=["a"] * 3000)
    with pytest.raises(InvalidSettingError, match="documents_per_snapshot=None; set it"):
        private().partial_fit(X)
    for call in (private().fit, private(documents_per_snapshot=500).partial_fit):
        with pytest.raises(InsufficientDataError, match=r"no row is a document.* not TF-IDF"):
            call(X.toarray() + 0.5)


def test_weak_windows_are_refused_or_warned_about_where_the_caller_stands(X, monkeypatch):
    with pytest.warns(UserWarning, match=r"of 12 topics stand above .* larger epsilon") as caught:
        lda = StreamLDA(12, random_state=0, epsilon=1.0, delta=1e-6).fit(X)
    assert [warning.filename for warning in caught] == [__file__]
    assert lda.transform(X[:4]).shape == (4, lda.n_components_)
    assert len(lda.get_feature_names_out()) == lda.n_components_ < 12
    # Of one document only the noise is left; with this seed it leaves none.
    monkeypatch.setattr(StreamLDA, "_new_noise", staticmethod(lambda: SeededNoise(3)))
    blanks = np.zeros((1000, 40))
    blanks[0, :3] = 1
    with pytest.raises(InsufficientDataError, match=r"more documents than its noise hides"):
        private().fit(blanks)
    lda = private(documents_per_snapshot=1000)
    with pytest.warns(UserWarning, match=r"a window gave no snapshot: .* than its noise hides"):
        lda.partial_fit(blanks)
    assert not hasattr(lda, "components_")


@pytest.mark.parametrize(
    ("rows", "error", "ledger"),
    [(0, (KeyboardInterrupt,), True), (700, (OSError, 28, "no space"), False)],
    ids=["the first", "a later one"],
)
def test_a_call_that_failed_half_way_is_the_last_one(X, tmp_path, monkeypatch, rows, error, ledger):
    path = str(tmp_path / "L") if ledger else None
    lda = private(documents_per_snapshot=600, ledger=path)
    if rows:
        topics = lda.partial_fit(X[:rows]).components_

    def fails(self, *args, release=PrivateLearner.release):
        if self.stage.name == "triples":
            raise error[0](*error[1:])
        return release(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(PrivateLearner, "release", fails)
        with pytest.raises(error[0]) as caught:
            lda.partial_fit(X[rows : rows + 1000])
    said = "\n".join(getattr(caught.value, "__notes__", []))
    assert ("spent: epsilon=" in said) == ledger
    assert ("gives no topics: releases of stages" in said) != bool(rows)
    assert ("give no model of the newest window: releases of stages" in said) == ledger
    # What was released is known; what was read is not read again.
    consumed = 600 if not rows else 1200
    for again in (X[rows : rows + 1000], X[2000:]):
        with pytest.raises(InvalidSettingError, match=rf"half way.*slots={consumed}; "):
            lda.partial_fit(again)
    if rows:
        np.testing.assert_array_equal(lda.components_, topics)
    else:
        with pytest.raises(NotFittedError, match="failed half way"):
            _ = lda.components_


def test_a_fit_that_fails_in_a_round_keeps_the_topics_of_what_was_released(
    X, tmp_path, monkeypatch
):
    """Those that `streamlda budget --publish` gives, too; no row may follow."""
    # So that so few words are refined, too.
    monkeypatch.setattr(settings_module, "DENSE_FEATURES", 39)
    path = tmp_path / "L"
    lda = private(oversampling=9, ledger=str(path))

    def fails(self, *args, release=PrivateLearner.release):
        if self.stage.name == "choice":
            raise KeyboardInterrupt
        return release(self, *args)

    monkeypatch.setattr(PrivateLearner, "release", fails)
    with pytest.raises(KeyboardInterrupt) as caught:
        lda.fit(X)
    assert "the topics of what was released, without stages=choice" in caught.value.__notes__[-1]
    assert lda.privacy_["missing"] == ["choice"]
    assert (lda.privacy_["epsilon"], lda.n_components_) == (10.0, 3)
    check_statement(lda.privacy_)
    assert "(incomplete, without choice)" in caught.value.__notes__[0]
    model = load_released(path)
    np.testing.assert_array_equal(model.components, lda.components_)
    assert model.privacy == lda.privacy_
    with pytest.raises(InvalidSettingError, match="has ended"):
        lda.partial_fit(X)


def test_a_window_must_be_whole_and_the_last_snapshot_is_the_end(X, tmp_path):
    with pytest.raises(InsufficientDataError, match=r"slots=1000 documents_per_snapshot=2000"):
        private(documents_per_snapshot=2000).fit(X[:1000])
    blank = np.zeros((1000, 40))
    with pytest.raises(InsufficientDataError, match=r"no row is a document.*nothing was spent"):
        private(ledger=str(tmp_path / "B")).fit(blank)
    assert LedgerReader(tmp_path / "B").generation == 0
    lda = private(documents_per_snapshot=1400, ledger=str(tmp_path / "L")).fit(X)
    releases = LedgerReader(tmp_path / "L").report()["snapshots"]
    ends = [each["documents"][0][2] for each in releases]
    assert (len(ends), ends[-1], lda.documents_seen_) == (8, 2800, 1400)
    kept = [model.privacy["cohort"] for model in lda.snapshots_]
    assert kept == [{"first": 0, "last": 1399}, {"first": 1400, "last": 2799}]
    np.testing.assert_array_equal(lda.snapshots_[-1].components, lda.components_)
    with pytest.raises(InsufficientDataError, match="nothing was spent"):
        private(documents_per_snapshot=5000, ledger=str(tmp_path / "M")).fit(X)
    assert not (tmp_path / "M").exists()
    # The last stage is more than half full.
    assert private(documents_per_snapshot=3100).fit(X).documents_seen_ == 3000
    lda = private(documents_per_snapshot=1000, mode="prefix", snapshots=1).partial_fit(X[:1000])
    with pytest.raises(InvalidSettingError, match=r"after the last snapshot.*snapshots=1"):
        lda.partial_fit(X[1000:1001])


def test_partial_fit_refuses_changed_parameters(X):
    lda = private(documents_per_snapshot=1000).partial_fit(X[:300])
    with pytest.raises(InvalidSettingError, match="parameters were changed"):
        lda.set_params(delta=1e-5).partial_fit(X[300:])
    lda.set_params(delta=BUDGET["delta"])
    with pytest.raises(InvalidSettingError, match=r"parameters were changed.*epsilon=None"):
        lda.set_params(epsilon=None, delta=None, documents_per_snapshot=None).partial_fit(X[300:])
    with pytest.raises(InvalidSettingError, match=r"parameters were changed.*epsilon=10\.0"):
        lda.fit(X).set_params(**BUDGET).partial_fit(X)
    assert lda.privacy_["statement"] == "not private"
    assert lda.fit(X).privacy_["statement"] == "private"
    # A fit of all rows keeps no sums, and has ended.
    assert lda._learner is None
    with pytest.raises(InvalidSettingError, match="has ended"):
        lda.set_params(documents_per_snapshot=500).partial_fit(X)


def test_rows_that_cannot_be_documents_are_blank_whatever_they_hold(X, seeded):
    """Neither an error nor a topic shows that one row is not as it should be."""
    blank = X[:1000].toarray()
    blank[5] = 0
    wanted = private().fit(blank)
    for wrong in (math.nan, 0.5, -1.0, math.inf, 2.0**31):
        rows = blank.copy()
        rows[5, :2] = wrong
        for each in (rows, csr_matrix(rows)):
            np.testing.assert_array_equal(private().fit(each).components_, wanted.components_)
    users = [f"u{n}" for n in range(1000)]
    by_user = {"privacy_unit": "user", "documents_per_user": 1}
    one, other = (
        private(**by_user).fit(X[:1000], users=[nobody, *users[1:]]) for nobody in (None, math.nan)
    )
    np.testing.assert_array_equal(one.components_, other.components_)


def test_topics_without_use_are_warned_of():
    """Each of 1,100 words is as likely in all rows."""
    rows = np.random.default_rng(1).multinomial(30, np.full(1100, 1 / 1100), 3000)
    useless = pytest.warns(UserWarning, match="no better than their word frequencies")
    with pytest.warns(UserWarning, match="of 3 topics stand above the noise"), useless:
        lda = StreamLDA(3, epsilon=4.0, delta=1e-6, random_state=0).fit(rows)
    assert lda.diagnostics_["perplexity_over_frequencies"]["expected"] >= 1
