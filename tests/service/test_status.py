"""The daemon's figures: what the loop wrote is what the page and Prometheus are told."""

import json
import time
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamlda.service import messages as m
from streamlda.service.daemon import Daemon
from streamlda.service.machine import Machine
from streamlda.service.metrics import Metrics
from streamlda.service.rules import Rules
from streamlda.service.status import FAILURES, STALLABLE, Status
from streamlda.storage.snapshots import Summary, Topic
from tests.service.planted import budget, outcomes

CREATED = "2026-11-22T12:00:00+00:00"
#: Lag of which nothing is known.
NO_LAG = {"records": None, "bytes": None, "partitions": {}, "waits_for": None}
NO_LAG |= {"seconds": None, "newest": {}}


@pytest.fixture
def clock():
    return SimpleNamespace(now=1000.0)


@pytest.fixture
def status(clock):
    memory = {"memory_limit_bytes": 2**30}
    return Status(private=True, stream="a topic", clock=lambda: clock.now, **memory)


def samples(status):
    return {
        (sample.name.removeprefix("streamlda_"), *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(Metrics(status).text().decode())
        for sample in family.samples
    }


def values_of(status, name):
    found = samples(status).items()
    return {labels[0][1]: value for (each, *labels), value in found if each == name}


def test_what_is_stalled_makes_it_not_ready_since_when_and_why(status, monkeypatch):
    said = []
    monkeypatch.setattr(
        "streamlda.service.status.log",
        lambda _, event, **values: said.append((event, status.ready()[0])),
    )
    status.note(not_ready="", lag={0: 5, 1: 7})
    for _ in range(3):
        status.count_failure("source", "KafkaTimeoutError")
    # The cause is named first, whichever is seen first.
    status.show([m.ShowStall("output", "ENOSPC", 0.0)])
    status.show([m.ShowStall("source", "KafkaTimeoutError", 12.0)])
    told = status.status()
    since = told["stalled"]["source"]["since"]
    assert datetime.fromisoformat(since).timestamp() == pytest.approx(time.time() - 12.0, abs=5.0)
    # What waits is not known then, rather than nothing.
    assert told["lag"]["partitions"] == {"0": None, "1": None}
    assert told["lag"]["records"] is None
    found = samples(status)
    assert not any(name == "kafka_lag_records" for name, *_ in found)
    assert values_of(status, "stalled") == dict.fromkeys(STALLABLE, 0) | {"source": 1, "output": 1}
    labels = ("reason", "KafkaTimeoutError"), ("what", "source")
    assert found["failure_reasons_total", *labels] == 3
    assert found["failures_total", ("what", "source")] == 3
    ready, reason = status.ready()
    assert (ready, found["ready",]) == (False, 0)
    assert reason.split("; ")[0] == f"source stalled since {since}: KafkaTimeoutError"
    status.show([m.ShowRecovery(what, 1.0) for what in ("source", "output")])
    assert status.ready() == (True, "")
    # Who reads it in the log finds it here.
    assert said == [*[("stalled", False)] * 2, ("recovered", False), ("recovered", True)]


def test_what_waits_is_not_known_while_no_source_is_open(status):
    daemon = Daemon(Rules(), None, status, flush=None)
    daemon._machine = Machine(Rules())
    status.note(lag={0: 5, 1: 7}, waits_for=1)
    daemon._look(0.0)
    lag = status.status()["lag"]
    assert (lag["records"], lag["waits_for"]) == (None, None)


def test_what_is_shared_with_other_daemons_is_said(status):
    assert not any(name in ("partition", "lease") for name, *_ in samples(status))
    status.note_group(lease=True)
    none = {"partitions": [], "waiting": [], "elsewhere": [], "generation": None, "lease": True}
    assert status.status()["group"] == none | {"places": None}
    status.note_group(partitions=[0, 3], waiting=[5], elsewhere=[1, 2], generation=7, places=90)
    assert values_of(status, "partition") == {"0": 1, "3": 1, "5": 0, "1": 0, "2": 0}
    found = samples(status)
    shown = [found[name,] for name in ("group_generation", "lease", "group_places")]
    assert shown == [7, 1, 90]


def test_what_is_not_known_yet_is_none_and_has_no_metric(status):
    told = status.status()
    unknown = {name for name, value in told.items() if value is None}
    names = "places places_left account checkpoint budget last_answer lost warmup undated ahead "
    assert unknown == {*(names + "late last_snapshot group").split()}
    assert told["lag"] == NO_LAG
    names = {key[0] for key in samples(status)}
    assert not names & {"checkpoint_age_seconds", "privacy_epsilon_spent", "places", "lost_total"}
    assert "topic_prevalence" not in names


def test_the_page_and_prometheus_are_told_the_same(status, clock):
    status.note(documents=outcomes(), rejects={}, releases=0, rounds=0)
    figures = {
        "phase": "learning",
        "documents": outcomes(learned=70, short=5, rejected=3, blank=2),
        "rejects": {"not JSON": 2, "too long": 1},
        "rounds": 3,
        "places": 80,
        "places_left": 920,
        "lost": {"records": 4},
        "queue_bytes": 4096,
        "budget": budget(0.5, 1.25, 2.0, 1e-9),
    }
    more = {"lag": {2: None, 0: 7, 1: 5}, "in_no_bin": (17, 5, 3), "resident_bytes": 2**28}
    status.note(not_ready="", warmup=(9_000, 20_000), last_answer=time.time(), **figures, **more)
    status.count("dead_letters", "not JSON")
    status.count_failure("checkpoint", "ENOSPC")
    status.count("bytes", "", 12345)
    status.note_checkpoint(0.2, 1000)
    clock.now += 4
    status.note_checkpoint(2.0, 2000)
    clock.now += 6
    status.note_snapshot(Summary(1, CREATED, 9, True, []))
    told = status.status()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    expected = figures | {
        "lag": NO_LAG | {"records": 12, "partitions": {"0": 7, "1": 5, "2": None}},
        **{"undated": 17, "ahead": 5, "late": 3, "uptime_seconds": 10, "last_snapshot": CREATED},
        "warmup": {"documents": 9_000, "of": 20_000},
        "checkpoint": {"age_seconds": 6, "seconds": 2.0, "size_bytes": 2000},
        "failures": dict.fromkeys(FAILURES, 0) | {"checkpoint": 1},
        "memory": {"resident_bytes": 2**28, "limit_bytes": 2**30},
    }
    assert told | expected == told
    found = samples(status)
    for key, value in {
        ("documents_total", ("outcome", "learned")): 70,
        ("dead_letters_total", ("reason", "not JSON")): 1,
        ("kafka_lag_records", ("partition", "0")): 7,
        ("failures_total", ("what", "output")): 0,
        ("last_snapshot_timestamp_seconds",): 1795348800,
        ("privacy_delta",): 1e-9,
        ("phase", ("phase", "learning")): 1,
    }.items():
        assert found[key] == pytest.approx(value), key
    assert ("kafka_lag_records", ("partition", "2")) not in found
    assert not [key for key in found if key[0].endswith("_created")]
    # Bytes that wait are no records.
    status.note(lag={0: 100}, lag_unit="bytes")
    assert status.status()["lag"] == NO_LAG | {"bytes": 100, "partitions": {"0": 100}}
    assert values_of(status, "kafka_lag_records") == {}


def test_lag_in_seconds_is_the_largest_age_where_records_wait_and_none_if_one_is_unknown(status):
    now = time.time()
    ages = {0: now - 60, 1: now - 900}
    for lag, newest, seconds in (
        ({0: 0, 1: 0}, {}, 0),
        ({0: 5, 1: 0}, {}, None),
        ({0: 5}, {0: now + 3600}, 0),  # A clock that is ahead.
        ({0: 5, 1: 0}, ages, 60),
        ({0: 5, 1: None}, ages, None),
        ({0: 5, 1: 1}, ages, 900),
    ):
        status.note(lag=lag, newest=newest)
        found = status.status()["lag"]["seconds"]
        assert found is seconds is None or found == pytest.approx(seconds, abs=5)
    found = samples(status)["source_record_timestamp_seconds", ("partition", "1")]
    assert found == pytest.approx(now - 900, abs=5)
    status.note_group(partitions=[0])
    assert list(status.status()["lag"]["newest"]) == ["0"], "the other has moved away"


def shares(status):
    found = [(key, value) for key, value in samples(status).items() if key[0] == "topic_prevalence"]
    return {tuple(label for _, label in key[1:]): value for key, value in found}


@pytest.mark.parametrize("private", [False, True])
def test_prevalence_is_that_of_the_newest_snapshot_that_may_be_shown(private):
    status = Status(private=private, stream="a topic")
    status.note_snapshot(None)
    topics = [Topic(3, 0.25, None), Topic(7, None, 0.1)]
    newest = Summary(1, CREATED, 9, private, topics, {"prevalence": [0.5, 0.25]})
    status.note_snapshot(newest)
    wanted = {("all", "3"): 0.25, ("interval", "3"): 0.5, ("interval", "7"): 0.25}
    assert shares(status) == wanted
    # Unknown shares have no sample.
    status.note_snapshot(replace(newest, private=False, topics=topics[:1], interval=None))
    assert shares(status) == (wanted if private else {("all", "3"): 0.25})
