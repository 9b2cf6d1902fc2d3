"""The topics that daemons of a shared topic begin with, and those of more documents later."""

import math
from dataclasses import replace

import pytest

from streamlda.errors import InvalidSettingError, SourceAwayError
from streamlda.service.lease import check_beginning, make_beginning
from streamlda.storage.merge import load_projection, merge_checkpoints
from streamlda.storage.partitions import (
    PROJECTION,
    Beginning,
    count_saved,
    open_shared_folder,
    take_lease,
)
from tests.service.daemon_process import texts

pytestmark = pytest.mark.long


def test_a_beginning_can_be_given_and_at_the_end(here, tmp_path):
    given = str(here.folder / PROJECTION)
    topics = replace(here.lease.settings.topics, projection_file=given)
    kafka = replace(here.lease.settings.kafka, start="latest")
    settings = replace(here.lease.settings, topics=topics, kafka=kafka)
    folder = open_shared_folder(tmp_path / "another")
    make_beginning(settings, folder, here.status)
    beginning = Beginning.read(folder)
    check_beginning(settings, folder, beginning)
    assert sum(beginning.offsets.values()) == here.truth.records
    last = beginning.find_position(0)
    here.source._source.take({0: last})
    assert here.source._source.position_of(0) == last
    # A partition that comes later is read from its first record on.
    assert beginning.find_position(2) is None
    for other, said in (
        ({"topics": replace(topics, seed=1)}, "a run must go on with the settings of its"),
        ({"topics": replace(topics, refine=True)}, r"refine=True \(saved: False\)"),
        ({"vocabulary": replace(settings.vocabulary, hash_bits=9)}, r"=9 \(saved: 8\)"),
        ({"source": replace(settings.source, text_field="body")}, r"'body' \(saved: 'text'\)"),
    ):
        with pytest.raises(InvalidSettingError, match=said):
            check_beginning(replace(settings, **other), folder, beginning)


@pytest.fixture
def at_once(monkeypatch):
    """Topics begin with what there is, as soon as it was read, and refined."""
    for name in ("IDLE_SECONDS", "PATIENCE_SECONDS"):
        monkeypatch.setattr(f"streamlda.service.lease.{name}", 0.0)
    monkeypatch.setattr("streamlda.refinement.choice.ERRORS", -math.inf)


#: Likelihood refines the topics; 3000 documents anneal them.
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
        return load_projection(here.folder / PROJECTION).beginning

    def learn_more(documents, partition):
        here.truth.send(texts(documents, seed=here.truth.records), partition)
        here.turn(lambda: here.partitions.records == here.truth.records)

    def save(number):
        here.partitions.write(here.partitions.capture([here.partitions.open_now[number]]))

    def digests():
        parts = here.partitions.open_now.values()
        return {part.pipeline.learner.beginning.digest for part in parts}

    here.turn(lambda: here.partitions.records == here.truth.records)
    first, here.lease._lock = beginning(), take_lease(here.folder)
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
    assert not second.settled
    # Members see it with their next documents, and save it without more of them.
    assert digests() == {first.digest}
    monkeypatch.setattr(here.partitions, "look_at", 0.0)
    learn_more(50, 1)
    assert digests() == {second.digest}
    save(1)
    # What one of them has not saved yet is of the newer start where both are merged.
    merged = merge_checkpoints([*count_saved(here.folder)])
    assert merged.engine.beginning.digest == second.digest
    here.save()
    assert shared.learned() == here.truth.learned()
    # A last one is of all that it takes to anneal topics; then there are no more.
    learn_more(2500, 0)
    here.save()
    for _ in range(2):
        here.lease._replace_start()
    assert beginning().replaces == (first.digest, second.digest)
    assert beginning().settled
    assert here.lease._replace_at == math.inf
    # What was saved under one before is opened under the newest.
    here.learn(here.give_up({0, 1}))
    here.turn(lambda: here.partitions.open_now.keys() == {0, 1})
    assert digests() == {beginning().digest}
    assert here.partitions.records == here.truth.records
