"""The daemon's figures: what the loop wrote is what the page and Prometheus are told."""

import json
import time
from dataclasses import replace
from datetime import datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamlda.service import messages as m
from streamlda.service.daemon import Daemon
from streamlda.service.machine import Machine
from streamlda.service.metrics import Metrics
from streamlda.service.rules import Rules
from streamlda.service.status import FAILURES, LIVE_SECONDS, MOST_REASONS, STALLABLE, Status
from streamlda.storage.snapshots import Summary, Topic
from streamlda.stream.time_bins import InNoBin
from tests.service.planted import budget, outcomes

#: Lag of records whose times nobody has told.
NO_TIMES = {"seconds": None, "newest": {}}


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def status(clock):
    return Status(private=True, stream="a topic", memory_limit_bytes=2**30, clock=clock)


def samples(status):
    """Return the metrics as Prometheus reads them: name and labels to value."""
    return {
        (sample.name.removeprefix("streamlda_"), *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(Metrics(status).text().decode())
        for sample in family.samples
    }


def test_it_is_alive_for_as_long_as_the_loop_goes_round_and_ready_with_a_reason(status, clock):
    clock.now += LIVE_SECONDS - 0.1
    assert status.alive()
    clock.now += 0.1
    assert not status.alive()
    assert not status.status()["alive"]
    status.beat()
    assert status.alive()
    assert status.ready() == (False, "starting")
    status.note(not_ready="the broker is away")
    assert status.ready() == (False, "the broker is away")


def test_what_is_stalled_makes_it_not_ready_since_when_and_why(status):
    status.note(not_ready="")
    status.note(lag={0: 5, 1: 7})
    status.note(last_answer=time.time() - 30.0)
    answered = samples(status)["source_last_answer_timestamp_seconds",]
    assert answered == pytest.approx(time.time() - 30.0, abs=5.0)
    for _ in range(3):
        status.count_failure("source", "KafkaTimeoutError")
    status.show([m.Stalled("source", "KafkaTimeoutError", 12.0)])
    status.show([m.Stalled("output", "ENOSPC", 0.0)])
    told = status.status()
    since = datetime.fromisoformat(told["stalled"]["source"]["since"])
    assert since.timestamp() == pytest.approx(time.time() - 12.0, abs=5.0)
    # What waits is not known then, rather than nothing.
    assert told["lag"]["partitions"] == {"0": None, "1": None}
    assert told["lag"]["records"] is None
    found = samples(status)
    assert not any(name == "kafka_lag_records" for name, *_ in found)
    stalled = {labels[0][1]: n for (name, *labels), n in found.items() if name == "stalled"}
    assert stalled == dict.fromkeys(STALLABLE, 0) | {"source": 1, "output": 1}
    labels = ("reason", "KafkaTimeoutError"), ("what", "source")
    assert found["failure_reasons_total", *labels] == 3
    assert found["failures_total", ("what", "source")] == 3
    ready, reason = status.ready()
    assert not ready
    since = told["stalled"]["source"]["since"]
    assert reason.split("; ")[0] == f"source stalled since {since}: KafkaTimeoutError"
    assert found["ready",] == 0
    for what in ("source", "output"):
        status.show([m.Recovered(what, 1.0)])
    assert status.ready() == (True, "")


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
    found = samples(status)
    held = {labels[0][1]: n for (name, *labels), n in found.items() if name == "partition"}
    assert held == {"0": 1, "3": 1, "5": 0, "1": 0, "2": 0}
    shown = [found[name,] for name in ("group_generation", "lease", "group_places")]
    assert shown == [7, 1, 90]


def test_what_is_not_known_yet_is_none_and_has_no_metric(status):
    told = status.status()
    unknown = {name for name, value in told.items() if value is None}
    names = "places places_left account checkpoint budget last_answer lost warmup undated ahead "
    assert unknown == {*(names + "late last_snapshot group inference").split()}
    lag = {"records": None, "bytes": None, "partitions": {}, "waits_for": None, **NO_TIMES}
    assert told["lag"] == lag
    names = {key[0] for key in samples(status)}
    assert not names & {"checkpoint_age_seconds", "privacy_epsilon_spent", "places", "lost_total"}
    assert not names & {"topic_prevalence", "inference_total", "inference_lag_records"}
    assert "uptime_seconds" in names


def test_lag_of_inference_is_known_where_that_of_all_its_partitions_is(status):
    for outcome, n in (("inferred", 7), ("rejected", 1)):
        status.count("inferred", outcome, n)
    status.note(inference_by=8, inference_lost=3)
    for lag, wanted in (({}, None), ({0: 4}, 4), ({0: 4, 1: None}, None), ({0: 0, 1: 2}, 2)):
        status.note(inference_lag=lag)
        told = status.status()["inference"]
        assert told["lag"] == wanted
    assert told == {
        "records": {"inferred": 7, "rejected": 1},
        "snapshot": 8,
        "lag": 2,
        "partitions": {"0": 0, "1": 2},
        "lost": 3,
    }
    assert samples(status)["inference_total", ("outcome", "inferred")] == 7


def test_the_page_and_prometheus_are_told_the_same(status, clock):
    status.note(documents=outcomes(), rejects={}, releases=0, rounds=0)
    documents = outcomes(learned=70, short=5, rejected=3, blank=2)
    status.note(
        phase="learning",
        not_ready="",
        documents=documents,
        rejects={"not JSON": 2, "too long": 1},
        releases=1,
        rounds=3,
        places=80,
        places_left=920,
        lag={2: None, 0: 7, 1: 5},
        lost={"records": 4},
        in_no_bin=InNoBin(17, 5, 3),
        warmup=(9_000, 20_000),
        queue_bytes=4096,
        resident_bytes=2**28,
        budget=budget(0.5, 1.25, 2.0, 1e-9),
        last_answer=time.time(),
    )
    status.count("dead_letters", "not JSON")
    status.count_failure("checkpoint", "ENOSPC")
    status.count("bytes", "", 12345)
    status.note_checkpoint(0.2, 1000)
    clock.now += 4
    status.note_checkpoint(2.0, 2000)
    clock.now += 6
    status.note_snapshot(Summary(1, "2026-11-22T12:00:00+00:00", 9, True, []))
    told = status.status()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    expected = {
        "phase": "learning",
        "documents": documents,
        "lag": {
            "records": 12,
            "bytes": None,
            "partitions": {"0": 7, "1": 5, "2": None},
            "waits_for": None,
            **NO_TIMES,
        },
        "lost": {"records": 4},
        "undated": 17,
        "ahead": 5,
        "late": 3,
        "warmup": {"documents": 9_000, "of": 20_000},
        "checkpoint": {"age_seconds": 6, "seconds": 2.0, "size_bytes": 2000},
        "budget": {"epsilon_spent": 0.5, "epsilon_left": 1.25, "epsilon_total": 2.0, "delta": 1e-9},
        "failures": dict.fromkeys(FAILURES, 0) | {"checkpoint": 1},
        "last_snapshot": "2026-11-22T12:00:00+00:00",
        "uptime_seconds": 10,
        "memory": {"resident_bytes": 2**28, "limit_bytes": 2**30},
    }
    assert told | expected == told

    found = samples(status)
    for key, value in {
        ("documents_total", ("outcome", "learned")): 70,
        ("rejects_total", ("reason", "too long")): 1,
        ("dead_letters_total", ("reason", "not JSON")): 1,
        ("rounds_total",): 3,
        ("places_left",): 920,
        ("kafka_lag_records", ("partition", "0")): 7,
        ("failures_total", ("what", "publish")): 0,
        ("last_snapshot_timestamp_seconds",): 1795348800,
        ("ahead_documents",): 5,
        ("resident_memory_bytes",): 2**28,
        ("checkpoint_seconds",): 2.0,
        ("privacy_delta",): 1e-9,
        ("ready",): 1,
        ("phase", ("phase", "learning")): 1,
    }.items():
        assert found[key] == pytest.approx(value), key
    assert ("kafka_lag_records", ("partition", "2")) not in found
    assert not [key for key in found if key[0].endswith("_created")]
    assert [key for key in found if key[0] == "build_info"]


def test_bytes_that_wait_are_no_records(status):
    status.note(lag={0: 100}, lag_unit="bytes")
    lag = {"records": None, "bytes": 100, "partitions": {"0": 100}, "waits_for": None, **NO_TIMES}
    assert status.status()["lag"] == lag
    assert not [key for key in samples(status) if key[0] == "kafka_lag_records"]


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
    """Return the prevalence of topics: number and what it is of to share."""
    found = [(key, value) for key, value in samples(status).items() if key[0] == "topic_prevalence"]
    return {tuple(label for _, label in key[1:]): value for key, value in found}


def test_prevalence_is_that_of_the_newest_snapshot_and_unknown_shares_are_left_out(clock):
    status = Status(private=False, stream="a topic", clock=clock)
    status.note_snapshot(None)
    topics = [Topic(3, 0.25, None), Topic(None, 0.5, None), Topic(7, None, 0.1)]
    newest = Summary(
        1, "2026-11-22T12:00:00+00:00", 9, False, topics, {"prevalence": [0.5, 0.25, 0.25]}
    )
    status.note_snapshot(newest)
    assert shares(status) == {("all", "3"): 0.25, ("interval", "3"): 0.5, ("interval", "7"): 0.25}
    for interval in (None, {"prevalence": None}):
        status.note_snapshot(replace(newest, topics=topics[:1], interval=interval))
        assert shares(status) == {("all", "3"): 0.25}


def test_a_private_daemon_shows_only_the_prevalence_of_private_snapshots(status):
    newest = Summary(1, "2026-11-22T12:00:00+00:00", 9, False, [Topic(1, 1.0, None)])
    status.note_snapshot(newest)
    assert shares(status) == {}
    status.note_snapshot(replace(newest, private=True))
    assert shares(status) == {("all", "1"): 1.0}


def test_reasons_without_end_stay_a_small_table(status):
    status.note(
        documents=outcomes(rejected=1000),
        rejects={f"reason {i}": 1 for i in range(1000)},
        releases=0,
    )
    told = status.status()["rejects"]
    assert len(told) == MOST_REASONS + 1
    assert told["other"] == 1000 - MOST_REASONS
    assert sum(told.values()) == 1000


def test_counters_of_metrics_begin_with_the_process_and_those_of_status_with_the_state(status):
    status.note(documents=outcomes(learned=90, rejected=10), rejects={"bad": 10}, releases=1)
    status.note(rounds=3)
    status.note(
        documents=outcomes(learned=150, rejected=50), rejects={"bad": 45, "worse": 5}, releases=2
    )
    # The state goes back to a checkpoint, and what is read again counts again.
    status.note(documents=outcomes(learned=90, rejected=10), rejects={"bad": 10}, releases=1)
    status.note(documents=outcomes(learned=95, rejected=10), rejects={"bad": 10}, releases=1)
    assert status.status()["documents"]["learned"] == 95
    found = samples(status)
    assert found["documents_total", ("outcome", "learned")] == 65
    assert found["rejects_total", ("reason", "bad")] == 35
    assert found["rejects_total", ("reason", "worse")] == 5
    assert found["releases_total",] == 1
    assert found["rounds_total",] == 0


def test_what_the_log_says_is_away_or_back_the_status_knows_already(status, monkeypatch):
    said = []
    status.note(not_ready="")
    monkeypatch.setattr(
        "streamlda.service.status.log",
        lambda _, event, **values: said.append((event, *status.ready())),
    )
    status.show([m.Stalled("source", "no-answer", 0.0), m.Recovered("source", 1.0)])
    (stalled, ready, reason), recovered = said
    assert (stalled, ready) == ("stalled", False)
    assert reason.startswith("source stalled since")
    assert recovered == ("recovered", True, "")
