"""Daemons that share a topic's partitions: killed, added, removed; each record counts once."""

import json
import math
import os
import random
import signal
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace

import pytest

from streamlda.errors import FencedError, InvalidSettingError, SourceAwayError
from streamlda.model.topic_model import load
from streamlda.service.lease import Lease, check_beginning, make_beginning
from streamlda.service.memory import memory_plan
from streamlda.service.messages import CheckpointDone, CheckpointTaken, Learned
from streamlda.service.opening import Start
from streamlda.service.partitions import Partitions, PartitionsWorker
from streamlda.service.shared_source import RETRY_SECONDS, SharedSource
from streamlda.service.status import Status
from streamlda.service.supervisor import Supervisor
from streamlda.settings.build import public_words
from streamlda.settings.load import load_settings
from streamlda.storage.checkpoint import Checkpoints, Claim
from streamlda.storage.index import CheckpointIndex
from streamlda.storage.merge import merge_checkpoints
from streamlda.storage.projection import load_projection
from streamlda.storage.shared_folder import SharedFolder
from streamlda.storage.snapshots import Snapshots
from tests.kafka.broker import free_ports
from tests.kafka.topics import wait_until
from tests.service.daemon_process import ROOT, Daemon, arguments, environment, few_or, texts
from tests.service.long_stream import AWAY_SECONDS, answer_of, as_json, not_ready, topic_settings

POISON = {
    b"{": "not-json",
    b"\xff\xff": "not-utf8",
    b'{"text": 3}': "not-text",
    b"[]": "not-an-object",
}


class Shared:
    """Settings of daemons that share a topic and a folder, and what they have learned."""

    def __init__(self, folder, bootstrap, topic):
        self.folder, self.topic, self.bootstrap = folder, topic, bootstrap
        self.path = folder / "shared"

    def settings(self, name, **more):
        given = {
            "checkpoint.folder": str(self.path),
            "output.folder": str(self.folder / "snapshots"),
            "kafka.partitions": "group",
            "kafka.group": self.topic,
            "checkpoint.interval": "0.5 s",
            "topics.refine": False,
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        return topic_settings(self.folder / name, self.bootstrap, self.topic, **given)

    def records(self):
        return sum(SharedFolder(self.path).saved().values()) if self.path.exists() else 0

    def learned(self):
        """Return documents, tokens and rejects of all partitions."""
        merged = merge_checkpoints([*SharedFolder(self.path).saved()])
        rejects = Counter()
        for checkpoint in merged.checkpoints:
            assert checkpoint.skipped == ()
            rejects.update(checkpoint.about["counts"]["rejects"])
        return merged.engine.documents_seen, merged.engine.tokens_seen, rejects

    def snapshots(self):
        paths = sorted((self.folder / "snapshots").glob("snapshot-??????"))
        return [load(path) for path in paths]


@pytest.fixture
def shared(topics, topic, tmp_path):
    return Shared(tmp_path, topics.bootstrap, topic)


class Truth:
    """Sends documents and poison, and knows what is to come of them."""

    def __init__(self, topics, topic, settings, seed=1):
        self._topics, self._topic, self._random = topics, topic, random.Random(seed)
        flags = {name: str(value) for name, value in settings.items()}
        self._words = public_words(load_settings(environment={}, flags=flags))
        self.records, self.rejects, self._sent = 0, Counter(), []

    def send(self, documents, partition, poison=0.02):
        values = []
        for document in documents:
            values.append(json.dumps({"text": document}).encode())
            if self._random.random() < poison:
                values.append(self._random.choice(list(POISON)))
                self.rejects[POISON[values[-1]]] += 1
        self._topics.send(self._topic, values, partition)
        self.records += len(values)
        self._sent += documents

    def learned(self):
        batch = self._words.encode(self._sent).batch
        usable = batch.where(batch.usable)
        return usable.n_documents, int(usable.lengths.sum()), self.rejects


def none_ended(daemons):
    for daemon in daemons:
        assert daemon.process.poll() is None, b"".join(daemon.raw[-20:]).decode()


def campaign(shared, topics, broker, *, documents, n_daemons, kills, broker_kills, seed):
    """Kill daemons and the broker, add and remove daemons and partitions; all is counted once."""
    moments = random.Random(seed)
    truth = Truth(topics, shared.topic, shared.settings("truth"))
    all_of_it = texts(documents)
    parts = [all_of_it[i * documents // 12 : (i + 1) * documents // 12] for i in range(12)]
    topics.make(shared.topic, 4)
    for number in range(4):
        truth.send(parts[number], number)
    every = {"snapshots.every": documents // 5}
    daemons = {n: Daemon(shared.settings(f"d{n}", **every)) for n in range(n_daemons)}
    broker_moments = set(moments.sample(range(kills), broker_kills))
    rest = iter(enumerate(parts[4:], 4))
    try:
        for kill in range(kills):
            time.sleep(moments.uniform(0.5, 5.0))
            if kill in broker_moments:
                broker.kill()
                time.sleep(moments.uniform(1.0, 4.0))
                broker.start()
            if kill == kills // 3:
                daemons[n_daemons] = Daemon(shared.settings(f"d{n_daemons}", **every))
            if kill == kills // 2:
                topics.admin.create_partitions({shared.topic: 6})
            if kill == 2 * kills // 3:
                gone = daemons.pop(0)
                gone.process.kill()
                gone.end()
            if moments.random() < 8 / kills and (part := next(rest, None)):
                truth.send(part[1], part[0] % (4 if kill < kills // 2 else 6))
            none_ended(daemons.values())
            one = moments.choice(list(daemons))
            daemons[one].process.kill()
            daemons[one].end()
            daemons[one] = Daemon(shared.settings(f"d{one}", **every))
        for number, part in rest:
            truth.send(part, number % 6)
        wait_until(lambda: none_ended(daemons.values()) or shared.records() >= truth.records, 300)
        snapshots = len(shared.snapshots())
        wait_until(lambda: len(shared.snapshots()) >= min(1, snapshots), 60)
        for daemon in daemons.values():
            assert daemon.stop() == 0
    finally:
        for daemon in daemons.values():
            daemon.__exit__()
    assert shared.records() == truth.records
    assert shared.learned() == truth.learned()
    for model in shared.snapshots():
        assert model.documents_seen <= truth.learned()[0]
        assert model.prevalence.sum() == pytest.approx(1)


@pytest.mark.long
@pytest.mark.real_broker
def test_killed_daemons_that_share_partitions_count_each_record_once(shared, topics):
    campaign(shared, topics, None, documents=12_000, n_daemons=2, kills=3, broker_kills=0, seed=1)


@pytest.mark.soak
@pytest.mark.real_broker
@pytest.mark.parametrize("seed", [1])
def test_a_campaign_of_kills(seed, broker, own_topics, topic, tmp_path):
    shared = Shared(tmp_path, broker.bootstrap, topic)
    sizes = {
        "documents": int(os.environ.get("STREAMLDA_TEST_SHARED_DOCUMENTS", 300_000)),
        "kills": int(os.environ.get("STREAMLDA_TEST_SHARED_KILLS", 60)),
    }
    campaign(shared, own_topics, broker, n_daemons=3, broker_kills=2, seed=seed, **sizes)


# In this process


@pytest.fixture
def here(request, shared, topics, tmp_path):
    """Turns a source of two partitions of 1500 records until `enough`; by hand, or a group."""
    given = {"kafka__partitions": "0/1", "documents": 1500, **getattr(request, "param", {})}
    documents = given.pop("documents")
    given = shared.settings("here", **given)
    truth = Truth(topics, shared.topic, given)
    topics.make(shared.topic, 2)
    for number in (0, 1):
        truth.send(texts(documents, seed=number), number)
    settings = load_settings(environment={}, flags={n: str(v) for n, v in given.items()})
    folder, status = SharedFolder(shared.path), Status(private=False, stream="s")
    snapshots = Snapshots(tmp_path / "snapshots")
    lease = Lease(settings, folder, Start(status, Supervisor({})), snapshots)
    make_beginning(lease.settings, folder, status)
    partitions, events = Partitions(settings, folder, lease, None), SimpleQueue()
    worker = PartitionsWorker(partitions, status, events.put, lambda position, note: None)
    # Whether dead letters can be made durable.
    letters, shown = SimpleNamespace(durable=True), []
    source = SharedSource(
        *(settings, partitions, status, worker.in_order),
        flush=lambda: letters.durable,
        show=shown.append,
    )

    def learn(batch):
        worker.learn([batch])
        assert isinstance(events.get(timeout=30), Learned)

    def turn(enough):
        def enough_by_now():
            learn(source.poll(200, 0.1))
            return enough()

        wait_until(enough_by_now, 60)

    def give_up(numbers):
        """Let others have partitions; return what was polled of the rest meanwhile."""
        moving = Thread(target=source._give_up, args=(numbers,))
        moving.start()
        wait_until(lambda: not source._handovers.empty())
        rest = source.poll(200, 0.0)
        moving.join(30.0)
        return rest

    def save():
        worker.checkpoint({})
        assert [type(events.get(timeout=30)) for _ in range(2)] == [CheckpointTaken, CheckpointDone]

    def looks():
        """Poll for longer than a partition is left alone that could not be opened."""
        until = time.monotonic() + 3 * RETRY_SECONDS
        while time.monotonic() < until:
            learn(source.poll(200, 0.1))

    yield SimpleNamespace(**locals())
    source.close()
    assert worker.stop(30.0)


def test_a_partition_that_moved_and_came_back_goes_on_where_it_was_saved(here, shared):
    here.turn(lambda: here.partitions.open_now.keys() == {0, 1} and here.partitions.records > 400)
    first = here.partitions.open_now[0]
    polled = here.source.poll(200, 1.0)
    # What others are to have is saved and closed behind all that was learned before.
    others = here.give_up({0})
    assert first.closed
    assert here.folder.saved() == {here.folder.partition(0): first.pipeline.records}
    here.learn(polled)
    here.learn(others)
    assert here.folder.saved() == {here.folder.partition(0): first.pipeline.records}
    here.turn(lambda: here.partitions.open_now.keys() == {0, 1})
    assert here.partitions.open_now[0] is not first
    # Nor does the one that is open now take what was polled for the one before.
    here.learn(polled)
    here.turn(lambda: here.partitions.records == here.truth.records)
    here.save()
    assert shared.learned() == here.truth.learned()
    written = sorted(here.folder.path.glob("partition-*/state-*"))
    # What is saved is not written once more.
    here.save()
    assert sorted(here.folder.path.glob("partition-*/state-*")) == written
    # Counters are of what was read here, once.
    learned, _, rejects = here.truth.learned()
    assert here.partitions.outcomes["learned"] == learned
    assert here.partitions.counts.rejects == rejects
    assert here.status.status()["group"] == {
        "partitions": [0, 1],
        "waiting": [],
        "generation": None,
        "lease": False,
    }


def test_a_partition_moves_unsaved_where_letters_of_its_records_are_not_durable(
    here, shared, monkeypatch, caplog
):
    here.turn(lambda: here.partitions.open_now.keys() == {0, 1} and here.partitions.records > 400)
    here.letters.durable = False
    # A limit that is enough for one partition, and not for two.
    planned = sum(size for _, size in memory_plan(here.partitions.settings, 256))
    monkeypatch.setattr("streamlda.service.partitions.memory_limit", lambda settings: planned)
    others = here.give_up({0, 1})
    assert here.folder.saved() == {}
    here.learn(others)
    here.turn(lambda: here.partitions.records > 1000)
    early = here.partitions.capture()
    here.turn(lambda: here.partitions.records == here.truth.records)
    assert caplog.messages.count("memory-plan") == 1
    # What was learned since a checkpoint was captured is still to be saved.
    here.partitions.write(early)
    here.save()
    assert shared.learned() == here.truth.learned()


def test_one_that_was_overtaken_is_not_written_and_not_used(here, caplog, monkeypatch):
    def away(positions):
        raise SourceAwayError("away")

    # Partitions that cannot be read now are closed, and opened once more.
    monkeypatch.setattr(here.source._source, "take", away)
    with pytest.raises(SourceAwayError):
        here.source.poll(200, 0.1)
    monkeypatch.undo()
    here.turn(lambda: here.partitions.records == here.truth.records)
    overtaken, path = here.partitions.open_now[1], here.folder.partition(1)
    (path / "lock").unlink()
    with Checkpoints.open(path, claim=Claim(1)):
        late = here.partitions.capture([overtaken])
        here.save()
        assert overtaken.closed
        assert here.partitions.write(late) == 0
        assert [*here.folder.saved()] == [here.folder.partition(0)]
        assert "fenced" in caplog.messages
        here.source.poll(1, 0.0)
        assert here.status.status()["group"]["waiting"] == [1]
    # Nothing of it was saved: it is read again.
    here.turn(lambda: here.partitions.records == here.truth.records)


@pytest.mark.long
@pytest.mark.real_broker
@pytest.mark.parametrize("here", [{"kafka__partitions": "group"}], indirect=True)
def test_the_generation_of_the_group_is_the_fence(here, monkeypatch):
    path = here.folder.partition(0)
    with Checkpoints.open(path, claim=Claim(100)):
        pass
    monkeypatch.setattr(here.source._source, "confirm", lambda number: False)
    here.turn(lambda: here.partitions.open_now.keys() == {1})
    here.looks()
    assert here.partitions.open_now.keys() == {1}
    group = here.status.status()["group"]
    assert (group["partitions"], group["waiting"]) == ([1], [0])
    assert "fenced" in str(here.shown)
    # A group that began again is known by the brokers, whatever its number.
    monkeypatch.undo()
    here.turn(lambda: here.partitions.open_now.keys() == {0, 1})
    for number in (0, 1):
        index = CheckpointIndex(here.folder.partition(number), lambda name: None)
        with pytest.raises(FencedError):
            index.claim("older", group["generation"] - 1)
    # Where the group does not know us, nothing is opened: no generation would be a fence.
    assigned = here.source._source.assigned()
    here.learn(here.give_up({0, 1}))
    monkeypatch.setattr(here.source._source, "assigned", lambda: assigned._replace(generation=None))
    here.looks()
    assert not here.partitions.open_now
    monkeypatch.undo()
    here.turn(lambda: here.partitions.records == here.truth.records)


def test_a_beginning_can_be_given_and_at_the_end(here, tmp_path):
    given = str(here.folder.projection)
    topics = replace(here.lease.settings.topics, projection_file=given)
    kafka = replace(here.lease.settings.kafka, start="latest")
    settings = replace(here.lease.settings, topics=topics, kafka=kafka)
    folder = SharedFolder(tmp_path / "another")
    make_beginning(settings, folder, here.status)
    beginning = folder.beginning()
    check_beginning(settings, folder, beginning)
    assert sum(beginning["offsets"].values()) == here.truth.records
    last = folder.first_position(0)
    here.source._source.take({0: last})
    assert here.source._source.position_of(0) == last
    # A partition that comes later is read from its first record on.
    assert folder.first_position(2) is None
    for other, said in (
        ({"topics": replace(topics, seed=1)}, "a run must go on with the settings of its"),
        ({"topics": replace(topics, refine=True)}, r"refine=True \(saved: False\)"),
        ({"vocabulary": replace(settings.vocabulary, hash_bits=9)}, r"=9 \(saved: 8\)"),
        ({"source": replace(settings.source, text_field="body")}, r"'body' \(saved: 'text'\)"),
    ):
        with pytest.raises(InvalidSettingError, match=said):
            check_beginning(replace(settings, **other), folder, beginning)


def test_a_stream_that_has_ended_begins_with_what_it_has(shared, topics, tmp_path, monkeypatch):
    """From one warm-up on; the topics of six are better, and are waited for while more comes."""
    for name, seconds in (("IDLE_SECONDS", 0.2), ("PATIENCE_SECONDS", 1e9)):
        monkeypatch.setattr(f"streamlda.service.lease.{name}", seconds)
    more = {"topics__alpha_0": 0.1, "topics__warmup_documents": 500, "vocabulary__hash_bits": 7}
    given = shared.settings("here", kafka__partitions="0/1", topics__refine=True, **more)
    settings = load_settings(environment={}, flags={n: str(v) for n, v in given.items()})
    folder, status = SharedFolder(shared.path), Status(private=False, stream="s")
    lease = Lease(settings, folder, Start(status, Supervisor({})), Snapshots(tmp_path / "out"))
    documents = as_json(texts(700))
    topics.fill(shared.topic, documents[:300], documents[300:400])
    with ThreadPoolExecutor() as pool:
        begun = pool.submit(make_beginning, lease.settings, folder, status)
        wait_until(lambda: status.status()["warmup"] == {"documents": 400, "of": 500})
        time.sleep(0.5)
        assert folder.beginning() is None
        topics.send(shared.topic, documents[400:], 1)
        wait_until(lambda: status.status()["warmup"] == {"documents": 700, "of": 3000}, 60)
        time.sleep(1.5)
        assert folder.beginning() is None
        monkeypatch.setattr("streamlda.service.lease.PATIENCE_SECONDS", 0.0)
        begun.result(60)
    assert load_projection(folder.projection).refines
    check_beginning(settings, folder, folder.beginning())


@pytest.fixture
def at_once(monkeypatch):
    """Topics begin with what there is, as soon as it was read."""
    for name in ("IDLE_SECONDS", "PATIENCE_SECONDS"):
        monkeypatch.setattr(f"streamlda.service.lease.{name}", 0.0)


#: Documents do not follow this model, so that likelihood refines its topics; 3000 anneal them.
REFINED = {
    **{"topics__refine": True, "topics__alpha_0": 0.1, "topics__warmup_documents": 500},
    **{"vocabulary__hash_bits": 7, "documents": 400},
}


@pytest.mark.parametrize("here", [REFINED], indirect=True)
def test_members_go_on_from_a_start_of_more_documents_once_there_are(
    at_once, here, shared, monkeypatch
):
    """A topic that grows: its first start is of few documents, and nothing is counted twice."""

    def beginning():
        return load_projection(here.folder.projection).beginning

    def learn_more(documents, partition):
        here.truth.send(texts(documents, seed=here.truth.records), partition)
        here.turn(lambda: here.partitions.records == here.truth.records)

    def save(number):
        here.partitions.write(here.partitions.capture([here.partitions.open_now[number]]))

    def digests():
        parts = here.partitions.open_now.values()
        return {part.pipeline.learner.beginning.digest for part in parts}

    here.turn(lambda: here.partitions.records == here.truth.records)
    first, here.lease._lock = beginning(), here.folder.lease()
    learn_more(100, 0)
    here.save()
    here.lease._replace_start()
    assert beginning().digest == first.digest
    learn_more(500, 0)
    learn_more(400, 1)
    here.save()

    def away(settings):
        raise SourceAwayError("away")

    with monkeypatch.context() as patched:
        patched.setattr("streamlda.service.lease.open_stream", away)
        here.lease._replace_start()
    assert beginning().digest == first.digest
    learn_more(20, 0)
    save(0)
    here.lease._replace_start()
    second = beginning()
    assert second.replaces == (first.digest,)
    assert second.behind > 1.5 * first.behind
    assert not second.annealed
    # Members see it with their next documents, and save it without more of them.
    assert digests() == {first.digest}
    monkeypatch.setattr(here.partitions, "look_at", 0.0)
    learn_more(50, 1)
    assert digests() == {second.digest}
    save(1)
    # What one of them has not saved yet is of the newer start where both are merged.
    merged = merge_checkpoints([*here.folder.saved()])
    assert merged.engine.beginning.digest == second.digest
    here.save()
    assert shared.learned() == here.truth.learned()
    # A last one is of all that it takes to anneal topics; then there are no more.
    learn_more(2500, 0)
    here.save()
    for _ in range(2):
        here.lease._replace_start()
    assert beginning().replaces == (first.digest, second.digest)
    assert beginning().annealed
    assert here.lease._replace_at == math.inf
    # What was saved under one before is opened under the newest.
    here.learn(here.give_up({0, 1}))
    here.turn(lambda: here.partitions.open_now.keys() == {0, 1})
    assert digests() == {beginning().digest}
    assert here.partitions.records == here.truth.records


# Daemons


@pytest.mark.long
def test_by_hand_there_can_be_more_daemons_or_fewer(shared, topics):
    truth = Truth(topics, shared.topic, shared.settings("truth"))
    topics.make(shared.topic, 3)
    for share in ("1", "2"):
        for number in range(3):
            truth.send(texts(2000, seed=int(share) + number), number)
        daemons = [
            Daemon(shared.settings(f"{i}", kafka__partitions=f"{i}/{share}"))
            for i in range(int(share))
        ]
        try:
            wait_until(
                lambda: none_ended(daemons) or shared.records() == truth.records,  # noqa: B023
                120,
            )
            assert [daemon.stop() for daemon in daemons] == [0] * int(share)
        finally:
            for daemon in daemons:
                daemon.__exit__()
        assert shared.learned() == truth.learned()


@pytest.mark.long
@pytest.mark.real_broker
def test_one_that_slept_while_others_took_over_is_refused_and_says_so(shared, topics):
    """Its lock is taken away too, as if it did not hold between the two machines."""
    truth = Truth(topics, shared.topic, shared.settings("truth"))
    topics.make(shared.topic, 2)
    port = free_ports(1)[0]
    with Daemon(shared.settings("slow", checkpoint__interval="600 s")) as slow:
        truth.send(texts(3000, seed=1), 0)
        truth.send(texts(3000, seed=2), 1)
        slow.wait_for("partition-opened", 2)
        time.sleep(3.0)
        slow.process.send_signal(signal.SIGSTOP)
        with Daemon(shared.settings("fast", http__port=port)) as fast:
            # Until its session is over it counts as a member, and then its locks hold still.
            fast.wait_for("stalled", seconds=90)
            wait_until(lambda: "partitions stalled" in not_ready(port), 30)
            seen = answer_of(port, "/status")["group"]
            assert (seen["partitions"], seen["waiting"]) == ([], [0, 1])
            for number in (0, 1):
                (shared.path / f"partition-{number}" / "lock").unlink()
            wait_until(lambda: shared.records() == truth.records, 60)
            assert not_ready(port) == ""
            slow.process.send_signal(signal.SIGCONT)
            refused = [slow.wait_for("fenced", n) for n in (1, 2)]
            assert all("another has taken it over" in line["message"] for line in refused)
            wait_until(lambda: len(answer_of(port, "/status")["group"]["partitions"]) == 1, 60)
            truth.send(texts(1000, seed=3), 0)
            truth.send(texts(1000, seed=4), 1)
            fast.wait_for("partition-closed")
            assert slow.stop() == 0
            wait_until(lambda: shared.records() == truth.records, 60)
            assert fast.stop() == 0
    assert shared.learned() == truth.learned()


@pytest.mark.long
@pytest.mark.parametrize("seconds", few_or(3.0, AWAY_SECONDS))
def test_members_of_a_group_live_on_while_the_broker_is_away_at_the_start_and_later(
    seconds, broker, own_topics, topic, tmp_path
):
    shared = Shared(tmp_path, broker.bootstrap, topic)
    truth = Truth(own_topics, topic, shared.settings("truth"))
    own_topics.make(topic, 2)
    for number in (0, 1):
        truth.send(texts(3000, seed=number), number)
    # One of three has no partition.
    ports = free_ports(3)

    def outage():
        until, known = time.monotonic() + seconds, time.monotonic() + 20
        while time.monotonic() < until:
            none_ended(daemons)
            for port in ports:
                assert answer_of(port, "/livez")["alive"]
                if time.monotonic() > known:
                    assert "stalled since" in not_ready(port)
                    assert answer_of(port, "/status")["lag"]["records"] is None
            time.sleep(0.2)

    broker.kill()
    daemons = [
        Daemon(shared.settings(f"d{i}", http__port=port, breaker__attempts=1))
        for i, port in enumerate(ports)
    ]
    try:
        for daemon in daemons:
            daemon.wait_for("stalled")
        outage()
        broker.start()
        wait_until(lambda: none_ended(daemons) or shared.records() == truth.records, 300)
        broker.kill()
        outage()
        broker.start()
        for number in (0, 1):
            truth.send(texts(2000, seed=2 + number), number)
        wait_until(lambda: none_ended(daemons) or shared.records() == truth.records, 300)
        assert [daemon.stop() for daemon in daemons] == [0, 0, 0]
    finally:
        if not broker.runs:
            broker.start()
        for daemon in daemons:
            daemon.__exit__()
    assert shared.learned() == truth.learned()


@pytest.mark.long
def test_other_settings_another_topic_or_one_state_of_several_are_78(shared, topics, topic):
    for name in (topic, f"{topic}-other"):
        topics.fill(name, as_json(texts(2500)))
    mine = {"kafka.partitions": "0/1"}
    with Daemon(shared.settings("first") | mine) as first:
        wait_until(lambda: shared.records() == 2500, 60)
        assert first.stop() == 0
    for other, said in (
        ({"topics.count": 4}, "n_components=4 (saved: 3)"),
        ({"kafka.topic": f"{topic}-other"}, "a folder of partitions must be of one topic"),
        ({"kafka.partitions": "all"}, "used by those who share partitions"),
    ):
        command = arguments(shared.settings("other") | mine | other)
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
        assert done.returncode == 78, done.stderr
        assert said in done.stderr
    assert shared.records() == 2500


@pytest.mark.long
def test_daemons_that_share_partitions_refine_the_same_topics(shared, topics):
    """How good merged topics are is tested where they are merged (`tests/engine`)."""
    # Documents do not follow this model, so that likelihood refines its topics.
    more = {"topics__alpha_0": 0.1, "topics__warmup_documents": 500, "vocabulary__hash_bits": 7}
    more |= {"topics__refine": True, "snapshots__every": 10_000}
    truth = Truth(topics, shared.topic, shared.settings("truth", **more))
    topics.make(shared.topic, 2)
    for number in (0, 1):
        truth.send(texts(5000, seed=number), number)
    daemons = [Daemon(shared.settings(f"{i}", kafka__partitions=f"{i}/2", **more)) for i in (0, 1)]
    try:
        wait_until(lambda: none_ended(daemons) or shared.snapshots(), 180)
        assert [daemon.stop() for daemon in daemons] == [0, 0]
    finally:
        for daemon in daemons:
            daemon.__exit__()
    documents, tokens, rejects = shared.learned()
    assert (documents, tokens, rejects) == truth.learned()
    (model,) = shared.snapshots()
    assert model.diagnostics["refinement"]
    assert model.documents_seen == documents
