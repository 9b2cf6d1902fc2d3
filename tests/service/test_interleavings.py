"""Every order in which messages can come, up to a bound, and random ones beyond: the state that is
saved has each record before its position once. Planted faults of each kind are found."""

import logging
from itertools import count

import pytest

from streamlda.service import daemon as loop
from streamlda.service.daemon import Daemon
from streamlda.service.worker import Worker
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import stand
from tests.service.daemon_process import few_or
from tests.service.stepwise import Bench, explore, walk

#: Moments that are tried, with each way in which they can be reached.
MOMENTS = 300


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_order_of_messages_saves_each_record_once():
    wrong, tried = explore(MOMENTS)
    assert (wrong, tried) == ("", MOMENTS)


def drop_the_answer_of_a_poll_for_none(patch):
    """The loop asked a paused source for one record, which may have been resumed meanwhile."""

    def polled(source, max_records, timeout_seconds):
        if max_records:
            return poll(source, max_records, timeout_seconds)
        source.poll(1, timeout_seconds)
        return poll(source, 0, timeout_seconds)

    poll = loop.poll
    patch.setattr(loop, "poll", polled)


def drop_a_batch(patch):
    add, calls = Pipeline.add, count()

    def dropped(self, batch):
        # Neither the first nor the last of any run: their places would be read again.
        if next(calls) % 5 != 2:
            add(self, batch)

    patch.setattr(Pipeline, "add", dropped)


def learn_twice(patch):
    learn = Worker._learn
    patch.setattr(Worker, "_learn", lambda self, given: learn(self, [given[0], *given]))


def save_the_position_early(patch):
    """The position is that of the source, which is ahead of what was learned."""
    check = Pipeline.check_account

    def early(self):
        source = SOURCES[-1]
        if source is not None:
            self.behind = stand(source)
        check(self)

    def noted(self, found):
        SOURCES.append(found if hasattr(found, "poll") else None)
        take(self, found)

    SOURCES, take = [None], Daemon._take
    patch.setattr(Daemon, "_take", noted)
    patch.setattr(Pipeline, "check_account", early)


def lose_a_resume(patch):
    ask = Daemon._ask
    patch.setattr(Daemon, "_ask", lambda self, name, *of: name != "resume" and ask(self, name, *of))


def save_before_letters(patch):
    patch.setattr(Bench, "flush", lambda self: "")


PLANTED = [
    drop_the_answer_of_a_poll_for_none,
    drop_a_batch,
    learn_twice,
    save_the_position_early,
    lose_a_resume,
    save_before_letters,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant, monkeypatch):
    plant(monkeypatch)
    wrong, _ = explore(MOMENTS)
    assert wrong


@pytest.mark.parametrize("seeds", few_or(200, 50_000))
def test_random_orders_far_beyond_save_each_record_once(seeds):
    for seed in range(seeds):
        assert (seed, walk(seed)) == (seed, "")
