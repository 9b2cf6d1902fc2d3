"""A topic of dead letters is read as the records that its letters are about."""

import pytest

from streamlda.stream.source import Reject
from streamlda_connectors.kafka import KafkaSource, Record
from streamlda_connectors.kafka.letters import original_of
from streamlda_connectors.records import Rejected
from tests.connectors.checks import SOURCE_CHECKS, Case, check_poll_checks_its_arguments
from tests.kafka.topics import wait_until

pytestmark = pytest.mark.long

#: Bodies that are no JSON Lines, but text; and what is neither.
VALUES = [b"one words", b'{"text": "two"}', b"three", b"\xff", b"five"]


def read(source, n_records):
    texts, rejects = [], []
    while len(texts) < n_records:
        batch = source.poll(10, 0.2)
        texts += batch.texts
        rejects += batch.rejects
    return texts, rejects


@pytest.fixture
def rejected(topics, topic, source_of, letters_to):
    """Return the topic of the letters that a source of JSON Lines wrote, with their text or not."""

    def make(values, name="letters", **options):
        where = f"{topic}-{name}"
        letters = letters_to(topics, where, **options)
        source = source_of(topics, topic, format="jsonl", on_reject=letters.put)
        read(source, len(values))
        letters.flush(10)
        return where

    topics.fill(topic, VALUES)
    return make


def test_a_replay_reads_what_the_first_run_could_not_and_each_letter_once(
    rejected, topics, topic, source_of, letters_to
):
    where = rejected(VALUES, with_text=True)
    written = topics.read(where)
    assert [row.key for row in written] == [f"{topic}/0/{at}".encode() for at in (0, 2, 3, 4)]
    skipped = []
    source = source_of(
        topics,
        where,
        dead_letters=True,
        time_field=None,
        on_reject=lambda record, reason: skipped.append((record, reason)),
    )
    assert source.poll(0).n_records == 0
    texts, rejects = read(source, 4)
    assert texts == ["one words", "three", None, "five"]
    assert rejects == [Reject(f"{where}/0", 3, "not-utf8")]
    # What is rejected again is the record of the first topic, not its letter.
    ((record, reason),) = skipped
    assert record[:3] == (topic, 0, 3)
    assert (record.value, reason) == (b"\xff", "not-utf8")
    assert record.timestamp_ms == int(dict(written[2].headers)["streamlda.timestamp"])
    again = letters_to(topics, f"{topic}-again", with_text=True)
    again.put(*skipped[0])
    again.flush(10)
    (row,) = topics.read(f"{topic}-again")
    assert (row.key, row.value) == (f"{topic}/0/3".encode(), b"\xff")
    # A replay that was cut short goes on behind what it read.
    other = source_of(topics, where, dead_letters=True)
    first = other.poll(2, 5)
    assert first.texts == ["one words", "three"]
    resumed = source_of(topics, where, dead_letters=True)
    resumed.seek(dict(other.position()))
    assert read(resumed, 2)[0] == [None, "five"]


def test_a_letter_without_its_record_is_a_reject(rejected, topics, source_of):
    reference = rejected(VALUES, "references")
    small = rejected(VALUES, "small", with_text=True, max_pending_bytes=8)
    topics.send(small, [b"no letter", None])
    letters = []
    source = source_of(topics, reference, dead_letters=True, on_reject=lambda *e: letters.append(e))
    texts, rejects = read(source, 4)
    assert texts == [None] * 4
    assert {reject.reason for reject in rejects} == {"letter-without-record"}
    # There is nothing else to tell of than the letter.
    assert {record.topic for record, _ in letters} == {reference}
    texts, rejects = read(source_of(topics, small, dead_letters=True), 6)
    # "one words" is longer than 8 bytes; the tombstone is blank.
    assert texts == [None, "three", None, "five", None, None]
    reasons = [(reject.record, reject.reason) for reject in rejects]
    assert reasons == [(1, "letter-without-record"), (3, "not-utf8"), (5, "not-a-letter")]


def test_the_time_of_a_letters_record_is_that_of_the_record(rejected, topics, topic, source_of):
    where = rejected(VALUES, with_text=True)
    times = [row.timestamp for row in topics.read(topic)]
    source = source_of(topics, where, dead_letters=True, time_field="@record")
    batch = source.poll(10, 5)
    assert batch.times == [times[0] / 1000, times[2] / 1000, None, times[4] / 1000]


HEADERS = (
    ("__connect.errors.topic", b"shop"),
    ("__connect.errors.partition", b"2"),
    ("__connect.errors.offset", b"77"),
)


def letter(value, *headers):
    return Record("letters", 0, 5, 1234, b"key", value, headers)


def test_a_letter_of_kafka_connect_has_the_whole_record():
    more = (("__connect.errors.exception.message", b"x"), ("trace", b"a"), ("trace", None))
    found = original_of(letter(b"value", *HEADERS, *more))
    assert found == Record("shop", 2, 77, 1234, b"key", b"value", more[1:])


@pytest.mark.parametrize(
    "headers",
    [
        (),
        HEADERS[1:],
        (*HEADERS[:2], ("__connect.errors.offset", b"many")),
        (*HEADERS[:2], ("__connect.errors.offset", None)),
        (("__connect.errors.topic", b"\xff"), *HEADERS[1:]),
        (*HEADERS, ("streamlda.timestamp", b"now")),
    ],
)
def test_what_is_no_letter_is_a_reject(headers):
    with pytest.raises(Rejected) as caught:
        original_of(letter(b"value", *headers))
    assert caught.value.reason == "not-a-letter"


def test_a_decoder_gets_the_record_that_a_letter_is_about(rejected, topics, topic, source_of):
    where = rejected(VALUES, with_text=True)
    source = source_of(
        topics, where, dead_letters=True, format=lambda record: (f"{record.offset}", record.topic)
    )
    batch = source.poll(10, 5)
    assert (batch.texts, batch.users) == (["0", "2", "3", "4"], [topic] * 4)


@pytest.fixture
def case(rejected, topics):
    where = rejected(VALUES, with_text=True)
    wait_until(lambda: len(topics.read(where)) == 4)
    return Case(
        lambda: KafkaSource(
            where, bootstrap_servers=topics.bootstrap, format="text", dead_letters=True
        ),
        ["one words", "three", "five"],
        [Reject(f"{where}/0", 3, "not-utf8")],
        ends=False,
    )


CHECKS = [check for check in SOURCE_CHECKS if check is not check_poll_checks_its_arguments]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_letters_pass_the_checks_of_all_sources(case, check):
    check(case)
