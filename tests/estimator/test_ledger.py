"""Ledgers of a private estimator: rows that were paid for are known, whatever they are called."""

import math
import warnings

import numpy as np
import pytest
from scipy.sparse import vstack
from sklearn.model_selection import GridSearchCV

from streamlda.errors import BudgetExceededError, LedgerError
from streamlda.guarantee.accounting import epsilon_of
from streamlda.privacy.ledger import LedgerReader, budget_table
from streamlda.privacy.statement import check_statement
from tests.estimator.test_private import X, planted, private

__all__ = ["X", "planted"]

pytestmark = pytest.mark.usefixtures("same_noise")


def test_a_ledger_remembers_across_fits(X, tmp_path):
    path = tmp_path / "ledger"
    lda = private(ledger=path, stream="one").fit(X[:1000])
    reader = LedgerReader(path)
    assert reader.generation == 4
    assert lda.privacy_["ledger"] == reader.ledger_id
    # Free again, and it refuses the same rows under the same name before it reads them.
    with pytest.raises(LedgerError, match="in two releases"):
        private(ledger=str(path), stream="one").fit(X[:1000])
    with pytest.raises(LedgerError, match=r"stream='one' released=1000 .*another name \(stream="):
        private(ledger=str(path), stream="one").fit(X[2000:])
    again = private(ledger=path, stream="one", documents_per_snapshot=1000)
    with pytest.raises(LedgerError, match="in two releases"):
        again.partial_fit(X[:5])
    assert LedgerReader(path).generation == 4
    other = private(ledger=path, stream="two", documents_per_snapshot=1000)
    other.partial_fit(X[1000:1500])
    private(ledger=path, stream="three").fit(X[2000:])
    other.partial_fit(X[1500:2000])
    assert LedgerReader(path).generation == 12
    # Rows of a stage are charged that came in calls before the one that released it.
    assert LedgerReader(path).report()["documents"]["records"] == 3000
    assert other.privacy_["cohort"] == {"first": 0, "last": 999}
    with pytest.raises(LedgerError, match="made with other terms"):
        private(ledger=path, stream="four", epsilon=2.0).fit(X[:1000])
    users = [f"u{i}" for i in range(1500)]
    user = {"privacy_unit": "user", "documents_per_user": 1, "ledger": tmp_path / "users"}
    private(stream="one", **user).fit(X[:1500], users=users)
    late = private(stream="two", documents_per_snapshot=1500, snapshots=1, **user)
    with pytest.raises(BudgetExceededError, match="more than the privacy budget"):
        late.partial_fit(X[1500:], users=users)
    late.set_params(ledger=tmp_path / "new").partial_fit(X[1500:], users=users)


ROWS_AGAIN = {
    "the same": lambda X: X,
    "another order": lambda X: X[::-1],
    "a part": lambda X: X[300:],
    "the first": lambda X: X[:700],
    "among others": lambda X: vstack([X[1::2], X[::2][:200]]),
    "dense": lambda X: X.toarray(),
}


@pytest.mark.parametrize("how", ROWS_AGAIN)
def test_rows_are_known_whatever_their_stream_is_called(X, tmp_path, how):
    given = {"ledger": str(tmp_path / "L"), "documents_per_snapshot": 600}
    private(**given, stream="one").fit(X[:1000])
    with pytest.raises(LedgerError, match="in two releases"):
        private(**given, stream="two").fit(ROWS_AGAIN[how](X[:1000]))
    assert LedgerReader(tmp_path / "L").generation == 4


@pytest.mark.parametrize("rows", [600, 300], ids=["in three windows", "in halves of windows"])
def test_epochs_over_rows_that_are_often_alike_are_warned_of_and_charged(tmp_path, rows):
    topics, rng = np.kron(np.eye(2), np.full(6, 1 / 6)), np.random.default_rng(1)
    X, path = rng.multinomial(4, topics[np.arange(rows) % 2]).astype(float), str(tmp_path / "L")
    lda = private(n_components=2, ledger=path, documents_per_snapshot=600)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(1800 // rows):
            lda.partial_fit(X)
    assert any("charged for each: repeated=" in str(each.message) for each in warned)
    report = LedgerReader(path).report()
    three = epsilon_of(math.sqrt(3 * report["spent"]["mu_squared"]), 1e-6)
    assert report["spent"]["epsilon"] <= 10.0 < three <= report["documents"]["spent"]["epsilon"]
    assert "if equal texts are one document" in "\n".join(budget_table(report))


@pytest.mark.filterwarnings("ignore:documents are in a release again")
def test_documents_of_overlapping_fits_are_charged_exactly(X, tmp_path):
    path, rng = str(tmp_path / "L"), np.random.default_rng(1)
    for fit in range(5):
        rows = vstack([X[:120], X[120 + 480 * fit :][:480]]).tocsr()
        private(ledger=path, stream=f"s{fit}").fit(rows[rng.permutation(600)])
    report = LedgerReader(path).report()
    five = epsilon_of(math.sqrt(5 * report["spent"]["mu_squared"]), 1e-6)
    found = report["documents"]
    assert (found["records"], found["repeated"], found["most"]) == (3000, 600, 5)
    assert found["spent"]["epsilon"] == pytest.approx(five, rel=1e-4)


@pytest.mark.filterwarnings("ignore:documents are in a release again")
@pytest.mark.parametrize("there", [True, False])
def test_no_snapshot_hangs_on_whether_a_document_was_in_a_release(X, tmp_path, there):
    """Rows of an author's own and a target, in the first stage of a later fit."""
    path, target = str(tmp_path / "L"), X[2000:2001]
    private(ledger=path, stream="january").fit(vstack([target if there else X[500:501], X[:499]]))
    later = vstack([X[100:107], target, X[600:1092]])
    assert private(ledger=path, stream="february").fit(later).privacy_["statement"] == "private"
    assert LedgerReader(path).generation == 8


def test_fits_of_the_same_rows_without_a_ledger_add_up_in_the_process(X):
    """As those of a search over parameters do; fits of other rows do not."""
    first = private().fit(X[:1000])
    assert private().fit(X[1000:2000]).privacy_["epsilon"] == first.privacy_["epsilon"] == 10.0
    search = GridSearchCV(private(), {"n_components": [2, 3]}, cv=2)
    with pytest.warns(UserWarning, match=r"earlier private fits of this process.*epsilon=10;"):
        search.fit(X[:1000])
    # Each row is in the first fit, in a half for each value, and in the last fit.
    mu = math.sqrt(4 * first.privacy_["stages"][0]["noise_multiplier"] ** -2)
    found = search.best_estimator_.privacy_
    assert found["epsilon"] == pytest.approx(epsilon_of(mu, 1e-6), rel=1e-4)
    assert found["ledger"] == "in memory"
    check_statement(found)


def test_rows_of_later_calls_are_in_the_account_of_the_process_too(X):
    private(documents_per_snapshot=1000).partial_fit(X[:500]).partial_fit(X[500:1000])
    with pytest.warns(UserWarning, match="earlier private fits of this process"):
        private().fit(X[500:1000])
