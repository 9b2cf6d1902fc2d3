"""Causes of brokers that cannot be reached, by real sockets."""

import socket
from contextlib import closing
from threading import Thread

import pytest

from streamlda.errors import SourceAwayError
from streamlda_connectors.kafka import KafkaSource


def listening(closes):
    """Return a server that never answers, or closes each connection at once."""
    server = socket.create_server(("127.0.0.1", 0))

    def close_all():
        try:
            while True:
                server.accept()[0].close()
        except OSError:
            return

    if closes:
        Thread(target=close_all, daemon=True).start()
    return server


@pytest.mark.parametrize(
    ("closes", "address", "reason"),
    [
        (False, "127.0.0.1:1", "refused:ECONNREFUSED"),
        (False, "no.such.host.invalid:9092", "name-not-found:gaierror"),
        (False, None, "no-answer:"),
        (True, None, "closed:"),
    ],
)
def test_brokers_that_are_away_have_a_reason(closes, address, reason):
    with closing(listening(closes)) as server:
        there = address or f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SourceAwayError) as caught:
            KafkaSource("topic", bootstrap_servers=there, request_timeout_seconds=2.0)
    assert caught.value.reason.startswith(reason)
    assert f"reason='{caught.value.reason}" in str(caught.value)
