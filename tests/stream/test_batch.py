"""A batch has a row for every record, and names its user."""

from hypothesis import given
from hypothesis import strategies as st

from streamlda.stream.batch import batch_of
from streamlda.stream.source import Poll, Reject


@given(rows=st.lists(st.none() | st.sampled_from(["a", "b b", "ü"])), with_users=st.booleans())
def test_rows_stand_where_their_records_did(rows: list[str | None], with_users: bool) -> None:
    texts = [row for row in rows if row is not None]
    gaps, n_texts = [], 0
    for row in rows:
        if row is None:
            gaps.append(n_texts)
        n_texts += row is not None
    users: list[str | None] = [f"user of {text}" for text in texts] if with_users else []
    rejects = [Reject("file", 1, "not-utf8")] * (len(gaps) // 2)
    poll = Poll(texts, rejects, users=users, gaps=gaps)
    poll.check(len(rows))
    batch = batch_of(poll, {"at": len(rows)})
    assert batch.rows == [row or "" for row in rows]
    assert batch.records == len(rows)
    assert (batch.blanks, batch.rejects) == (len(gaps), len(rejects))
    assert batch.position == {"at": len(rows)}
    if with_users and texts:
        assert batch.users == [None if row is None else f"user of {row}" for row in rows]
    elif not with_users:
        assert batch.users is None


def test_the_size_counts_texts_and_blanks() -> None:
    short, long = (batch_of(Poll(["x" * n]), {}).size_bytes for n in (10, 10_010))
    assert long - short == 10_000
    empty = batch_of(Poll(gaps=[0] * 50), {}).size_bytes
    # Even records that brought nothing take memory: a stream of them must fill the queue.
    assert empty >= 50 * 64
