"""Partitions of a shared topic in this process: moved, overtaken, fenced; records count once."""

from dataclasses import replace

import pytest

from streamlda.errors import FencedError, InvalidSettingError, SourceAwayError
from streamlda.service.lease import check_beginning, make_beginning
from streamlda.storage.checkpoint import CheckpointIndex
from streamlda.storage.partitions import PROJECTION, count_saved, open_shared_folder
from streamlda.storage.store import Claim, Store
from tests.kafka.topics import wait_until


def test_a_partition_that_moved_and_came_back_goes_on_where_it_was_saved(here, shared):
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
    # What is saved is not written once more.
    here.save()
    assert sorted(here.folder.glob("partition-*/state-*")) == written
    # Counters are of what was read here, once.
    learned, _, rejects = here.truth.learned()
    assert here.partitions.outcomes["learned"] == learned
    assert here.partitions.counts.rejects == rejects
    assert here.status.status()["group"] == {
        "partitions": [0, 1],
        "waiting": [],
        "elsewhere": [],
        "generation": here.source.member.assigned().generation,
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
    wait_until(lambda: here.source.member.assigned().partitions == {0, 1})
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
    unknown = here.source.member.assigned()._replace(generation=None)
    here.learn(here.give_up({0, 1}))
    monkeypatch.setattr(here.source.member, "assigned", lambda: unknown)
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
        ({"topics": replace(topics, seed=1)}, "a run must continue with the settings of its"),
        ({"topics": replace(topics, refine=True)}, r"refine=True \(saved: False\)"),
        ({"vocabulary": replace(settings.vocabulary, hash_bits=9)}, r"=9 \(saved: 8\)"),
        ({"source": replace(settings.source, text_field="body")}, r"'body' \(saved: 'text'\)"),
    ):
        with pytest.raises(InvalidSettingError, match=said):
            check_beginning(replace(settings, **other), folder)
