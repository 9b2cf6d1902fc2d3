"""Partitions of a shared topic: moved, overtaken, fenced, killed; each record counts once."""

import json
import os
import random
import signal
import time
from collections import Counter
from dataclasses import asdict, replace
from queue import SimpleQueue
from threading import Event
from types import SimpleNamespace

import pytest

from streamlda.errors import FencedError, InvalidSettingError, SourceAwayError
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.run.opening import open_pipeline
from streamlda.service.lease import Lease, check_beginning, list_terms, make_beginning
from streamlda.service.messages import CheckpointDone, CheckpointTaken, LearnDone
from streamlda.service.partitions import RETRY_SECONDS, Partitions, PartitionsWorker, SharedSource
from streamlda.service.status import Status
from streamlda.settings.build import public_words
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA
from streamlda.storage.checkpoint import CheckpointIndex
from streamlda.storage.merge import (
    SharedProjection,
    load_projection,
    merge_checkpoints,
    read_turned,
    save_projection,
)
from streamlda.storage.partitions import (
    PROJECTION,
    TURNED,
    Agreement,
    count_saved,
    open_shared_folder,
)
from streamlda.storage.snapshots import Snapshots
from streamlda.storage.store import Claim, Store
from streamlda.stream.source import Behind, RecordBatch
from streamlda_connectors.kafka.consumer import SESSION_SECONDS
from tests.engine.kinds import assert_same_state
from tests.kafka.topics import wait_until
from tests.service.daemon_process import PATIENT, Daemon, changed, texts
from tests.service.long_stream import topic_settings

POISON = {
    b"{": "not-json",
    b"\xff\xff": "not-utf8",
    b'{"text": 3}': "not-text",
    b"[]": "not-an-object",
}


class Shared:
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
        return sum(count_saved(self.path).values()) if self.path.exists() else 0

    def learned(self):
        merged = merge_checkpoints([*count_saved(self.path)])
        rejects = Counter()
        for checkpoint in merged.checkpoints:
            assert checkpoint.skipped == ()
            rejects.update(checkpoint.about["counts"]["rejects"])
        return merged.engine.documents_seen, merged.engine.counters.tokens_seen, rejects

    def snapshots(self):
        paths = sorted((self.folder / "snapshots").glob("snapshot-??????"))
        return [load(path) for path in paths]


class Truth:
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


@pytest.fixture
def shared(topics, topic, tmp_path):
    return Shared(tmp_path, topics.bootstrap, topic)


@pytest.fixture
def here(request, shared, topics, tmp_path):
    """Turns a source of two partitions of 1500 records until `enough`, as a group of one."""
    given = {"documents": 1500, **getattr(request, "param", {})}
    documents = given.pop("documents")
    given = shared.settings("here", **given)
    truth = Truth(topics, shared.topic, given)
    topics.make(shared.topic, 2)
    for number in (0, 1):
        truth.send(texts(documents, seed=number), number)
    settings = load_settings(environment={}, flags={n: str(v) for n, v in given.items()})
    folder, status = open_shared_folder(shared.path), Status(private=False, stream="s")
    snapshots = Snapshots(tmp_path / "snapshots")
    lease = Lease(settings, folder, status, snapshots)
    make_beginning(lease.settings, folder, status)
    beginning = load_projection(folder / PROJECTION).daemons
    partitions, events = Partitions(settings, folder, beginning, lease), SimpleQueue()
    seconds = 120.0
    worker = PartitionsWorker(partitions, status, events.put)
    # Whether dead letters can be made durable.
    letters = SimpleNamespace(durable=True, on_rejected=None, begin=lambda position: None)
    letters.try_to_flush = lambda: "" if letters.durable else "Refused"
    source = SharedSource(settings, partitions, status, letters)

    def learn(batch):
        worker.learn([batch])
        assert isinstance(events.get(timeout=seconds), LearnDone)

    def turn(enough):
        def enough_by_now():
            learn(source.poll(200, 0.1))
            return enough()

        wait_until(enough_by_now, seconds)

    def give_up(numbers):
        """Let others have partitions; return what was polled of the rest meanwhile."""
        done = Event()
        source.member._handovers.put((numbers, done))
        rest = source.poll(200, 0.0)
        assert done.wait(seconds)
        return rest

    def save():
        worker.checkpoint()
        found = [type(events.get(timeout=seconds)) for _ in range(2)]
        assert found == [CheckpointTaken, CheckpointDone]

    def looks():
        """Poll for longer than a partition is left alone that could not be opened."""
        until = time.monotonic() + 3 * RETRY_SECONDS
        while time.monotonic() < until:
            learn(source.poll(200, 0.1))

    yield SimpleNamespace(**locals())
    source.close()
    assert worker.stop(seconds)


def test_a_partition_that_moved_and_came_back_continues_where_it_was_saved(here, shared):
    here.turn(lambda: here.partitions.open_now.keys() == {0, 1} and here.partitions.records > 400)
    first = here.partitions.open_now[0]
    polled = here.source.poll(200, 1.0)
    # What others are to have is saved and closed behind all that was learned before.
    others = here.give_up({0})
    assert first.closed
    assert count_saved(here.folder) == {(here.folder / "partition-0"): first.pipeline.records}
    here.learn(polled)
    here.learn(others)
    assert count_saved(here.folder) == {(here.folder / "partition-0"): first.pipeline.records}
    here.turn(lambda: here.partitions.open_now.keys() == {0, 1})
    assert here.partitions.open_now[0] is not first
    # Nor does the one that is open now take what was polled for the one before.
    here.learn(polled)
    here.turn(lambda: here.partitions.records == here.truth.records)
    here.save()
    assert shared.learned() == here.truth.learned()
    written = sorted(here.folder.glob("partition-*/state-*"))
    here.save()
    assert sorted(here.folder.glob("partition-*/state-*")) == written
    # Counters are of what was read here, once.
    learned, _, rejects = here.truth.learned()
    assert here.partitions.outcomes["learned"] == learned
    assert here.partitions.rejects == rejects
    assert here.status.status()["group"] == {
        "partitions": [0, 1],
        "waiting": [],
        "elsewhere": [],
        "generation": here.source.member.get_assignment().generation,
        "lease": False,
        "places": None,
    }
    assert here.status.status()["lag"]["newest"].keys() == {"0", "1"}
    # What a state is made of shows when it is opened, though nothing more comes.
    here.learn(here.give_up({0, 1}))
    here.status.note(places=0, places_left=None)
    wait_until(
        lambda: (
            here.source.poll(200, 0.1).n_records == 0
            and here.status.status()["places"] == here.truth.records
        )
    )


@pytest.mark.long
def test_a_partition_moves_unsaved_where_letters_of_its_records_are_not_durable(here, shared):
    here.turn(lambda: here.partitions.open_now.keys() == {0, 1} and here.partitions.records > 400)
    here.letters.durable = False
    others = here.give_up({0, 1})
    assert count_saved(here.folder) == {}
    here.learn(others)
    here.turn(lambda: here.partitions.records > 1000)
    early = here.partitions.capture()
    here.turn(lambda: here.partitions.records == here.truth.records)
    # What was learned since a checkpoint was captured is still to be saved.
    here.partitions.write(early)
    here.save()
    assert shared.learned() == here.truth.learned()


@pytest.mark.long
def test_one_that_was_overtaken_is_not_written_and_not_used(here, caplog, monkeypatch):
    def away(positions):
        raise SourceAwayError("away")

    # Partitions that cannot be read now are closed, and opened once more.
    wait_until(lambda: here.source.member.get_assignment().partitions == {0, 1})
    monkeypatch.setattr(here.source._source, "take", away)
    with pytest.raises(SourceAwayError):
        here.source.poll(200, 0.1)
    monkeypatch.undo()
    here.turn(lambda: here.partitions.records == here.truth.records)
    overtaken, path = here.partitions.open_now[1], here.folder / "partition-1"
    (path / "lock").unlink()
    with Store.open(path, claim=Claim(100)):
        late = here.partitions.capture([overtaken])
        here.save()
        assert overtaken.closed
        assert here.partitions.write(late) == 0
        assert [*count_saved(here.folder)] == [(here.folder / "partition-0")]
        assert "fenced" in caplog.messages
        here.source.poll(1, 0.0)
        assert here.status.status()["group"]["waiting"] == [1]
    # Nothing of it was saved: it is read again.
    here.turn(lambda: here.partitions.records == here.truth.records)


@pytest.mark.long
def test_the_generation_of_the_group_is_the_fence(here, monkeypatch):
    path = here.folder / "partition-0"
    with Store.open(path, claim=Claim(100)):
        pass
    monkeypatch.setattr(here.source.member, "confirm", lambda number: False)
    here.turn(lambda: here.partitions.open_now.keys() == {1})
    here.looks()
    assert here.partitions.open_now.keys() == {1}
    group = here.status.status()["group"]
    assert (group["partitions"], group["waiting"]) == ([1], [0])
    assert here.status.status()["stalled"]["partitions"]["reason"] == "fenced"
    # A group that began again is known by the brokers, whatever its number.
    monkeypatch.undo()
    here.turn(lambda: here.partitions.open_now.keys() == {0, 1})
    for number in (0, 1):
        index = CheckpointIndex(here.folder / f"partition-{number}")
        with pytest.raises(FencedError):
            index.claim(group["generation"] - 1)
    # Where the group does not know us, nothing is opened: no generation would be a fence.
    unknown = here.source.member.get_assignment()._replace(generation=None)
    here.learn(here.give_up({0, 1}))
    monkeypatch.setattr(here.source.member, "get_assignment", lambda: unknown)
    here.looks()
    assert not here.partitions.open_now
    monkeypatch.undo()
    here.turn(lambda: here.partitions.records == here.truth.records)


@pytest.mark.long
def test_a_partition_whose_account_differs_is_opened_again_where_it_was_saved(here):
    here.turn(lambda: here.partitions.records >= 400)
    here.save()
    refused = []
    here.partitions.on_account = refused.append
    while not here.source.poll(200, 0.1).n_records:
        pass  # An answer that is dropped.
    here.turn(lambda: here.partitions.records >= 600)
    here.save()
    assert refused == ["AccountError"]
    here.turn(lambda: here.partitions.records >= here.truth.records)
    here.save()
    assert here.shared.learned() == here.truth.learned()


@pytest.mark.long
def test_a_beginning_can_be_given_and_at_the_end(here, tmp_path):
    given = str(here.folder / PROJECTION)
    topics = replace(here.lease.settings.topics, projection_file=given)
    kafka = replace(here.lease.settings.kafka, start="latest")
    settings = replace(here.lease.settings, topics=topics, kafka=kafka)
    folder = open_shared_folder(tmp_path / "another")
    make_beginning(settings, folder, here.status)
    beginning = check_beginning(settings, folder)
    assert sum(beginning.offsets.values()) == here.truth.records
    last = beginning.find_position(0)
    here.source._source.take({0: last})
    assert here.source._source.get_position(0) == last
    # A partition that comes later is read from its first record on.
    assert beginning.find_position(2) is None
    for other, said in (
        ({"topics": replace(topics, seed=1)}, "differ from those of the checkpoints"),
        ({"topics": replace(topics, refine=True)}, r"refine=True \(saved: False\)"),
        ({"vocabulary": replace(settings.vocabulary, hash_bits=9)}, r"=9 \(saved: 8\)"),
        ({"source": replace(settings.source, text_field="body")}, r"'body' \(saved: 'text'\)"),
    ):
        with pytest.raises(InvalidSettingError, match=said):
            check_beginning(replace(settings, **other), folder)


#: Locks as of a file system that grants all of them: only generations hold daemons apart.
LOCKS_FOR_ALL = "import fcntl; fcntl.flock = lambda *_: None"

#: Others take over what a daemon held that is stopped for so long.
STOPPED_SECONDS = SESSION_SECONDS + 2


def campaign(
    shared, topics, broker, *, documents, n_daemons, kills, broker_kills, seed, stops=0, changes=""
):
    """Kill and stop daemons, kill the broker, add and remove daemons; all is counted once."""
    moments = random.Random(seed)
    truth = Truth(topics, shared.topic, shared.settings("truth"))
    all_of_it = texts(documents)
    parts = [all_of_it[i * documents // 12 : (i + 1) * documents // 12] for i in range(12)]
    topics.make(shared.topic, 4)
    for number in range(4):
        truth.send(parts[number], number)

    def daemon(number):
        settings = shared.settings(f"d{number}", **{"snapshots.every": documents // 5})
        return Daemon(settings, changed(settings, PATIENT + changes))

    daemons = {number: daemon(number) for number in range(n_daemons)}
    broker_moments = set(moments.sample(range(kills), broker_kills))
    stop_moments = set(moments.sample(range(kills), stops))
    rest = iter(enumerate(parts[4:], 4))
    try:
        for kill in range(kills):
            time.sleep(moments.uniform(0.5, 5.0))
            if kill in broker_moments:
                broker.kill()
                time.sleep(moments.uniform(1.0, 4.0))
                broker.start()
            if kill == kills // 3:
                daemons[n_daemons] = daemon(n_daemons)
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
            if kill in stop_moments:
                daemons[one].process.send_signal(signal.SIGSTOP)
                time.sleep(STOPPED_SECONDS)
                daemons[one].process.send_signal(signal.SIGCONT)
                one = moments.choice(list(daemons))
            daemons[one].process.kill()
            daemons[one].end()
            daemons[one] = daemon(one)
        for number, part in rest:
            truth.send(part, number % 6)
        wait_until(lambda: none_ended(daemons.values()) or shared.records() >= truth.records)
        snapshots = len(shared.snapshots())
        wait_until(lambda: len(shared.snapshots()) >= min(1, snapshots))
        for one in daemons.values():
            # Before that line a signal finds a process without a handler.
            one.wait_for("settings-checked")
            assert one.stop() == 0
    finally:
        for one in daemons.values():
            one.__exit__()
    assert shared.records() == truth.records
    assert shared.learned() == truth.learned()
    for model in shared.snapshots():
        assert model.documents_seen <= truth.learned()[0]
        assert model.prevalence.sum() == pytest.approx(1)


@pytest.mark.long
def test_killed_daemons_that_share_partitions_count_each_record_once(shared, topics):
    campaign(shared, topics, None, documents=12_000, n_daemons=2, kills=3, broker_kills=0, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("changes", ["", LOCKS_FOR_ALL], ids=["locks", "no-locks"])
def test_a_campaign_of_kills(changes, broker, topics, topic, tmp_path):
    shared = Shared(tmp_path, broker.bootstrap, topic)
    kills = int(os.environ.get("STREAMLDA_TEST_SHARED_KILLS", 100))
    sizes = {
        "documents": int(os.environ.get("STREAMLDA_TEST_SHARED_DOCUMENTS", 300_000)),
        "kills": kills,
        "stops": kills // 5,
        "broker_kills": kills // 20,
        "changes": changes,
    }
    campaign(shared, topics, broker, n_daemons=3, seed=1, **sizes)


K, V = 6, 300
LOG = {"cluster": "c", "topic": "news", "topic_id": "t"}


def corpus(seed):
    found = PlantedLDA(K, V, alpha_0=0.6, mean_length=60, topic_concentration=0.05, seed=seed)
    found.words = tuple(f"w{number}" for number in range(V))
    return found


class Group:
    """Two partitions of a folder, in one process, which can be opened again."""

    def __init__(self, path, folder):
        flags = {
            "checkpoint.folder": str(folder),
            "kafka.partitions": "group",
            "kafka.group": "group",
            "vocabulary.kind": "given",
            "vocabulary.file": str(folder / "words.txt"),
            "topics.count": K,
            "topics.warmup_documents": 2000,
            "topics.refine": True,
        }
        folder.mkdir()
        (folder / "words.txt").write_text("".join(f"{word}\n" for word in corpus(1).words))
        given = topic_settings(path, "127.0.0.1:1", "news", **flags)
        flags = {name: str(value) for name, value in given.items()}
        self.settings, self.folder = load_settings(environment={}, flags=flags), folder
        words = public_words(self.settings)
        pipeline = open_pipeline(self.settings).pipeline
        pipeline.add(RecordBatch(texts=corpus(1).texts(2500)))
        pipeline.flush()
        save_projection(folder / PROJECTION, pipeline.learner, words)
        self.beginning = Agreement("b", list_terms(self.settings), LOG, {})
        self.begin()

    def begin(self):
        self.partitions = Partitions(self.settings, self.folder, self.beginning, None)
        for number in (0, 1):
            self.partitions.open(number, Claim(1))

    def learn(self, texts):
        for number, part in self.partitions.open_now.items():
            own = texts[number::2]
            begun = part.pipeline.records
            part.pipeline.add(RecordBatch(texts=own))
            offsets = {str(number): begun + len(own)}
            at = {**LOG, "partitions": [number], "offsets": offsets, "lost": {}, "gaps": {}}
            part.pipeline.behind = Behind(at, {})

    def save(self):
        self.partitions.write(self.partitions.capture())

    def end(self):
        for part in [*self.partitions.open_now.values()]:
            self.partitions._close(part)

    def merged(self, start=None, tried=0):
        return merge_checkpoints([*count_saved(self.folder)], start, tried)

    def learners(self):
        return [part.pipeline.learner for part in self.partitions.open_now.values()]


@pytest.mark.statistical
def test_partitions_begin_again_together_where_their_topic_turns(tmp_path):
    group = Group(tmp_path / "daemon", tmp_path / "shared")
    old, new, n = corpus(1), corpus(2), 3000
    group.learn(old.texts(n))
    group.save()
    before = group.merged()
    assert (before.tried, before.turned) == (0, None)
    assert before.engine.snapshot().diagnostics["topic_ids"] == [*range(K)]
    group.learn(new.texts(n))
    group.save()
    found = group.merged()
    model = found.engine.snapshot()
    assert matched_l1_error(new.components, model.components).mean < 0.3
    assert model.documents_seen == 2 * n
    assert model.diagnostics["following"]["switches"] == 1
    ids = model.diagnostics["topic_ids"]
    # One at most had moved over before.
    assert len({*ids} & {*range(K)}) <= 1
    # As often as documents since the turn have doubled.
    assert found.tried > 0
    assert group.merged(tried=found.tried).turned is None
    # What the holder of the lease has written, all begin again from, with their next checkpoint.
    terms = asdict(found.engine.settings)
    SharedProjection(found.turned, found.vocabulary, terms).save(group.folder / TURNED)
    # Of members of two starts the later counts, also where none has begun again.
    late = group.merged(read_turned(group.folder), found.tried)
    assert late.engine.snapshot().diagnostics["topic_ids"] == ids
    group.learn(new.texts(n))
    group.save()
    merged = group.merged(tried=found.tried)
    assert merged.engine.beginning.turn == 1
    model = merged.engine.snapshot()
    assert model.documents_seen == 3 * n
    assert model.diagnostics["topic_ids"] == ids
    assert matched_l1_error(new.components, model.components).mean < 0.2
    # A partition that is opened again has the later start; one that is new begins with it too.
    kept = group.learners()
    group.end()
    group.begin()
    for one, other in zip(kept, group.learners(), strict=True):
        assert_same_state(one, other)
    group.partitions.open(2, Claim(1))
    assert group.partitions.capture() is None
    assert [each.beginning.turn for each in group.learners()] == [1, 1, 1]
    # A start that cannot be read is said, and all continue.
    (group.folder / TURNED).write_bytes(b"damaged")
    # The third partition takes the even ones too, but the first.
    group.learn(new.texts(100))
    group.save()
    assert group.merged(tried=merged.tried).engine.documents_seen == 3 * n + 149
    group.end()
