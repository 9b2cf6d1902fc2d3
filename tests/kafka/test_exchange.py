"""Documents in and answers out in one transaction: what a reader sees, whatever a member does."""

import pytest
from kafka.errors import KafkaTimeoutError

from streamlda.errors import SourceError, SourceRefusedError
from streamlda.stream.source import Answer
from streamlda_connectors.kafka import KafkaExchange
from tests.kafka.topics import wait_until

pytestmark = pytest.mark.long


@pytest.fixture
def output(topic):
    return f"{topic}-out"


@pytest.fixture
def exchange_of(opened, topics, topic, output):
    def make(**options):
        options = {"output_topic": output, "group": topic, "format": "text", **options}
        return opened(KafkaExchange, topics, topic, **options)

    return make


def make_answers(received):
    batch, keys = received
    rows = zip(batch.texts, batch.locations, keys, strict=True)
    return [
        Answer(int(at.location[-1]), key, f"{at.location} {at.record - 1} {text}".encode())
        for text, at, key in rows
        if text is not None
    ]


def n_used(batch):
    """Return how many records are in a batch, but for marks of transactions and tombstones."""
    return batch.n_documents + len(batch.rejects)


def poll(exchange, n_records):
    found = []

    def came():
        received = exchange.poll(100, 0.2)
        found.append(received)
        return sum(n_used(each.batch) for each in found) >= n_records

    wait_until(came)
    return [each for each in found if each.batch.n_records]


def answer_records(exchange, n_records):
    n = 0
    while n < n_records:
        (received,) = poll(exchange, 1)
        assert exchange.commit(make_answers(received))
        n += n_used(received.batch)
    assert n == n_records


def read_committed(topics, output, n_partitions=1):
    return topics.read(output, n_partitions, isolation_level="read_committed")


def answers_are(topics, output, *texts):
    """Wait for the answers that are committed: marks of transactions come a moment later."""

    def found():
        return [row.value.split()[-1] for row in read_committed(topics, output)]

    wait_until(lambda: len(found()) >= len(texts))
    assert found() == [*texts]


def test_each_document_has_one_answer_under_its_key_in_its_partition(
    topics, topic, output, exchange_of
):
    topics.make(topic, 3)
    with pytest.raises(SourceError, match=f"topic does not exist.*{output}"):
        exchange_of()
    topics.make(output, 2)
    for number in range(3):
        topics.send(topic, [b"one", None, b"\xff", b"two"], number, key=b"key %d" % number)
    rejected = []
    first = exchange_of(on_reject=lambda record, reason: rejected.append((record.offset, reason)))
    answer_records(first, 9)
    assert rejected == [(2, "not-utf8")] * 3
    assert set(first.source.lag().values()) == {0}
    first.close()
    topics.send(topic, [b"three"], 2, key=None)
    answer_records(exchange_of(), 1)
    wait_until(lambda: len(read_committed(topics, output, 2)) == 7)
    rows = read_committed(topics, output, 2)
    # Partition 2 of the topic goes to partition 0 of the output.
    wanted = [
        (n % 2, b"key %d" % n, f"{topic}/{n} {at} {text}".encode())
        for n in range(3)
        for at, text in ((0, "one"), (3, "two"))
    ]
    wanted.append((0, None, f"{topic}/2 4 three".encode()))
    found = [(row.partition, row.key, row.value) for row in rows]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    by_partition = [row.value for row in rows if row.key == b"key 1"]
    assert by_partition == sorted(by_partition)


@pytest.mark.parametrize("written", [False, True])
def test_cut_off_at_a_commit_answers_and_offsets_are_both_there_or_neither(
    topics, topic, output, exchange_of, written
):
    topics.fill(topic, [b"one", b"two"])
    topics.make(output)
    first = exchange_of()
    (received,) = poll(first, 2)
    manager, sender = first._producer._transaction_manager, first._producer._sender
    begin = manager.begin_commit

    def cut_off():
        if written:
            result = begin()
            sender.wakeup()
            assert result.wait(60_000)
        raise KafkaTimeoutError("the answer is lost")

    manager.begin_commit = cut_off
    with pytest.raises(SourceError, match="KafkaTimeoutError"):
        first.commit(make_answers(received))
    second = exchange_of()
    if written:
        topics.send(topic, [b"three"])
        answer_records(second, 1)
        answers_are(topics, output, b"one", b"two", b"three")
    else:
        answer_records(second, 2)
        answers_are(topics, output, b"one", b"two")


def test_one_that_left_the_group_writes_nothing(topics, topic, output, exchange_of):
    topics.fill(topic, [b"one"])
    topics.make(output)
    stale = exchange_of()
    (received,) = poll(stale, 1)
    # As the brokers do with a member that does not answer.
    stale._member.consumer._coordinator.maybe_leave_group()
    assert not stale.commit(make_answers(received))
    answer_records(exchange_of(), 1)
    answers_are(topics, output, b"one")


def test_a_partition_moves_once_what_was_read_of_it_is_answered(topics, topic, output, exchange_of):
    topics.fill(topic, [b"one"], [b"two"])
    topics.make(output)
    first = exchange_of()
    answers = [each for received in poll(first, 2) for each in make_answers(received)]
    second, asked = exchange_of(), first._member._handovers
    wait_until(lambda: not second.poll(9, 0.1).batch.n_records and not asked.empty())
    assert first.commit(answers)

    def is_shared():
        for each in (first, second):
            assert not each.poll(9, 0.1).batch.texts
        return (len(first.source.lag()), len(second.source.lag())) == (1, 1)

    wait_until(is_shared)
    for number, text in enumerate((b"three", b"four")):
        topics.send(topic, [text], number)
    answer_records(first, 1)
    answer_records(second, 1)
    wait_until(lambda: len(read_committed(topics, output)) >= 4)
    texts = [row.value.split()[-1] for row in read_committed(topics, output)]
    assert sorted(texts) == sorted([b"one", b"two", b"three", b"four"])


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_records_that_were_removed_are_refused_or_counted(
    start, topics, topic, output, exchange_of
):
    topics.fill(topic, [b"%d" % n for n in range(9)])
    topics.make(output)
    first = exchange_of()
    received = first.poll(4, 60)
    assert first.commit(make_answers(received))
    first.close()
    topics.remove_before(topic, 7)
    refused = exchange_of(start=start)
    with pytest.raises(SourceRefusedError, match="allow_gaps"):
        poll(refused, 1)
    refused.close()
    last = exchange_of(allow_gaps=True, start=start)
    answer_records(last, 2)
    assert last.source.lost()["records"] == 7 - received.batch.n_records


def test_latest_begins_at_the_end_where_the_group_has_no_offset(topics, topic, output, exchange_of):
    topics.fill(topic, [b"old"])
    topics.make(output)
    exchange = exchange_of(start="latest")
    source = exchange.source
    wait_until(lambda: not exchange.poll(9, 0.2).batch.texts and source.lag() == {0: 0})
    topics.send(topic, [b"new"])
    answer_records(exchange, 1)
    answers_are(topics, output, b"new")
