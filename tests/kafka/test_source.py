"""The connector passes the shared checks and reads what is in a topic, on a real broker."""

import json
import uuid

import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda.stream.source import RecordBatch, Reject
from streamlda_connectors import records
from streamlda_connectors.kafka import KafkaSource, Security
from tests.connectors.checks import SOURCE_CHECKS, Case, check_poll_checks_its_arguments
from tests.kafka.broker import PASSWORD, USER
from tests.kafka.test_producer import put_letters, record
from tests.kafka.topics import read, wait_until

VALUES = [
    b'{"text": "one", "by": {"id": "ann"}, "at": "1970-01-01T00:02"}',
    None,
    b"",
    b'{"text": "two", "by": {"id": 7}}',
    b"{",
    b'{"text": "\xff"}',
    b'{"text": "' + b"x" * 100 + b'"}',
    b'{"text": "", "by": {"id": true}}',
    b'{"n": 1}',
    b'{"text": "three"}',
]


@pytest.fixture(scope="module")
def case(topics):
    name = f"streamlda-test-{uuid.uuid4().hex[:12]}"
    topics.fill(name, VALUES)
    reasons = {5: "not-json", 6: "not-utf8", 7: "too-long", 9: "missing-field"}
    options = {"user_field": "by.id", "time_field": "at", "id_field": "by.id"}
    options |= {"bootstrap_servers": topics.bootstrap, "max_document_bytes": 80}
    return Case(
        lambda: KafkaSource(name, **options),
        ["one", "two", "", "three"],
        [Reject(f"{name}/0", at, reason) for at, reason in reasons.items()],
        ends=False,
        users=["ann", "7", None, None],
        times=[120.0, None, None, None],
        ids=["ann", "7", "True", None],
    )


#: All but one: this source may be polled for 0 documents.
CHECKS = [check for check in SOURCE_CHECKS if check is not check_poll_checks_its_arguments]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_source_of_kafka_keeps_the_contract(check, case):
    check(case)


def test_poll_for_nothing_brings_nothing_and_every_offset_is_a_record(case):
    source = case.make()
    before = source.position()
    for change in (source.resume, source.pause, source.resume):
        change()
        for _ in range(3):
            assert source.poll(0, 0.1) == RecordBatch()
    source.pause()
    assert source.poll(5, 0.5).texts == source.poll(5, 0.1).texts == []
    assert source.position() == before
    source.resume()
    seen = []
    for _ in VALUES:
        seen += source.poll(1, 60.0).texts
        assert source.poll(0, 0.0).texts == []
        assert source.position()["offsets"] == {"0": len(seen)}
    assert source.lag() == {0: 0}
    assert seen == ["one", None, None, "two", None, None, None, "", None, "three"]
    for arguments in ((-1,), (0, -1.0), (1, -1.0)):
        with pytest.raises(InvalidSettingError, match=r"(max_records|timeout_seconds)=-1"):
            source.poll(*arguments)
    source.close()
    with pytest.raises(SourceError, match="open"):
        source.poll(0)


def test_records_that_were_fetched_before_a_seek_come_once(topics, topic, source_of, monkeypatch):
    """A poll ends by size, so that some that were fetched wait."""
    monkeypatch.setattr(records, "MAX_POLL_BYTES", 3)
    topics.fill(topic, [b"%d" % i for i in range(9)])
    source = source_of(topics, topic)
    begin = source.position()
    assert source.poll(9, 60.0).texts == ["0", "1", "2"]
    source.seek(begin)
    assert read(source, 9)[0] == [str(i) for i in range(9)]


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(compression, topics, topic, source_of):
    topics.fill(topic, [b"word " * 50 + b"%d" % i for i in range(40)], compression=compression)
    assert read(source_of(topics, topic), 40)[0] == ["word " * 50 + str(i) for i in range(40)]


def test_the_time_of_a_record_is_that_of_the_log(topics, topic, source_of):
    topics.fill(topic, [b"one", None, b"\xff", b"two"])
    source, found = source_of(topics, topic, time_field="@record"), []
    wait_until(lambda: found.extend(source.poll(10, 60.0).times) or len(found) == 4)
    times = [row.timestamp / 1000 for row in topics.read(topic)]
    assert found == [times[0], None, None, times[3]]
    assert times[0] > 1_600_000_000


def test_what_was_gathered_goes_out_before_a_failure_of_on_reject(topics, topic, source_of):
    topics.fill(topic, [b'{"text": "one"}', None, b"poison", b'{"text": "two"}', b"poison"])
    away, skipped = [True], []

    def put(record, reason):
        if away[0]:
            raise SourceError("the brokers took no dead letters in time; wait")
        skipped.append((record.offset, reason))

    source = source_of(topics, topic, format="jsonl", on_reject=put)
    assert read(source, 2)[0] == ["one"]
    for _ in range(2):
        with pytest.raises(SourceError, match="dead letters"):
            source.poll(10, 60.0)
        assert source.position()["offsets"] == {"0": 2}
    away[0] = False
    texts, rejects, _ = read(source, 3)
    assert texts == ["two"]
    assert [reject.record for reject in rejects] == [3, 5]
    assert skipped == [(2, "not-json"), (4, "not-json")]


def test_aborted_transactions_and_markers_are_blanks(topics, topic, source_of):
    topics.make(topic)
    for word, end in ((b"a", "commit"), (b"b", "abort"), (b"c", "commit")):
        topics.transact(topic, word, word, end=end)
    # Offsets 0 1 a, 2 marker, 3 4 b, 5 marker, 6 7 c, 8 marker (at the end, not seen yet).
    source = source_of(topics, topic)
    for max_records in (1000, 1):
        source.seek({**source.position(), "offsets": {"0": 0}})
        assert read(source, 8, max_records=max_records) == (["a", "a", "c", "c"], [], 4)
        assert source.position()["offsets"] == {"0": 8}


def test_an_open_transaction_lies_behind_the_end(topics, topic, source_of):
    topics.make(topic)
    topics.transact(topic, b"a", b"a")
    source = source_of(topics, topic)
    with topics.transaction(topic, b"b"):
        assert read(source, 2)[0] == ["a", "a"]
        wait_until(lambda: source.poll(10, 0.5).n_records or source.at_end())
        assert source.position()["offsets"] == {"0": 2}
    # The brokers write the end of a transaction after they have answered that it ended.
    wait_until(lambda: not source.at_end())
    # Behind them the mark of the first transaction is a blank.
    assert read(source, 2)[0] == ["b"]


@pytest.mark.long
def test_a_message_of_64_megabytes_is_read_or_skipped(topics, topic, source_of, letters_to):
    """It is larger than a fetch brings, too."""
    size = 64 * 2**20
    topics.make(topic, **{"max.message.bytes": str(size + 1000)})
    topics.send(topic, [b"before", b"x" * size, b"after"])
    letters = letters_to(topics, f"{topic}-dead")
    for limit, sizes, wrong in (
        (16 * 2**20, [6, 5], [Reject(f"{topic}/0", 2, "too-long")]),
        (size, [6, size, 5], []),
    ):
        source = source_of(topics, topic, max_document_bytes=limit, on_reject=letters.put)
        texts, rejects, _ = read(source, 3)
        assert ([len(text) for text in texts], rejects) == (sizes, wrong)
    letters.flush(60)
    (row,) = topics.read(f"{topic}-dead")
    assert json.loads(row.value)["bytes"] == size


def test_commit_shows_offsets_and_never_reads_them(topics, topic, source_of):
    topics.fill(topic, [b"one", b"two", b"three"])
    source = source_of(topics, topic, group=topic)
    read(source, 3)

    def shown():
        # The first group of a broker may have to wait for its coordinator.
        source.commit(source.position())
        source.poll(0, 0.5)
        entries = topics.admin.list_group_offsets([topic]).get(topic, {})
        return [entry.offset for entry in entries.values()] == [3]

    assert source.notes() == []
    wait_until(shown)
    assert source.notes() == [""]
    source.commit(source.position(), "a note", 60.0)
    assert source.notes() == ["a note"]
    again = source_of(topics, topic, group=topic)
    assert again.notes() == ["a note"]
    assert source_of(topics, topic).notes() == []
    assert read(again, 3)[0] == ["one", "two", "three"]


@pytest.mark.long
def test_tls_and_password_from_a_file_or_the_environment(
    broker, topics, topic, tmp_path, monkeypatch, source_of, letters_to
):
    topics.fill(topic, [b"one"])
    (tmp_path / "password").write_text(PASSWORD + "\n")
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", PASSWORD)
    user = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": USER}
    trusted = {**user, "ca_file": str(broker.certificate)}
    by_file = {"password_file": str(tmp_path / "password")}
    by_name = {"password_env": "TEST_KAFKA_PASSWORD"}
    secure = {"bootstrap_servers": broker.secure_bootstrap}
    for password in (by_file, by_name):
        secure["security"] = {**trusted, **password}
        assert read(source_of(topics, topic, **secure), 1)[0] == ["one"]
        assert PASSWORD not in repr(Security(**secure["security"]))
        put_letters(letters_to(topics, f"{topic}-letters", **secure), record(0))


SASL = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u"}
OAUTH = {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}
CLIENT = {**OAUTH, "username": "u", "password_env": "A"}


def test_source_refuses_before_it_connects():
    for options in (
        {"start": "middle"},
        {"format": "csv"},
        {"format": "text", "user_field": "u"},
        {"max_document_bytes": 0},
        {"security": {"protocol": "TLS"}},
        {"security": {**SASL, "mechanism": "NTLM", "password_env": "A"}},
        {"security": {**CLIENT, "token_endpoint": "http://there"}},
        {"security": {**CLIENT, "token_endpoint": "https://u:p@there"}},
        {"security": {**OAUTH, "token_file": "/no/such/token"}},
        {"security": {"ca_file": "ca.pem"}},
        {"security": {"username": "u"}},
        {"security": {"protocol": "SSL", "ca_file": "gone"}},
        {"security": {"protocol": "SSL", "certificate_file": __file__, "key_file": __file__}},
        {"format": "registry"},
        {"registry": {"url": "http://a:1"}},
        {"format": "registry", "registry": {"url": "localhost:8081"}},
        {"format": "registry", "registry": {"url": "http://a:1,http://b:1"}},
        {"format": "registry", "registry": {"url": "http://ann:hidden@a:1"}},
    ):
        with pytest.raises(InvalidSettingError, match=r"got |a user") as caught:
            KafkaSource("t", bootstrap_servers="127.0.0.1:1", **options)
        assert "hidden" not in str(caught.value)
