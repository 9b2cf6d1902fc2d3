"""A fixed order of partitions, however fetches arrive and whatever records say."""

import json
from collections import deque

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from streamlda.errors import SourceError
from streamlda_connectors.kafka.decoding import RecordOptions
from streamlda_connectors.kafka.partitions import Record, Rounds, Run
from streamlda_connectors.records import BatchBuilder, ReadOptions
from tests.kafka.topics import wait_until

#: A log: the offset that it begins with, and which offsets from there on hold a record.
LOGS = st.lists(
    st.tuples(st.integers(0, 9), st.lists(st.booleans(), max_size=30)), min_size=1, max_size=4
)


def in_turns(begins, ends, block):
    """Return partitions and offsets in order, up to the first that is behind the end of its log."""
    at, found = dict(begins), []
    while True:
        for number in sorted(begins):
            for _ in range(block):
                if at[number] == ends[number]:
                    return found
                found.append((number, at[number]))
                at[number] += 1


class Delivered:
    """Batches of a fixed order, of logs that are fetched in pieces of any size, in any order."""

    def __init__(self, logs, block, draw):
        self.begins = {number: begin for number, (begin, _) in enumerate(logs)}
        self.ends = {n: begin + len(there) for n, (begin, there) in enumerate(logs)}
        self.records = {
            n: [begin + i for i, is_there in enumerate(there) if is_there]
            for n, (begin, there) in enumerate(logs)
        }
        self.next, self.pending, self.draw = dict(self.begins), deque(), draw
        self.rounds = Rounds(self.begins, block)
        self.decoding = RecordOptions("t", "text", ReadOptions("text"), None)
        self.fetched = dict(self.begins)
        self.found = []

    def fetch(self):
        """Fetch some records of a partition that is not held, or learn that none comes."""
        free = sorted(self.begins.keys() - self.rounds.waiting)
        number = self.draw(st.sampled_from(free))
        left = [offset for offset in self.records[number] if offset >= self.fetched[number]]
        size = self.draw(st.integers(1, 12))
        if left:
            rows = ((at, f"{number} {at}".encode()) for at in left[:size])
            records = [Record("t", number, at, -1, None, value) for at, value in rows]
            self.rounds.add(Run(number, records))
            self.fetched[number] = left[:size][-1] + 1
        elif number == self.rounds.turn:
            self.rounds.skip_to(self.ends[number])
        self.pending.extend(self.rounds.in_order())

    def poll(self):
        builder = BatchBuilder(self.draw(st.integers(1, 40)), 1.0)
        assert self.decoding.take(builder, self.pending, self.next)
        batch = builder.build(ReadOptions())
        places = [(int(at.location[2:]), at.record - 1) for at in batch.locations]
        self.found += zip(places, batch.texts, strict=True)

    def begin_again(self):
        """Drop what was fetched, and continue in another process where this one stood."""
        stored = json.loads(json.dumps(self.rounds.to_json()))
        begins = {int(number): begin for number, begin in stored["begins"].items()}
        self.rounds = Rounds(begins, stored["block"], dict(self.next))
        self.fetched = dict(self.next)
        self.pending.clear()


# A stream that stalls takes all of its steps: it is not made smaller.
@settings(max_examples=60, phases=(Phase.generate,))
@given(logs=LOGS, block=st.integers(1, 7), data=st.data())
def test_the_order_does_not_depend_on_how_fetches_arrive(logs, block, data):
    """Offsets without a record are blanks."""
    stream = Delivered(logs, block, data.draw)
    wanted = in_turns(stream.begins, stream.ends, block)
    again = data.draw(st.integers(3, 10))
    for step in range(1000):
        if len(stream.found) == len(wanted):
            break
        stream.fetch()
        stream.poll()
        assert stream.rounds.ahead(stream.begins, len(stream.found)) == stream.next
        if step % again == 0:
            stream.begin_again()
    assert [place for place, _ in stream.found] == wanted
    for (number, offset), text in stream.found:
        there = offset in stream.records[number]
        assert text == (f"{number} {offset}" if there else None)


#: More than some rounds, and not a multiple of a block.
LENGTHS = (200, 137, 300)


def numbered(lengths):
    return [[f"{n} {i}".encode() for i in range(size)] for n, size in enumerate(lengths)]


def places_of(source, n_records, size=1000):
    found, polls = [], 0
    while len(found) < n_records:
        batch = source.poll(min(size, n_records - len(found)), 0.5)
        found += [(int(at.location.rpartition("/")[2]), at.record - 1) for at in batch.locations]
        polls += 1
        assert polls < 1000, found[-1:]
    return found


@pytest.mark.long
def test_partitions_are_read_in_rounds_and_wait_for_each_other(topics, topic, source_of):
    topics.fill(topic, *numbered(LENGTHS))
    wanted = in_turns(dict.fromkeys(range(3), 0), dict(enumerate(LENGTHS)), 64)
    source = source_of(topics, topic, fixed_order=True)
    assert places_of(source, len(wanted), 100) == wanted
    wait_until(lambda: source.poll(100, 0.5) and (source.waits_for(), source.at_end()) == (1, True))
    assert source.silent() == 0
    ahead = {at: log.next for at, log in source.logs(60).items()}
    more = [f"1 {i}".encode() for i in range(137, 210)]
    topics.send(topic, more, 1)
    assert not source.at_end()
    assert places_of(source, 60)[-1][0] == 2
    assert {at: log.next for at, log in source.logs().items()} == ahead
    assert source.waits_for() is None


@pytest.mark.long
def test_a_position_continues_in_the_midst_of_a_block_without_new_partitions(
    topics, topic, source_of
):
    topics.fill(topic, *numbered(LENGTHS[:2]))
    wanted = in_turns({0: 0, 1: 0}, dict(enumerate(LENGTHS)), 64)
    first = source_of(topics, topic, fixed_order=True)
    assert places_of(first, 100) == wanted[:100]
    topics.admin.create_partitions({topic: 3})
    topics.send(topic, [b"new"] * 300, 2)
    second = source_of(topics, topic, fixed_order=True, start="latest")
    second.seek(json.loads(json.dumps(first.position())))
    assert places_of(second, len(wanted) - 100) == wanted[100:]
    assert set(second.position()["offsets"]) == {"0", "1"}
    plain = source_of(topics, topic)
    with pytest.raises(SourceError, match="position"):
        plain.seek(first.position())


@pytest.mark.long
def test_the_end_of_a_transaction_holds_nothing_up(topics, topic, source_of):
    """Its mark is an offset without a record, and none comes behind it."""
    topics.make(topic, 2)
    topics.transact(topic, *[b"a b c"] * 63)
    topics.send(topic, [b"d e f"] * 10, 1)
    source = source_of(topics, topic, fixed_order=True)
    wanted = [(0, i) for i in range(64)] + [(1, i) for i in range(10)]
    assert places_of(source, 74) == wanted
