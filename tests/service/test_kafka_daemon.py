"""Daemons that read a topic of a real broker, die, lose it, and meet what is no document."""

import json
import random
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamlda.model.topic_model import load
from streamlda.storage.checkpoint import Checkpoints
from streamlda.storage.merge import merge_checkpoints
from streamlda.storage.publishing import MESSAGE_WORDS
from streamlda.storage.snapshots import Snapshots
from tests.kafka.broker import free_ports
from tests.service.daemon_process import (
    ROOT,
    STREAMLDA,
    Daemon,
    environment,
    left_by,
    run_to_end,
    texts,
)
from tests.service.long_stream import (
    as_json,
    ending,
    is_alive,
    run_killed,
    topic_settings,
    wait_for_places,
)

#: Of each partition that is read to its end.
N_RECORDS = 20_000
#: A word that stands in documents, and must stand in no log line and no letter.
SECRET = "zebrafinch"


@pytest.fixture
def settings_for(topics, topic, tmp_path):
    """Return a function that makes settings for a daemon on the topic, with its own folder."""

    def make(name, **more):
        return topic_settings(tmp_path / name, topics.bootstrap, topic, **more)

    return make


def streamlda(*arguments) -> None:
    command = [*STREAMLDA, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def newest(folder: Path):
    with Checkpoints.open(folder / "checkpoints") as store:
        found = store.newest()
    assert found is not None
    return found


def kills(few: int, many: int):
    """Few for every run of the tests, many for a long one."""
    return pytest.mark.parametrize("n_kills", [few, pytest.param(many, marks=pytest.mark.soak)])


# Killed


@kills(3, 200)
def test_killed_at_random_it_ends_as_if_it_had_not_been(n_kills, topics, topic, tmp_path):
    topics.make(topic)
    topics.send(topic, as_json(texts(N_RECORDS)))

    def settings_in(name):
        return topic_settings(tmp_path / name, topics.bootstrap, topic) | ending(N_RECORDS, 4)

    run_to_end(settings_in("twin"))
    wanted = left_by(tmp_path / "twin")
    assert len(wanted.snapshots) == 4
    moments, killed, streams = random.Random(n_kills), 0, 0
    while killed < n_kills:
        streams += 1
        killed += run_killed(settings_in(str(streams)), moments, n_kills - killed)
        assert left_by(tmp_path / str(streams)) == wanted
    assert json.loads(wanted.about)["places"] == N_RECORDS


@kills(2, 100)
def test_killed_daemons_of_two_partitions_merge_to_the_same_sums(
    n_kills, topics, topic, settings_for, tmp_path
):
    documents = [texts(N_RECORDS, seed=1), texts(N_RECORDS, seed=2)]
    topics.make(topic, 2)
    for number, part in enumerate(documents):
        topics.send(topic, as_json(part), number)
    run_to_end(settings_for("scout") | ending(5000))
    shared = tmp_path / "shared.projection"
    streamlda("projection", tmp_path / "scout" / "checkpoints", "--output", shared)

    def settings_in(name, number):
        chosen = {"topics.projection_file": str(shared), "kafka.partitions": str(number)}
        made = settings_for(f"{name}-{number}") | chosen | ending(N_RECORDS)
        del made["vocabulary.hash_bits"]
        return made

    def merged(name):
        folders = [tmp_path / f"{name}-{number}" / "checkpoints" for number in (0, 1)]
        outputs = [tmp_path / f"{name}.{kind}" for kind in ("model", "state")]
        streamlda("merge", *folders, "--output", outputs[0], "--state", outputs[1])
        joined = merge_checkpoints(folders)
        slots = [checkpoint.about["places"] for checkpoint in joined.checkpoints]
        offsets = [checkpoint.position["offsets"] for checkpoint in joined.checkpoints]
        assert slots == [N_RECORDS, N_RECORDS]
        assert offsets == [{"0": N_RECORDS}, {"1": N_RECORDS}]
        model = load(outputs[0])
        return outputs[1].read_bytes(), model.components.tobytes(), model.documents_seen

    for number in (0, 1):
        run_to_end(settings_in("twin", number))
    wanted = merged("twin")
    # Those with fewer than three words are not learned from, and there are none.
    assert wanted[2] == 2 * N_RECORDS
    killed, streams = [0, 0], 0
    seeds = [random.Random(10 * n_kills + number) for number in (0, 1)]
    while min(killed) < n_kills:
        streams += 1
        with ThreadPoolExecutor(2) as pool:
            runs = [
                pool.submit(
                    *(run_killed, settings_in(str(streams), number), seeds[number]),
                    max(0, n_kills - killed[number]),
                )
                for number in (0, 1)
            ]
            for number in (0, 1):
                killed[number] += runs[number].result()
        assert merged(str(streams)) == wanted


# Brokers and logs that are not as they were


@pytest.mark.parametrize("seconds", [3.0, pytest.param(30.0, marks=pytest.mark.soak)])
def test_a_broker_that_goes_and_comes_back(seconds, broker, own_topics, topic, tmp_path):
    documents = as_json(texts(N_RECORDS))
    half = N_RECORDS // 2
    own_topics.make(topic)
    own_topics.send(topic, documents[:half])
    (port,) = free_ports(1)
    settings = topic_settings(tmp_path / "daemon", broker.bootstrap, topic, http__port=port)
    with Daemon(settings | ending(N_RECORDS)) as daemon:
        daemon.wait_for("http")
        wait_for_places(port, half)
        broker.kill()
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                assert is_alive(port) == 200
                time.sleep(0.2)
        finally:
            broker.start()
        own_topics.send(topic, documents[half:])
        assert daemon.end() == 0
    twin = topic_settings(tmp_path / "twin", broker.bootstrap, topic)
    run_to_end(twin | ending(N_RECORDS))
    assert left_by(tmp_path / "daemon") == left_by(tmp_path / "twin")


def test_a_truncated_topic_is_refused_unless_gaps_are_allowed(
    topics, topic, settings_for, tmp_path
):
    topics.make(topic)
    topics.send(topic, as_json(texts(6000)))
    settings = settings_for("daemon")
    run_to_end(settings | ending(3000))
    before = left_by(tmp_path / "daemon")
    topics.remove_before(topic, 4000)
    with Daemon(settings | ending(6000, 2)) as daemon:
        assert daemon.end() == 74
    (refusal,) = daemon.events("not-started")
    assert "allow_gaps" in refusal["message"]
    assert left_by(tmp_path / "daemon") == before
    # 3000 learned, 1000 lost, 2000 that are left: places are records that were read.
    run_to_end(settings | {"source.allow_gaps": "true"} | ending(5000, 2))
    saved = newest(tmp_path / "daemon")
    assert saved.about["places"] == 5000
    assert saved.position["offsets"] == {"0": 6000}
    assert saved.position["lost"] == {"0": 1000}


@pytest.mark.parametrize("live", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_partition_that_is_added_is_read_from_its_first_record(
    live, topics, topic, settings_for, tmp_path
):
    """At the next start, or within the minute after which the client looks again."""
    topics.make(topic)
    topics.send(topic, as_json(texts(3000, seed=1)))
    (port,) = free_ports(1)
    settings = settings_for("daemon", http__port=port)

    def add():
        topics.admin.create_partitions({topic: 2})
        topics.send(topic, as_json(texts(2000, seed=2)), 1)

    with Daemon(settings) as daemon:
        daemon.wait_for("http")
        wait_for_places(port, 3000)
        if live:
            add()
            wait_for_places(port, 5000, 120)
        assert daemon.stop() == 0
    if not live:
        add()
        with Daemon(settings) as daemon:
            daemon.wait_for("http")
            wait_for_places(port, 5000)
            assert daemon.stop() == 0
    saved = newest(tmp_path / "daemon")
    assert saved.about["places"] == 5000
    assert saved.position["offsets"] == {"0": 3000, "1": 2000}


# Records that are no documents


def poisoned(n_records: int, every: int) -> tuple[list[bytes], set[int]]:
    """Return values of which each so-manieth is no document, and the offsets of those."""
    bad = [b"\xff" + SECRET.encode(), b'{"text": 1, "x": "%s"}' % SECRET.encode(), b'{"no": ""}']
    documents = [f"{SECRET} {text}" for text in texts(min(n_records, 10_000))]
    values = as_json(documents) * (-(-n_records // len(documents)))
    poison = set(range(0, n_records, every))
    for offset in poison:
        values[offset] = bad[offset // every % len(bad)]
    return values[:n_records], poison


@pytest.mark.parametrize(
    ("n_records", "every", "n_kills"),
    [(6000, 10, 1), pytest.param(300_000, 2, 10, marks=pytest.mark.soak)],
)
def test_poison_goes_to_its_topic_by_reference_and_costs_only_itself(
    n_records, every, n_kills, topics, topic, settings_for, tmp_path
):
    values, poison = poisoned(n_records, every)
    topics.make(topic)
    for start in range(0, n_records, 50_000):
        topics.send(topic, values[start : start + 50_000])
    letters = f"{topic}-letters"
    settings = settings_for("daemon", dead_letters__topic=letters, breaker__share=0.9)
    run_killed(settings | ending(n_records), random.Random(n_kills), n_kills)
    clean = settings_for("clean", breaker__share=0.9)
    run_to_end(clean | ending(n_records))
    assert left_by(tmp_path / "daemon") == left_by(tmp_path / "clean")
    model = load(tmp_path / "daemon" / "snapshots" / "snapshot-000001")
    assert model.documents_seen == n_records - len(poison)

    found = topics.read(letters)
    # At least once each, and the same key however often.
    assert {row.key for row in found} == {b"%s/0/%d" % (topic.encode(), at) for at in poison}
    for row in found:
        reference = json.loads(row.value)
        assert reference["offset"] in poison
        assert reference["bytes"] == len(values[reference["offset"]])
        assert reference["reason"] in ("not-json", "not-utf8", "not-text", "missing-field")
    assert not any(SECRET.encode() in row.value for row in found)


def test_no_text_is_logged_and_mostly_poison_stops_it(topics, topic, settings_for, tmp_path):
    values, poison = poisoned(6000, 2)
    for offset in range(1, 6000, 4):
        values[offset] = b"{%s" % SECRET.encode()
    topics.make(topic)
    topics.send(topic, values)
    letters = f"{topic}-letters"
    more = {"dead_letters.topic": letters, "breaker.records": 2000, "kafka.group": f"{topic}-group"}
    with Daemon(settings_for("daemon") | more) as daemon:
        assert daemon.end() == 65
    (line,) = daemon.events("breaker")
    assert 0.5 < line["share"] <= 0.8
    assert SECRET.encode() not in b"".join(daemon.raw)
    # Not saved: with corrected settings they are read again.
    corrected = {"breaker.share": 0.9} | ending(6000)
    again = run_to_end(settings_for("daemon") | more | corrected)
    assert SECRET.encode() not in b"".join(again.raw)
    assert newest(tmp_path / "daemon").about["places"] == 6000
    keys = {row.key for row in topics.read(letters)}
    bad = poison | set(range(1, 6000, 4))
    assert keys == {b"%s/0/%d" % (topic.encode(), at) for at in bad}


# Snapshots in a topic


def test_the_last_value_of_the_topic_is_the_newest_snapshot(topics, topic, settings_for, tmp_path):
    topics.make(topic)
    topics.send(topic, as_json(texts(6000)))
    out = f"{topic}-snapshots"
    settings = settings_for("daemon", output__topic=out, source__stream="news") | ending(6000, 3)
    settings |= {"snapshots.when_exhausted": "idle"}

    def published(at_least: int):
        until = time.monotonic() + 60
        while len(found := topics.read(out)) < at_least:
            assert time.monotonic() < until, f"values={len(found)}"
            time.sleep(0.1)
        return found

    with Daemon(settings) as daemon:
        daemon.wait_for("snapshot", 3)
        until = time.monotonic() + 60
        while published(1)[-1].headers[0] != ("streamlda.snapshot", b"3"):
            assert time.monotonic() < until
        assert daemon.stop() == 0
    before = published(1)
    assert {row.key for row in before} == {b"news"}
    wanted = Snapshots(tmp_path / "daemon" / "snapshots").topics(3, MESSAGE_WORDS)
    assert json.loads(before[-1].value) == json.loads(json.dumps(wanted))
    with Daemon(settings) as daemon:
        after = published(len(before) + 1)
        assert daemon.stop() == 0
    assert (after[-1].key, after[-1].value, after[-1].headers) == (
        *(before[-1].key, before[-1].value),
        before[-1].headers,
    )
