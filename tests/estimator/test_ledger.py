"""Ledgers of a private estimator: rows that were paid for are known, whatever they are called."""

import pytest
from scipy.sparse import vstack

from streamlda.errors import BudgetExceededError, LedgerError
from streamlda.privacy.ledger import LedgerReader
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
    with pytest.raises(LedgerError, match="must not be in two releases"):
        private(ledger=str(path), stream="one").fit(X[:1000])
    # Other rows are told to take another name.
    with pytest.raises(LedgerError, match=r"stream='one' released=1000 .*another name \(stream="):
        private(ledger=str(path), stream="one").fit(X[2000:])
    again = private(ledger=path, stream="one", documents_per_snapshot=1000)
    with pytest.raises(LedgerError, match="must not be in two releases"):
        again.partial_fit(X[:5])
    assert LedgerReader(path).generation == 4
    other = private(ledger=path, stream="two", documents_per_snapshot=1000)
    other.partial_fit(X[1000:1500])
    private(ledger=path, stream="three").fit(X[2000:])
    other.partial_fit(X[1500:2000])
    assert LedgerReader(path).generation == 12
    assert other.privacy_["cohort"] == {"first": 0, "last": 999}
    with pytest.raises(LedgerError, match="keeps the terms"):
        private(ledger=path, stream="four", epsilon=2.0).fit(X[:1000])
    users = [f"u{i}" for i in range(1500)]
    user = {"privacy_unit": "user", "documents_per_user": 1, "ledger": tmp_path / "users"}
    private(stream="one", **user).fit(X[:1500], users=users)
    with pytest.raises(BudgetExceededError, match="must fit into the privacy budget"):
        private(stream="two", **user).fit(X[1500:], users=users)


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
    with pytest.raises(LedgerError, match="documents must not be in two releases"):
        private(**given, stream="two").fit(ROWS_AGAIN[how](X[:1000]))
    assert LedgerReader(tmp_path / "L").generation == 4


@pytest.mark.parametrize(("rows", "window"), [(700, 600), (200, 200_000)])
def test_a_second_epoch_is_refused(X, tmp_path, rows, window):
    lda = private(ledger=str(tmp_path / "L"), documents_per_snapshot=window)
    lda.partial_fit(X[:rows])
    assert (LedgerReader(tmp_path / "L").generation > 0) == (window == 600)
    with pytest.raises(LedgerError, match="documents must not be in two releases"):
        lda.partial_fit(X[:rows])
    # It was refused before a row was read: other rows can still come.
    lda.partial_fit(X[rows:])
