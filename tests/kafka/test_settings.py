"""Which settings are taken, TLS with a password on a real broker, and the pinned files."""

import os
import shutil
from pathlib import Path

import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda_connectors.kafka import KafkaSource, Security, SnapshotTopic
from streamlda_connectors.kafka.share import Share
from tests.kafka.broker import PASSWORD, USER
from tests.kafka.jars import BrokerUnavailable, kafka_jars, pinned, wrong_files
from tests.kafka.topics import read


def test_tls_and_password_from_a_file_or_the_environment(
    broker, own_topics, topic, tmp_path, monkeypatch
):
    own_topics.fill(topic, [b"one"])
    (tmp_path / "password").write_text(PASSWORD + "\n")
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", PASSWORD)
    user = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": USER}
    options = {"bootstrap_servers": broker.secure_bootstrap, "format": "text"}
    trusted = {**user, "ca_file": str(broker.certificate)}
    for place in (
        {"password_file": str(tmp_path / "password")},
        {"password_env": "TEST_KAFKA_PASSWORD"},
    ):
        source = KafkaSource(topic, security={**trusted, **place}, **options)
        assert read(source, 1)[0] == ["one"]
        source.close()
        assert PASSWORD not in repr(Security(**trusted, **place))
        snapshots = SnapshotTopic(
            f"{topic}-snapshots",
            bootstrap_servers=broker.secure_bootstrap,
            security={**trusted, **place},
        )
        snapshots.publish("1", b"one", {})
        snapshots.close()
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", "wrong secret")
    wrong = {"password_env": "TEST_KAFKA_PASSWORD"}
    for security in ({**trusted, **wrong}, {**user, "password_file": str(tmp_path / "password")}):
        with pytest.raises(SourceError, match="must be reachable") as caught:
            KafkaSource(topic, security=security, request_timeout_seconds=2.0, **options)
        assert "wrong secret" not in str(caught.value)
        assert PASSWORD not in str(caught.value)


SASL = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": "TLS"},
        {**SASL, "mechanism": "NTLM", "password_env": "A"},
        SASL,
        {**SASL, "password_env": "A", "password_file": "b"},
        {**SASL, "username": "", "password_env": "A"},
        {"username": "u"},
        {"password_env": "A"},
        {"ca_file": "ca.pem"},
        {"protocol": "SSL", "certificate_file": "c.pem"},
        {"protocol": "SSL", "key_password_env": "A"},
    ],
)
def test_security_refuses(wrong):
    with pytest.raises(InvalidSettingError, match="got "):
        Security(**wrong)


def test_a_secret_is_read_when_it_is_needed(tmp_path):
    security = Security(**SASL, password_file=str(tmp_path / "missing"))
    with pytest.raises(InvalidSettingError, match="secret must be readable"):
        security.password()


@pytest.mark.parametrize(
    "options",
    [
        {"start": "middle"},
        {"format": "csv"},
        {"format": "text", "user_field": "u"},
        {"max_document_bytes": 0},
        {"partitions": "2/2"},
        {"partitions": "1"},
        {"partitions": []},
        {"partitions": [-1]},
        {"fetch_max_bytes": 0},
        {"refresh_seconds": float("nan")},
        {"password": "never here"},
        {"security": {"password": "never here"}},
    ],
)
def test_source_refuses_before_it_connects(options):
    with pytest.raises(InvalidSettingError) as caught:
        KafkaSource("t", bootstrap_servers="127.0.0.1:1", **options)
    assert "never here" not in str(caught.value)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_shares_are_disjoint_and_whole(n):
    known = set(range(20))
    shares = [Share(f"{i}/{n}").of(known) for i in range(n)]
    assert sorted(number for share in shares for number in share) == sorted(known)


@pytest.mark.real_broker
def test_altered_jars_are_refused(tmp_path):
    jars = kafka_jars()
    wanted = pinned((Path(__file__).parent / "jars.sha256").read_text("utf-8"))
    assert wrong_files(jars, wanted) == []
    copy = tmp_path / jars.name
    shutil.copytree(jars, copy, copy_function=os.symlink)
    altered = sorted(copy.iterdir())[0]
    altered.unlink()
    altered.write_bytes(b"something else")
    sorted(copy.iterdir())[1].unlink()
    (copy / "extra.jar").write_bytes(b"")
    with pytest.raises(BrokerUnavailable, match=f"{altered.name}.*extra.jar"):
        kafka_jars(tmp_path)
