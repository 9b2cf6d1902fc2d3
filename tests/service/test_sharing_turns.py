"""Daemons that share partitions follow a stream that turns, together."""

from dataclasses import asdict

import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.run.opening import open_pipeline
from streamlda.service.lease import list_terms
from streamlda.service.partitions import Partitions
from streamlda.settings.build import public_words
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA
from streamlda.storage.merge import (
    SharedProjection,
    merge_checkpoints,
    read_turned,
    save_projection,
)
from streamlda.storage.partitions import PROJECTION, TURNED, Agreement, count_saved
from streamlda.storage.store import Claim
from streamlda.stream.source import Behind, RecordBatch
from tests.engine.kinds import assert_same_state
from tests.service.long_stream import topic_settings

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
