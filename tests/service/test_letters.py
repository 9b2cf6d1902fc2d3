"""Dead letters of a run that its breaker ended: written again only with other settings."""

from types import SimpleNamespace

from streamlda.service.opening import Letters
from streamlda.service.status import Status
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store


class Written(list):
    def put(self, record, reason):
        self.append((record.offset, reason))

    def flush(self, seconds):
        pass


def test_letters_are_written_again_only_with_other_settings(tmp_path):
    def written(reason="not-json", up_to=3, **changes):
        flags = {"kafka.bootstrap": "b", "kafka.topic": "t", "dead_letters.topic": "d", **changes}
        status, sink = Status(private=False, stream="s"), Written()
        letters = Letters(sink, status, load_settings(environment={}, flags=flags))
        with Store.open(tmp_path) as store:
            letters.read_note(store)
            letters.begin({"cluster": "c", "topic": "t", "topic_id": "i"})
            for offset in range(up_to):
                record = SimpleNamespace(topic="t", partition=0, offset=offset)
                letters.on_rejected(record, reason)
            letters.keep_note()
        assert status.status()["dead_letters"] == ({reason: len(sink)} if sink else {})
        return [offset for offset, _ in sink]

    assert written() == [0, 1, 2]
    assert written() == []
    assert written(up_to=5) == [3, 4]
    # With the field of the text corrected it is another matter what is wrong with records.
    assert written("not-text", **{"source.text_field": "no"}) == [0, 1, 2]
