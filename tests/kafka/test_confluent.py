"""What the package's statistics say of fetches; all else is tested with both packages at once."""

import pytest

from streamlda_connectors.kafka.fetches import Fetches


def said(sent, connects=1, disconnects=0, timeouts=0):
    troubles = {"connects": connects, "disconnects": disconnects, "req_timeouts": timeouts}
    return {"req": {"Fetch": sent, "Metadata": 9}, **troubles}


@pytest.mark.parametrize(
    ("seen", "answered_at"),
    [
        ([said(0)], None),
        ([said(1), said(1), said(1)], None),
        # The second is sent when the first was answered.
        ([said(1), said(2)], None),
        ([said(1), said(3)], 1),
        ([said(1), said(2), said(3), said(3), said(4)], 4),
        ([said(1), said(9), said(9), said(9)], 1),
        # Sent again, after a connection that was lost, or a time without an answer.
        ([said(5), said(6, timeouts=1), said(7, timeouts=2)], None),
        ([said(5), said(5, disconnects=1), said(6, 2, 1), said(6, 2, 1)], None),
        ([said(5), said(6, 2, 1), said(7, 2, 1), said(8, 2, 1)], 3),
        ([{**said(0), "req": {}}, said(1), said(2)], 2),
    ],
)
def test_a_fetch_is_answered_when_one_more_is_sent_on_the_same_connection(seen, answered_at):
    fetches = Fetches()
    for at, each in enumerate(seen):
        fetches.note(each, at)
    assert fetches.answered_at == answered_at
