"""Members of a consumer group: who has which partitions, and what they do before these move."""

import time
from functools import partial
from threading import Event, Thread

import pytest
from kafka import KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.range import RangePartitionAssignor

from streamlda.errors import SourceError
from streamlda_connectors.kafka import consumer
from streamlda_connectors.kafka.security import ClientSettings
from tests.kafka.topics import wait_until


class Member(consumer.GroupMember):
    """A member that takes as long as it may to give partitions up."""

    def __init__(self, settings):
        self.may, self.given_up = Event(), []
        self.may.set()
        super().__init__(settings)
        Thread(target=self.give_up, daemon=True).start()

    def give_up(self):
        while True:
            numbers, done = self._handovers.get()
            self.given_up.append(numbers)
            self.may.wait()
            done.set()

    @property
    def has(self):
        return set(self.get_assignment().partitions)

    @property
    def generation(self):
        return self.get_assignment().generation or 0


@pytest.fixture
def member_of(topics, topic, monkeypatch):
    # However slow the machine is, nobody is taken for dead; what moves is known soon.
    for name in ("SESSION_SECONDS", "REBALANCE_SECONDS"):
        monkeypatch.setattr(consumer, name, 600.0)
    monkeypatch.setattr(consumer, "CLOSE_SECONDS", 60.0)
    for name in ("HEARTBEAT_SECONDS", "REFRESH_SECONDS"):
        monkeypatch.setattr(consumer, name, 0.5)
    made = []

    def make():
        settings = ClientSettings(topics.bootstrap, topic, topic, request_timeout_seconds=60.0)
        made.append(Member(settings))
        return made[-1]

    yield make
    for each in made:
        each.may.set()
        each.close()


@pytest.mark.long
def test_a_partition_moves_once_it_was_given_up_and_never_has_two(topics, topic, member_of):
    topics.make(topic, 4)
    first = member_of()
    wait_until(lambda: first.has == {0, 1, 2, 3})
    before = first.generation
    first.may.clear()
    second = member_of()
    wait_until(lambda: first.given_up and second.generation > before)
    (moved,) = first.given_up
    assert len(moved) == 2
    for _ in range(40):
        assert (first.has, second.has) == ({0, 1, 2, 3} - moved, set())
        time.sleep(0.1)
    first.may.set()
    wait_until(lambda: second.has == moved)
    assert first.has == {0, 1, 2, 3} - moved
    # Joining again, which both do once more, takes a moment.
    wait_until(lambda: first.generation == second.generation)
    wait_until(lambda: all(each.confirm(0) for each in (first, second)))
    # One that leaves gives up what it has, and so does one that is put out.
    second.close()
    second.close()
    wait_until(lambda: second.given_up == [moved])
    wait_until(lambda: first.has == {0, 1, 2, 3})
    name = first.consumer.group_metadata().member_id
    first.may.clear()
    topics.admin.remove_group_members(topic, [MemberToRemove(name)])
    assert not first.confirm(0)
    wait_until(lambda: len(first.given_up) == 2)
    assert first.given_up[-1] == {0, 1, 2, 3}
    # The group does not know it: that is no generation, and none that others could be below.
    assert first.get_assignment() == (frozenset(), None)
    first.may.set()
    wait_until(lambda: first.has == {0, 1, 2, 3})
    wait_until(lambda: first.confirm(0))
    # New partitions are taken up; those that it has stay, and nothing is given up.
    topics.admin.create_partitions({topic: 6})
    wait_until(lambda: first.has == {*range(6)})
    assert len(first.given_up) == 2


def test_new_partitions_are_taken_up_although_polls_end_before_answers(
    topics, topic, member_of, monkeypatch
):
    monkeypatch.setattr(consumer, "POLL_SECONDS", 0.01)
    topics.make(topic)
    member = member_of()
    wait_until(lambda: len(member.has) == 1)
    for n_partitions in range(2, 7):
        topics.admin.create_partitions({topic: n_partitions})
        wait_until(partial(lambda n: len(member.has) == n, n_partitions))


@pytest.mark.long
def test_a_group_of_members_of_another_kind_is_refused(topics, topic, member_of):
    topics.make(topic)
    other = KafkaConsumer(
        bootstrap_servers=topics.bootstrap,
        group_id=topic,
        partition_assignment_strategy=[RangePartitionAssignor],
        # It may join before it hears of the new topic.
        metadata_max_age_ms=1000,
    )
    try:
        other.subscribe([topic])
        wait_until(lambda: other.poll(100) or other.assignment(), 120)
        member = member_of()
        with pytest.raises(SourceError, match="let it join the group"):
            wait_until(lambda: member.has)
    finally:
        other.close()
