"""``streamlda site`` and ``streamlda aggregate``: three sites in three processes, and refusals."""

import json
import shutil
import stat

import pytest

from streamlda.exit_codes import CONFIGURATION, DATA, USAGE
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.statement import check_statement
from streamlda.private.settings import PrivateSettings
from streamlda.sites.federation import FederationConfig
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from tests.cli import sites
from tests.cli.sites import EVERY, SITES, aggregate_command, make_config, share_command
from tests.cli.test_cli import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = sites.made_at(tmp_path_factory.mktemp("sites"))
    make_config(folder)
    return folder


@pytest.fixture(scope="module")
def learned(folder):
    """Three sites, in processes in the first round, until there is a model: folder, rounds, log."""
    to = folder / "run"
    to.mkdir()
    round_file, log = None, []
    for number in range(1, 9):
        commands = [share_command(folder, to, site, round_file) for site in SITES]
        log += sites.in_processes(commands) if number == 1 else [run(*c).stderr for c in commands]
        (to / f"shares{number}").mkdir()
        shares = [shutil.copy(to / f"{site}.share", to / f"shares{number}") for site in SITES]
        following = f"round{number + 1}"
        command = aggregate_command(folder, to, shares, round_file, following=following)
        log.append(run(*command).stderr)
        round_file = to / following
        if (to / "model").exists():
            return to, number, log


def test_three_sites_in_processes_learn_one_model_close_to_the_truth(folder, learned):
    to, rounds, log = learned
    pooled = PrivateSettings(
        n_components=3, n_features=60, epsilon=4.0, delta=1e-6, documents_per_snapshot=EVERY
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
    # Nothing is shown of the documents.
    words = (folder / "words").read_text("ascii").split()
    for text in log:
        assert not set(text.split()) & set(words)
        assert "not-json" not in text
    # Each site has paid once for each of its documents.
    for site, weight in SITES.items():
        report = json.loads(run("budget", to / f"{site}.ledger", "--json").stdout)
        assert [shot["state"] for shot in report["snapshots"]] == ["committed"] * rounds
        spans = [shot["documents"][0] for shot in report["snapshots"]]
        assert [span[1] for span in spans] == [0, *(span[2] for span in spans[:-1])]
        assert abs(spans[-1][2] - weight * EVERY) <= rounds
        assert report["spent"]["epsilon"] == pytest.approx(4, rel=1e-4)
    # Keys and ledgers are for their owner.
    for path in (folder / "east.key", to / "east.ledger", to / "east.ledger.shares"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077
    before = (folder / "east.key").read_bytes()
    message = run("site", "keygen", "east", "-o", folder / "east.key", code=2).stderr
    assert "keys are never replaced" in message
    assert (folder / "east.key").read_bytes() == before


def test_the_config_says_what_colluders_and_one_site_could_learn(folder):
    message = make_config(folder, "wary", colluders=1).stderr
    assert "helped by 0, 1, ... other sites: 4, 4, 5" in message
    assert "a document of another has epsilon 4." in message
    assert "--colluders 1" not in message
    message = make_config(folder, "alone").stderr
    found = FederationConfig.load(folder / "alone").epsilon_against(1)
    stated = float(message.split("a document of another has epsilon ")[1].split(".\n")[0])
    assert 4.9 < found <= stated < found + 0.001
    assert "take --colluders 1 or more" in message


def test_another_ledger_does_not_give_a_second_share(folder, tmp_path):
    """The attack: two shares under one mask, whose difference shows documents under less noise."""
    command = share_command(folder, tmp_path, "east")
    run(*command)
    share, used = tmp_path / "east.share", tmp_path / "east.key.used"
    this = Round.first(FederationConfig.load(folder / "config"))
    assert used.read_text("ascii") == this.digest + "\n"
    assert stat.S_IMODE(used.stat().st_mode) == 0o600
    first = share.read_bytes()
    ledger = command.index("--ledger") + 1
    other = [*command[:ledger], str(tmp_path / "other.ledger"), *command[ledger + 1 :]]
    assert "keys must mask one share of a round" in run(*other, code=CONFIGURATION).stderr
    assert share.read_bytes() == first
    report = json.loads(run("budget", tmp_path / "other.ledger", "--json").stdout)
    assert report["generation"] == 0
    # The stored share may be sent again, and nothing is read for it.
    command[command.index(str(folder / "east.jsonl"))] = str(tmp_path / "away.jsonl")
    share.write_bytes(b"")
    run(*command)
    assert share.read_bytes() == first


def test_shares_that_do_not_fit_are_refused_by_name(folder, learned, tmp_path):
    to, _, _ = learned
    east, north, south = shares = [to / "shares1" / f"{site}.share" for site in SITES]
    (tmp_path / "out").mkdir()

    def refused(shares, message, code=CONFIGURATION, **options):
        command = aggregate_command(folder, tmp_path / "out", shares, **options)
        assert message in run(*command, code=code).stderr
        assert not list((tmp_path / "out").iterdir())

    refused([east, north], "some are missing, got sites='south' round=1")
    refused([east, north, south, north], "one has two, got site='north'")
    later = to / "shares2" / "north.share"
    message = "its round is another, got site='north' found='2' expected='1'"
    refused([east, later, south], message)
    refused(shares, "found='1' expected='2'", round_file=to / "round2")
    changed = tmp_path / "changed"
    changed.write_bytes(north.read_bytes()[:-1])
    refused([east, changed, south], "whole and unaltered", DATA)
    share = Share.load(north)
    share.arrays["pair_norms"][3] += 1
    share.save(changed)
    message = "as its site has signed it, and this one is another, got site='north'"
    refused([east, changed, south], message, DATA)


def test_a_round_is_begun_again_when_a_share_was_lost(folder, tmp_path):
    run(*share_command(folder, tmp_path, "east"))
    shutil.rmtree(tmp_path / "east.ledger.shares")
    result = run(*share_command(folder, tmp_path, "east"), code=CONFIGURATION)
    assert "lost and is paid for, got site='east' round=1 attempt=1" in result.stderr
    run("site", "redo", "--config", folder / "config", "-o", tmp_path / "again")
    run(*share_command(folder, tmp_path, "east", tmp_path / "again"))
    assert Share.load(tmp_path / "east.share").attempt == 2


@pytest.mark.parametrize(
    ("changes", "message", "code"),
    [
        ({"weights": "0.5,0.5"}, "every site must have a weight", USAGE),
        ({"weights": "much"}, "is not a list of numbers", USAGE),
        ({"vocabulary": None}, "words must be public", USAGE),
        ({"epsilon": None, "delta": None}, "must agree on it: set --epsilon", USAGE),
        ({"snapshot-every": None}, "must agree on it: set --snapshot-every", USAGE),
        ({"colluders": 3}, "colluders=3 sites=3", CONFIGURATION),
    ],
)
def test_bad_configs_are_refused(folder, changes, message, code):
    assert message in make_config(folder, "bad", code=code, **changes).stderr
    assert not (folder / "bad").exists()


def test_outputs_that_would_replace_inputs_are_refused(folder, tmp_path):
    command = ["aggregate", tmp_path / "east.share", "--config", folder / "config"]
    over_ledger = share_command(folder, tmp_path, "east")
    over_ledger[-1] = str(tmp_path / "east.ledger")
    for wrong in (
        (*command, "--next-round", tmp_path / "same", "-o", tmp_path / "same"),
        (*command, "--next-round", folder / "config", "-o", tmp_path / "m"),
        over_ledger,
    ):
        assert "or another output" in run(*wrong, code=CONFIGURATION).stderr
