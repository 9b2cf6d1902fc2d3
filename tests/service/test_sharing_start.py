"""The topics that daemons of a shared topic begin with."""

from dataclasses import replace

import pytest

from streamlda.errors import InvalidSettingError
from streamlda.service.lease import check_beginning, make_beginning
from streamlda.storage.partitions import (
    PROJECTION,
    Beginning,
    open_shared_folder,
)

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
        ({"topics": replace(topics, seed=1)}, "a run must continue with the settings of its"),
        ({"topics": replace(topics, refine=True)}, r"refine=True \(saved: False\)"),
        ({"vocabulary": replace(settings.vocabulary, hash_bits=9)}, r"=9 \(saved: 8\)"),
        ({"source": replace(settings.source, text_field="body")}, r"'body' \(saved: 'text'\)"),
    ):
        with pytest.raises(InvalidSettingError, match=said):
            check_beginning(replace(settings, **other), folder, beginning)
