"""Inference as a stream: processes that are killed, and brokers that go away."""

import json
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError
from streamlda.model.topic_model import load
from streamlda.service.inference import WAIT_SECONDS, Inference
from streamlda.settings.load import load_settings
from streamlda.settings.setting import INFER
from streamlda.storage.snapshots import NewestModel, Snapshots, fingerprint
from streamlda.utils.exit_codes import UNFINISHED
from tests.kafka.topics import wait_until
from tests.service import planted
from tests.service.daemon_process import STREAMLDA, Daemon, few_or, texts
from tests.service.long_stream import as_json

#: Of how many records one is no JSON.
POISON = 50


def inferring(model, topics, topic, *more):
    flags = ["--kafka-bootstrap", topics.bootstrap, "--kafka-topic", topic]
    flags += ["--output-topic", f"{topic}-out", "--set", "log.format=json"]
    flags += ["--set", "log.level=debug"]
    return Daemon(None, [*STREAMLDA, "infer", str(model), *flags, *map(str, more)])


def results(topics, topic, n_partitions=2):
    rows = topics.read(f"{topic}-out", n_partitions, isolation_level="read_committed")
    return [json.loads(row.value) for row in rows]


class Feed(threading.Thread):
    def __init__(self, topics, topic, n_partitions=2):
        super().__init__()
        self._topics, self._topic = topics, topic
        self._stopped = threading.Event()
        self._texts = texts(2000)
        #: Of each partition what was sent: a text, or None for poison.
        self.sent = [[] for _ in range(n_partitions)]

    def run(self):
        while not self._stopped.wait(0.25):
            for number, sent in enumerate(self.sent):
                numbers = range(len(sent), len(sent) + 50)
                fresh = [None if i % POISON == 0 else self._texts[i % 2000] for i in numbers]
                values = [b"{" if t is None else as_json([t])[0] for t in fresh]
                self._topics.send(self._topic, values, number)
                sent += fresh

    def stop(self):
        self._stopped.set()
        self.join()

    def places(self):
        each = enumerate(self.sent)
        return {(number, at): text for number, sent in each for at, text in enumerate(sent)}


@pytest.fixture
def inference_of(topics, topic, tmp_path):
    """Run inference in a thread, by the newest snapshot of a folder; what it raised is raised."""
    with ThreadPoolExecutor() as pool, ExitStack() as opened:

        def start(**flags):
            flags = {
                "kafka.bootstrap": topics.bootstrap,
                "kafka.topic": topic,
                "infer.topic": f"{topic}-out",
                **{name.replace("__", "."): value for name, value in flags.items()},
            }
            settings = load_settings(environment={}, flags=flags, command=INFER)
            snapshots = Snapshots(tmp_path / "snapshots")
            made = Inference(settings, NewestModel(snapshots.folder, snapshots))
            opened.callback(made.end)
            return pool.submit(made.run), made

        yield start


@pytest.mark.long
def test_a_document_is_inferred_by_the_newest_snapshot(topics, topic, tmp_path, inference_of):
    topics.make(topic)
    topics.make(f"{topic}-out")
    snapshots = Snapshots(tmp_path / "snapshots")
    running, inference = inference_of(infer__top=2)

    def wait_for(n_results):
        wait_until(lambda: running.done() or len(results(topics, topic, 1)) == n_results)
        assert not running.done(), running.exception()

    documents = as_json(texts(3))
    topics.send(topic, documents)
    time.sleep(2 * WAIT_SECONDS)
    assert inference.records["inferred"] == 0
    snapshots.publish(1, planted.model(planted.topics(3, 200, seed=1)))
    wait_for(3)
    snapshots.publish(2, planted.model(planted.topics(3, 200, seed=2)))
    topics.send(topic, [*documents, b"{"])
    wait_for(6)
    wait_until(lambda: inference.records == {"inferred": 6, "rejected": 1})
    found = results(topics, topic, 1)
    assert [(row["offset"], row["model"]["snapshot"]) for row in found] == [
        *((n, 1) for n in range(3)),
        *((n, 2) for n in range(3, 6)),
    ]
    for row in found:
        number = row["model"]["snapshot"]
        assert row["model"]["digest"] == fingerprint(snapshots.path(number))
        (theta,) = snapshots.model(number).transform([texts(3)[row["offset"] % 3]])
        best = np.argsort(-theta, kind="stable")[:2]
        assert row["topics"] == [[k, round(theta[k], 6)] for k in best]
    assert not running.done()


def test_proportions_by_a_private_model_are_disclosed_on_purpose_alone(tmp_path):
    planted.model(planted.topics(3, 200), privacy=planted.private()).save(tmp_path / "model")
    newest = NewestModel(tmp_path / "model")
    flags = {"kafka.bootstrap": "b", "kafka.topic": "t", "infer.topic": "out"}
    for disclose in (False, True):
        given = load_settings(None, {}, {**flags, "infer.disclose": disclose}, INFER)
        inference = Inference(given, newest)
        with nullcontext() if disclose else pytest.raises(InvalidSettingError, match="no promise"):
            inference._check_private(newest.find())


@pytest.mark.long
@pytest.mark.parametrize("n_kills", few_or(2, 40))
def test_killed_processes_of_a_group_write_one_result_of_each_document(
    n_kills, topics, topic, tmp_path
):
    for name, n_partitions in ((topic, 2), (f"{topic}-out", 2), (f"{topic}-dead", 1)):
        topics.make(name, n_partitions)
    model, moments = tmp_path / "model", random.Random(n_kills)
    planted.model(planted.topics(3, 200)).save(model)
    more = ("--set", f"dead_letters.topic={topic}-dead")
    feed = Feed(topics, topic)
    feed.start()
    running = [inferring(model, topics, topic, *more) for _ in range(2)]
    try:
        for _ in range(n_kills):
            before = len(topics.read(f"{topic}-out", 2))
            wait_until(lambda n=before: len(topics.read(f"{topic}-out", 2)) > n)
            time.sleep(moments.uniform(0, 1.0))
            with running.pop(moments.randrange(2)) as victim:
                victim.process.kill()
            running.append(inferring(model, topics, topic, *more))
    finally:
        feed.stop()
        wanted = {place: text for place, text in feed.places().items() if text is not None}
        try:
            wait_until(lambda: len(results(topics, topic)) >= len(wanted))
            codes = [each.stop() for each in running]
        finally:
            for each in running:
                each.__exit__()
    # One that has not begun yet ends as any program; on a busy machine the end may take too long.
    for code, each in zip(codes, running, strict=True):
        assert code in (0, UNFINISHED) or (code == -signal.SIGTERM and not each.raw)
    # Each document has one result, and it is that of the model that it names.
    found = results(topics, topic)
    places = [(row["partition"], row["offset"]) for row in found]
    assert sorted(places) == sorted(wanted)
    theta = load(model).transform([wanted[place] for place in places])
    np.testing.assert_array_equal([row["topics"] for row in found], theta.round(6))
    assert {row["model"]["digest"] for row in found} == {fingerprint(model)}
    letters = [json.loads(row.value) for row in topics.read(f"{topic}-dead")]
    assert {(row["partition"], row["offset"]) for row in letters} == feed.places().keys() - wanted
