"""Three sites that each read their partitions of one topic."""

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
from streamlda.sites.site import ShareAccumulator, Site
from tests.cli.sites import SITES, aggregate_command, begun, made_at, make_config, share_command
from tests.cli.test_cli import run
from tests.kafka.test_rounds import in_turns

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
def test_daemons_of_one_topic_are_sites_of_one_promise(topics, topic, tmp_path, monkeypatch):
    """Each is killed while it reads; no offset is in two shares, of whatever site or round."""
    summed = []
    publish = Site.publish

    def noting(at_work, accumulator):
        summed.append(accumulator.sums())
        return publish(at_work, accumulator)

    monkeypatch.setattr(Site, "publish", noting)
    folder = made_at(tmp_path / "sites")
    make_config(folder, "streams", "privacy.clipping=worst-case", epsilon=12, delta="1e-4")
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
