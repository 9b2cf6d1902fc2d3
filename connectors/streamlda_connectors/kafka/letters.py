"""Content of a dead letter: the record it is about."""

from __future__ import annotations

import hashlib

from streamlda_connectors.kafka.client import Record
from streamlda_connectors.records import Rejected

#: Names of headers: Kafka Connect's, and those that it has no name for.
TOPIC, PARTITION, OFFSET, REASON = (
    f"__connect.errors.{name}" for name in ("topic", "partition", "offset", "exception.message")
)
TIMESTAMP, SHA256, TEXT = (f"streamlda.{name}" for name in ("timestamp", "sha256", "text"))


def original_of(letter: Record) -> Record:
    """Return the record that a letter is about, as it was where it was rejected first.

    Of letters of `DeadLetters` without its key and headers, which these do not keep; a letter of
    Kafka Connect has all of it. Raises `Rejected` for what is no letter, and for one without the
    contents of its record. Time O(bytes).
    """
    headers = dict(letter.headers)
    try:
        topic = (headers[TOPIC] or b"").decode()
        partition, offset = (int(headers[name] or b"") for name in (PARTITION, OFFSET))
        time = int(headers.get(TIMESTAMP) or letter.timestamp_ms)
    except (KeyError, ValueError) as error:
        raise Rejected("not-a-letter") from error
    digest = headers.get(SHA256)
    if digest is None:
        own = tuple(each for each in letter.headers if not each[0].startswith("__connect."))
        return Record(topic, partition, offset, time, letter.key, letter.value, own)
    # A reference has another value than the record, and so has a letter that is damaged.
    if hashlib.sha256(letter.value or b"").hexdigest().encode() != digest:
        raise Rejected("letter-without-record")
    return Record(topic, partition, offset, time, None, letter.value, ())
