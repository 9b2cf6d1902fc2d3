"""Shares by way of a Kafka topic: three sites and a model, refusals, a broker that is away.

Which records of a topic are refused, and as what, is tested in tests/sites/test_exchange.py.
"""

import json
import subprocess
import sys
import time

import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.statement import check_statement
from streamlda.sites.federation import FederationConfig
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.sites.site import ShareAccumulator, Site
from streamlda.utils.exit_codes import CONFIGURATION, DATA, IO, USAGE
from tests.cli.sites import (
    SITES,
    aggregate_command,
    begun,
    made_at,
    make_config,
    share_command,
    sign_command,
)
from tests.cli.test_cli import run
from tests.kafka.broker import PASSWORD, USER, free_ports
from tests.kafka.test_rounds import in_turns

WORST_CASE = "privacy.clipping=worst-case"


def to_topic(bootstrap, topic, *more):
    return ("--kafka-bootstrap", bootstrap, "--kafka-topic", topic, *more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = made_at(tmp_path_factory.mktemp("sites"))
    make_config(folder, "config", WORST_CASE)
    return folder


@pytest.fixture
def signed(folder, tmp_path):
    """Let all sites sign the config, with keys at tmp_path, and begin its first round."""
    begun(folder, tmp_path)


def left_in(folder):
    """Return what commands have written there beside the signatures."""
    kept = {".key", ".rounds", ".signed"}
    paths = (path for path in folder.iterdir() if path.name != "round1")
    return [path for path in paths if path.suffix not in kept]


@pytest.mark.long
def test_three_sites_and_one_topic_give_the_model_that_files_give(folder, topics, topic, tmp_path):
    make_config(folder, "generous", WORST_CASE, epsilon=12, delta="1e-4")
    by_topic, by_file = tmp_path / "topic", tmp_path / "file"
    by_topic.mkdir()
    by_file.mkdir()
    to = to_topic(topics.bootstrap, topic)
    options = {"config": "generous"}
    for site in SITES:
        command = sign_command(folder, by_file, site, **options)
        assert f"topic {topic}" in run(*command, *to).stderr
    round_file, hub = by_topic / "round1", ("--key", folder / "hub.key")
    run("site", "begin", "--config", folder / "generous", *hub, "-o", round_file, *to)
    announced = [by_file / f"{site}.signed" for site in SITES]
    config = ("--config", folder / "generous")
    run("site", "begin", *announced, *config, *hub, "-o", by_file / "round1")
    assert round_file.read_bytes() == (by_file / "round1").read_bytes()
    for number in (1, 2):
        for site in SITES:
            command = share_command(folder, by_file, site, round_file, **options)
            assert f"topic {topic}" in run(*command, *to).stderr
        # What was there before is no matter, and a share that comes twice is one.
        run(*command[:-2], *to)
        given = {"round_file": round_file, "following": f"round{number + 1}", **options}
        printed = run(*aggregate_command(folder, by_topic, (), **given), *to).stderr
        of_others = "7 records" if number == 2 else "3 records"
        assert f"{of_others} of other rounds skipped in topic {topic}" in printed
        shares = [by_file / f"{site}.share" for site in SITES]
        run(*aggregate_command(folder, by_file, shares, **given))
        if number == 1:
            round_file = by_topic / "round2"
            assert round_file.read_bytes() == (by_file / "round2").read_bytes()
    model = load(by_topic / "model")
    # Dates differ, nothing else.
    assert model.components.tobytes() == load(by_file / "model").components.tobytes()
    assert matched_l1_error(load(folder / "truth").components, model.components).mean < 0.3
    check_statement(model.privacy)
    assert model.privacy["sites"]["n_sites"] == 3
    rows = topics.read(topic)
    assert [row.key.decode().partition("/")[0] for row in rows] == [*SITES, *[*SITES, "south"] * 2]
    assert rows[5].value == rows[6].value
    assert dict(rows[-1].headers)["streamlda.round"] == b"2"


def test_a_share_that_is_too_large_is_kept_and_sent_when_it_fits(
    signed, folder, topics, topic, tmp_path
):
    topics.make(topic, **{"max.message.bytes": "2000"})
    command = (*share_command(folder, tmp_path, "north")[:-2], *to_topic(topics.bootstrap, topic))
    printed = run(*command, code=IO).stderr
    assert f"a share must fit into one message, got topic={topic!r} bytes=" in printed
    assert "limit=2000; raise max.message.bytes" in printed
    topics.change(topic, **{"max.message.bytes": "2000000"})
    source = folder / "north.jsonl"
    source.rename(folder / "away")
    try:
        run(*command)
    finally:
        (folder / "away").rename(source)
    (row,) = topics.read(topic)
    assert Share.parse(row.value, "here").site == "north"
    report = json.loads(run("budget", tmp_path / "north.ledger", "--json").stdout)
    assert [shot["state"] for shot in report["snapshots"]] == ["committed"]


@pytest.mark.long
def test_nothing_is_spent_where_no_share_can_be_sent(
    signed, folder, topics, topic, tmp_path, monkeypatch
):
    # Of no use here, and so not in the way.
    monkeypatch.setenv("STREAMLDA_KAFKA_PASSWORD", PASSWORD)
    topics.make(topic, **{"cleanup.policy": "compact"})
    nobody = to_topic(f"127.0.0.1:{free_ports(1)[0]}", topic)
    share = share_command(folder, tmp_path, "north")
    for command, to, rule in (
        (share, nobody, "the brokers must be reachable"),
        (share, to_topic(topics.bootstrap, topic), "must keep all of them"),
        (
            aggregate_command(folder, tmp_path, (), tmp_path / "round1"),
            nobody,
            "the brokers must be reachable",
        ),
    ):
        assert rule in run(*command, *to, code=IO).stderr
        assert left_in(tmp_path) == []


def test_too_few_documents_send_nothing(signed, folder, topics, topic, tmp_path):
    (tmp_path / "few.jsonl").write_text('{"text": "a few words"}\n', "ascii")
    command = share_command(folder, tmp_path, "south")
    command[2] = str(tmp_path / "few.jsonl")
    printed = run(*command, *to_topic(topics.bootstrap, topic), code=DATA).stderr
    assert "got site='south' slots=1 expected=" in printed
    assert topics.read(topic) == []
    assert not (tmp_path / "south.share").exists()


@pytest.mark.long
@pytest.mark.real_broker
def test_tls_and_a_password_in_a_file_or_the_environment(
    signed, folder, broker, own_topics, topic, tmp_path, monkeypatch
):
    (tmp_path / "password").write_text(PASSWORD + "\n")
    more = to_topic(
        *(broker.secure_bootstrap, topic, "kafka.protocol=SASL_SSL"),
        *("kafka.mechanism=PLAIN", f"kafka.username={USER}"),
        f"kafka.ca_file={broker.certificate}",
    )
    by_file = (f"kafka.password_file={tmp_path / 'password'}",)
    for site in SITES:
        run(*share_command(folder, tmp_path, site)[:-2], *more, *by_file)
    printed = run(*share_command(folder, tmp_path, "east")[:-2], *more, code=CONFIGURATION).stderr
    assert "kafka.username and kafka.password must be set for SASL" in printed
    (tmp_path / "out").mkdir()
    aggregate = aggregate_command(folder, tmp_path / "out", (), tmp_path / "round1")
    monkeypatch.setenv("STREAMLDA_KAFKA_PASSWORD", PASSWORD)
    run(*aggregate, *more)
    assert (tmp_path / "out" / "next").exists()
    monkeypatch.setenv("STREAMLDA_KAFKA_PASSWORD", "wrong secret")
    printed = run(*aggregate, *more, code=CONFIGURATION).stderr
    assert "must accept the login" in printed
    assert "wrong secret" not in printed


def test_options_that_do_not_go_together_are_refused(signed, folder, tmp_path):
    command = share_command(folder, tmp_path, "north")
    both = "--kafka-bootstrap and --kafka-topic must both be set"
    shares = [tmp_path / f"{site}.share" for site in SITES]
    one_way = aggregate_command(folder, tmp_path, shares, tmp_path / "round1")
    sign = sign_command(folder, tmp_path, "east")
    begin = ("site", "begin", "--config", folder / "config", "--key", folder / "hub.key")
    begin += ("-o", tmp_path / "again")
    certificate = to_topic("127.0.0.1:1", "t", "kafka.ca_file=c.pem")
    for arguments, rule, code in (
        ((*command, "--kafka-topic", "t"), both, CONFIGURATION),
        ((*command, "kafka.protocol=SSL"), both, CONFIGURATION),
        (command[:-2], "a share must go somewhere", USAGE),
        (
            aggregate_command(folder, tmp_path, (), tmp_path / "round1"),
            "messages must come one way",
            USAGE,
        ),
        ((*one_way, *to_topic("127.0.0.1:1", "t")), "messages must come one way", USAGE),
        (sign[:-2], "an announcement must go somewhere", USAGE),
        (begin, "messages must come one way", USAGE),
        ((*command, *certificate), "certificates are for the TLS protocols only", CONFIGURATION),
    ):
        assert rule in run(*arguments, code=code).stderr
    assert left_in(tmp_path) == []


# Each site reads its partitions of one topic.

N_PARTITIONS = 6
#: Of each, more than the largest site needs.
OFFSETS = 2500


def partitions_of(folder):
    """Return values of each partition: the records of all sites by turns, and some of none."""
    lines = b"".join((folder / f"{site}.jsonl").read_bytes() for site in SITES).splitlines(True)
    return [
        [None if i % 50 == 0 else value for i, value in enumerate(lines[number::N_PARTITIONS])]
        for number in range(N_PARTITIONS)
    ]


def from_topic(folder, to, site, topics, topic, round_file):
    command = share_command(folder, to, site, round_file, "streams")
    source = command.index(str(folder / f"{site}.jsonl"))
    records = ["--records-topic", topic, "--kafka-bootstrap", topics.bootstrap]
    return [*command[:source], *records, *command[source + 1 :]]


def slots_of(to, site):
    """Return the ranges of each log that each release of a site's ledger has."""
    report = json.loads(run("budget", to / f"{site}.ledger", "--json").stdout)
    assert {shot["state"] for shot in report["snapshots"]} == {"committed"}
    return [
        {int(stream.rpartition("/")[2]): (start, stop) for stream, start, stop in shot["documents"]}
        for shot in report["snapshots"]
    ]


def sums_of(config, round_file, site, values):
    """Return the raw sums of some values of records, one a slot."""
    accumulator = ShareAccumulator(Round.load(round_file), config, site, 0, len(values))
    texts = [json.loads(v)["text"] if v is not None and v[-2:] == b"}\n" else "" for v in values]
    accumulator.add(config.vocabulary.encode(texts).batch)
    return accumulator.sums()


@pytest.mark.long
def test_daemons_of_one_topic_are_sites_of_one_promise(
    folder, topics, topic, tmp_path, monkeypatch
):
    """Each is killed while it reads; no offset is in two shares, of whatever site or round."""
    summed = []
    publish = Site.publish

    def noting(at_work, accumulator):
        summed.append(accumulator.sums())
        return publish(at_work, accumulator)

    monkeypatch.setattr(Site, "publish", noting)
    make_config(folder, "streams", WORST_CASE, epsilon=12, delta="1e-4")
    config = FederationConfig.load(folder / "streams")
    round_file = begun(folder, tmp_path, "streams")
    sent = partitions_of(folder)
    topics.fill(topic, *(values[:100] for values in sent))
    commands = [from_topic(folder, tmp_path, site, topics, topic, round_file) for site in SITES]
    program = [sys.executable, "-m", "streamlda"]
    waiting = [subprocess.Popen([*program, *map(str, command)]) for command in commands]
    # What they are to have is not there yet.
    time.sleep(4)
    for process in waiting:
        process.kill()
        assert process.wait() < 0
    for number, values in enumerate(sent):
        topics.send(topic, values[100:], number)
    begins = dict.fromkeys(range(N_PARTITIONS), 0)
    for number in (1, 2):
        for place, site in enumerate(sorted(SITES)):
            command = from_topic(folder, tmp_path, site, topics, topic, round_file)
            run(*command)
            released = slots_of(tmp_path, site)
            assert len(released) == number
            assert set(released[-1]) == {place, place + 3}
            n_slots = sum(stop - start for start, stop in released[-1].values())
            own = {n: begins[n] for n in released[-1]}
            order = in_turns(own, dict.fromkeys(own, OFFSETS), 64)[:n_slots]
            for n, (start, stop) in released[-1].items():
                assert [at for m, at in order if m == n] == list(range(start, stop))
                begins[n] = stop
            wanted = sums_of(config, round_file, site, [sent[n][at] for n, at in order])
            found = summed.pop()
            assert not summed
            assert {k: v.tolist() for k, v in found.items()} == {
                k: v.tolist() for k, v in wanted.items()
            }
        shares = [tmp_path / f"{site}.share" for site in SITES]
        given = {"round_file": round_file, "config": "streams", "following": f"round{number + 1}"}
        run(*aggregate_command(folder, tmp_path, shares, **given))
        round_file = tmp_path / "round2"
    model = load(tmp_path / "model")
    check_statement(model.privacy)
    assert matched_l1_error(load(folder / "truth").components, model.components).mean < 0.3
