"""``streamlda site`` and ``streamlda aggregate``: three sites in three processes, and refusals."""

import json
import shutil
import stat
from itertools import count

import click
import pytest

from streamlda.cli.site import site as site_command
from streamlda.exit_codes import CONFIGURATION, DATA, USAGE
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.statement import check_statement
from streamlda.private.settings import PrivateSettings
from streamlda.sites.federation import FederationConfig
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from tests.cli.sites import (
    EVERY,
    SITES,
    aggregate_command,
    in_processes,
    made_at,
    make_config,
    share_command,
)
from tests.cli.test_cli import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made_at(tmp_path_factory.mktemp("sites"))


@pytest.fixture(scope="module")
def learned(folder):
    """Three sites, in processes in the first round, until there is a model: folder, rounds, log."""
    make_config(folder)
    to = folder / "run"
    to.mkdir()
    round_file, log = None, []
    for number in count(1):
        commands = [share_command(folder, to, site, round_file) for site in SITES]
        log += in_processes(commands) if number == 1 else [run(*c).stderr for c in commands]
        shares = [to / f"{site}.share" for site in SITES]
        kept = to / f"shares{number}"
        kept.mkdir()
        for share in shares:
            shutil.copy(share, kept)
        following = f"round{number + 1}"
        command = aggregate_command(folder, to, shares, round_file, following=following)
        log.append(run(*command).stderr)
        if (to / "model").exists():
            return to, number, log
        round_file = to / following


def test_three_sites_in_processes_learn_one_model_close_to_the_truth(folder, learned):
    to, rounds, _ = learned
    pooled = PrivateSettings(
        n_components=3,
        n_features=60,
        epsilon=4.0,
        delta=1e-6,
        documents_per_snapshot=EVERY,
    )
    assert rounds == len(pooled.stages)
    model = load(to / "model")
    truth = load(folder / "truth").components
    # Topics drawn from their prior are at about 1.
    assert matched_l1_error(truth, model.components).mean < 0.3
    check_statement(model.privacy)
    assert (model.privacy["epsilon"], model.privacy["delta"]) == (4.0, 1e-6)
    assert model.privacy["sites"]["n_sites"] == 3
    assert model.privacy["noise_multiplier"] == pytest.approx(pooled.noise_multiplier, rel=1e-3)
    assert "sites" in run("topics", to / "model", "--json").stdout


def test_each_site_has_paid_once_for_each_of_its_documents(learned):
    to, rounds, _ = learned
    for site, weight in SITES.items():
        report = json.loads(run("budget", to / f"{site}.ledger", "--json").stdout)
        assert [shot["state"] for shot in report["snapshots"]] == ["committed"] * rounds
        spans = [shot["documents"][0] for shot in report["snapshots"]]
        assert [span[1] for span in spans] == [0, *(span[2] for span in spans[:-1])]
        assert abs(spans[-1][2] - weight * EVERY) <= rounds
        assert report["spent"]["epsilon"] == pytest.approx(4, rel=1e-4)


def test_nothing_is_shown_of_the_documents(folder, learned):
    _, _, log = learned
    words = (folder / "words").read_text("ascii").split()
    for text in log:
        assert not set(text.split()) & set(words)
        assert "not-json" not in text


def test_keys_and_ledgers_are_for_their_owner(folder, learned):
    to, _, _ = learned
    for path in (folder / "east.key", to / "east.ledger", to / "east.ledger.shares"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077
    before = (folder / "east.key").read_bytes()
    told = run("site", "keygen", "east", "-o", folder / "east.key", code=2)
    assert "keys are never replaced" in told.stderr
    assert (folder / "east.key").read_bytes() == before


def test_the_config_says_what_colluders_could_learn(folder):
    told = make_config(folder, "told", colluders=1).stderr
    assert "helped by 0, 1, ... other sites: 4, 4, 5" in told
    assert "a document of another has epsilon 4." in told
    assert "--colluders 1" not in told


def test_a_config_without_colluders_says_what_one_site_has(folder):
    told = make_config(folder, "alone").stderr
    found = FederationConfig.load(folder / "alone").epsilon_against(1)
    assert found > 4.9
    said = float(told.split("a document of another has epsilon ")[1].split(".\n")[0])
    assert found <= said < found + 0.001
    assert "take --colluders 1 or more" in told


def test_another_ledger_does_not_give_a_second_share(folder, tmp_path):
    """The attack: two shares under one mask, whose difference shows documents under less noise."""
    make_config(folder)
    run(*share_command(folder, tmp_path, "east"))
    used = tmp_path / "east.key.used"
    assert (
        used.read_text("ascii")
        == Round.first(FederationConfig.load(folder / "config")).digest + "\n"
    )
    assert stat.S_IMODE(used.stat().st_mode) == 0o600
    first = (tmp_path / "east.share").read_bytes()
    command = share_command(folder, tmp_path, "east")
    command[command.index("--ledger") + 1] = str(tmp_path / "another.ledger")
    told = run(*command, code=CONFIGURATION).stderr
    assert "keys must mask one share of a round" in told
    assert (tmp_path / "east.share").read_bytes() == first
    report = json.loads(run("budget", tmp_path / "another.ledger", "--json").stdout)
    assert report["generation"] == 0
    # The stored share may be sent again.
    (tmp_path / "east.share").unlink()
    run(*share_command(folder, tmp_path, "east"))
    assert (tmp_path / "east.share").read_bytes() == first


def test_a_second_call_writes_the_same_share_and_reads_nothing(folder, learned, tmp_path):
    to, _, _ = learned
    for path in to.glob("north.ledger*"):
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / path.name)
    source = folder / "north.jsonl"
    source.rename(folder / "away")
    try:
        run(*share_command(folder, tmp_path, "north"))
    finally:
        (folder / "away").rename(source)
    found = (tmp_path / "north.share").read_bytes()
    assert found == (to / "shares1" / "north.share").read_bytes()


@pytest.fixture(scope="module")
def begun(folder, learned):
    """Return the shares of the first round and of the second, and what belongs to them."""
    to, _, _ = learned
    first = {site: to / "shares1" / f"{site}.share" for site in SITES}
    return to, first, to / "shares2"


def refused(folder, to, shares, told, code=CONFIGURATION, **options):
    """Check that shares are refused by name, and that nothing is written."""
    (to / "refused").mkdir(exist_ok=True)
    result = run(*aggregate_command(folder, to / "refused", shares, **options), code=code)
    assert told in result.stderr
    assert not list((to / "refused").iterdir())


def test_shares_that_do_not_fit_are_refused_by_name(folder, begun, tmp_path):
    to, first, second = begun
    east, north, south = first.values()
    refused(folder, to, [east, north], "some are missing, got sites='south' round=1")
    refused(folder, to, [east, north, south, north], "one has two, got site='north'")
    wrong = [east, second / "north.share", south]
    refused(folder, to, wrong, "its round is another, got site='north' found='2' expected='1'")
    refused(folder, to, first.values(), "found='1' expected='2'", round_file=to / "round2")
    data = bytearray(north.read_bytes())
    data[-1] ^= 1
    (tmp_path / "damaged").write_bytes(bytes(data))
    refused(folder, to, [east, tmp_path / "damaged", south], "whole and unaltered", code=DATA)
    share = Share.load(north)
    share.arrays["pair_norms"][3] += 1
    share.save(tmp_path / "altered")
    told = "as its site has signed it, and this one is another, got site='north'"
    refused(folder, to, [east, tmp_path / "altered", south], told, code=DATA)


def test_a_round_is_begun_again_when_a_share_was_lost(folder, tmp_path):
    make_config(folder)
    run(*share_command(folder, tmp_path, "east"))
    shutil.rmtree(tmp_path / "east.ledger.shares")
    result = run(*share_command(folder, tmp_path, "east"), code=CONFIGURATION)
    assert "lost and is paid for, got site='east' round=1 attempt=1" in result.stderr
    run("site", "redo", "--config", folder / "config", "-o", tmp_path / "again")
    assert Round.load(tmp_path / "again").attempt == 2
    run(*share_command(folder, tmp_path, "east", tmp_path / "again"))
    assert Share.load(tmp_path / "east.share").attempt == 2


@pytest.mark.parametrize(
    ("changes", "told", "code"),
    [
        ({"weights": "0.5,0.5"}, "every site must have a weight", USAGE),
        ({"weights": "much"}, "is not a list of numbers", USAGE),
        ({"vocabulary": None}, "words must be public", USAGE),
        ({"epsilon": None, "delta": None}, "must agree on it: set --epsilon", USAGE),
        ({"delta": None}, "--delta must be set with --epsilon", CONFIGURATION),
        ({"snapshot-every": None}, "must agree on it: set --snapshot-every", USAGE),
        ({"alpha-0": -1}, "--alpha-0 must be > 0", CONFIGURATION),
        ({"hash-bits": 6}, "--vocabulary goes with", CONFIGURATION),
        ({"weights": "0.5,0.3,0.3"}, "weights of all sites must sum to 1", CONFIGURATION),
        ({"colluders": 3}, "colluders=3 sites=3", CONFIGURATION),
    ],
)
def test_bad_configs_are_refused(folder, tmp_path, changes, told, code):
    result = make_config(folder, "bad", code=code, **changes)
    assert told in result.stderr
    assert not (folder / "bad").exists()


def test_outputs_that_would_replace_inputs_are_refused(folder, begun):
    to, first, _ = begun
    shares = list(first.values())
    command = ["aggregate", *shares, "--config", folder / "config"]
    for outputs in (
        ("--next-round", to / "same", "-o", to / "same"),
        ("--next-round", folder / "config", "-o", to / "m"),
    ):
        told = run(*command, *outputs, code=CONFIGURATION).stderr
        assert "must not replace what is read, or another output" in told


def test_a_share_is_not_written_over_the_ledger(folder, tmp_path):
    command = share_command(folder, tmp_path, "east")
    command[-1] = str(tmp_path / "east.ledger")
    assert "or another output" in run(*command, code=CONFIGURATION).stderr


def test_every_command_and_option_has_help():
    assert list(site_command.commands) == ["keygen", "config", "share", "redo"]
    for command in (site_command, *site_command.commands.values()):
        assert command.help
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.help, parameter.opts
