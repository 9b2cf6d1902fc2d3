"""``streamlda site`` and ``streamlda aggregate``: three sites, and refusals."""

import gzip
import json
import shutil
import stat

import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import LedgerReader
from streamlda.privacy.statement import check_statement
from streamlda.private.settings import PrivateSettings
from streamlda.sites.announcement import Announcement, RoundKeys
from streamlda.sites.federation import FederationConfig
from streamlda.sites.keys import SiteKey
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.utils.exit_codes import CONFIGURATION, DATA, USAGE
from tests.cli.conftest import plant, run
from tests.sites.protocol import HUB, config_of, settings_of

SITES = {"east": 0.2, "north": 0.3, "south": 0.5}

#: Record slots of all sites together, and records of each, which is more than it needs.
EVERY, RECORDS = 9000, 5000


def make_config(folder, name="config", *more, code=0, **changes):
    options = {"-k": 3, "--epsilon": 4, "--delta": "1e-6", "--snapshot-every": EVERY}
    options |= {"--vocabulary": folder / "words", "--snapshots": 1}
    options["--set"] = "vocabulary.stop_words=none"
    options |= {"--weights": ",".join(map(str, SITES.values())), "--label": "test"}
    options |= {f"--{key}": value for key, value in changes.items()}
    given = [part for pair in options.items() if pair[1] is not None for part in pair]
    keys = [folder / f"{site}.key.pub" for site in SITES]
    hub = ("--aggregator", folder / "hub.key.pub")
    return run("site", "config", *keys, *hub, "-o", folder / name, *given, *more, code=code)


#: Sites of the tests know each other: what is left if all others collude is another matter.
KNOWN = ("--max-epsilon-alone", "inf")


def sign_command(folder, to, site, config="config", **changes):
    """Return the arguments of one site's signature, TO/SITE.signed, with a key there."""
    digest = FederationConfig.load(folder / config).digest
    options = {"--expect": digest, "--max-epsilon-alone": "inf", "--output": to / f"{site}.signed"}
    options |= {f"--{name}": value for name, value in changes.items()}
    given = [part for pair in options.items() if pair[1] is not None for part in pair]
    return ["site", "sign", folder / config, "--key", own_key(folder, to, site), *given]


def sign_and_begin(folder, to, config="config"):
    """Let all sites sign, with keys at TO, and return the file of the first round."""
    for site in SITES:
        run(*sign_command(folder, to, site, config))
    return begin(folder, to, "signed", to / "round1", config=config)


def begin(folder, to, suffix, output, *more, config="config"):
    """Return the file of the round that the hub makes of all announcements TO/SITE.SUFFIX."""
    announced = [to / f"{site}.{suffix}" for site in SITES]
    hub = ("--config", folder / config, "--key", folder / "hub.key")
    run("site", "begin", *announced, *hub, "-o", output, *more)
    return output


def own_key(folder, to, site):
    """Return the site's key at TO, which is copied there before its first use."""
    key = to / f"{site}.key"
    if not key.exists():
        shutil.copy(folder / key.name, key)
    return key


def share_command(folder, to, site, round_file=None, config="config", records=None, ledger=None):
    """Return the arguments of one site's share, which goes to TO/SITE.share, with a key there."""
    command = (
        *("site", "share", records or folder / f"{site}.jsonl", "--config", folder / config),
        *(*KNOWN, "--round", round_file or to / "round1", "--key", own_key(folder, to, site)),
        *("--ledger", ledger or to / f"{site}.ledger", "-o", to / f"{site}.share"),
    )
    return [str(part) for part in command]


def aggregate_command(folder, to, shares, round_file, config="config", following="next"):
    outputs = ("--next-round", to / following, "-o", to / "model")
    hub = ("--key", folder / "hub.key", "--round", round_file)
    return ("aggregate", *shares, "--config", folder / config, *hub, *outputs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records of each site (every tenth is none), their words, keys and config."""
    folder = tmp_path_factory.mktemp("sites")
    plant(folder / "all.jsonl", RECORDS * len(SITES), 60, truth=folder / "truth")
    lines = (folder / "all.jsonl").read_text("ascii").splitlines(keepends=True)
    for number, name in enumerate(SITES):
        own = lines[number * RECORDS : (number + 1) * RECORDS]
        own[::10] = ["{\n"] * len(own[::10])
        (folder / f"{name}.jsonl").write_text("".join(own), "ascii")
        run("site", "keygen", name, "-o", folder / f"{name}.key")
    run("site", "keygen", "hub", "-o", folder / "hub.key")
    make_config(folder)
    return folder


@pytest.mark.long
def test_three_sites_learn_one_model_close_to_the_truth(folder, tmp_path):
    sizes = {"n_components": 3, "n_features": 60, "documents_per_snapshot": EVERY}
    pooled = PrivateSettings(**sizes, epsilon=4.0, delta=1e-6)
    to, rounds, round_file, log = tmp_path, len(pooled.stages), sign_and_begin(folder, tmp_path), []
    for number in range(1, rounds + 1):
        commands = [share_command(folder, to, site, round_file) for site in SITES]
        log += [run(*command).stderr for command in commands]
        assert not (to / "model").exists()
        shares, following = [to / f"{site}.share" for site in SITES], f"next{number}"
        command = aggregate_command(folder, to, shares, round_file, following=following)
        log.append(run(*command).stderr)
        round_file = to / following
    assert f"model: {to / 'model'}" in log[-1]
    found = load(to / "model")
    truth = load(folder / "truth").components
    # Topics drawn from their prior are at about 1.
    assert matched_l1_error(truth, found.components).mean < 0.3
    check_statement(found.privacy)
    assert (found.privacy["epsilon"], found.privacy["delta"]) == (4.0, 1e-6)
    assert found.privacy["sites"]["n_sites"] == 3
    assert found.privacy["noise_multiplier"] == pytest.approx(pooled.noise_multiplier, rel=1e-3)
    assert "sites" in run("topics", to / "model", "--json").stdout
    words = (folder / "words").read_text("ascii").split()
    for text in log:
        assert not set(text.split()) & set(words)
        assert "not-json" not in text
    for site, weight in SITES.items():
        report = json.loads(run("budget", to / f"{site}.ledger", "--json").stdout)
        assert [shot["state"] for shot in report["snapshots"]] == ["committed"] * rounds
        spans = [shot["documents"][0] for shot in report["snapshots"]]
        assert [span[1] for span in spans] == [0, *(span[2] for span in spans[:-1])]
        assert abs(spans[-1][2] - weight * EVERY) <= rounds
        assert report["spent"]["epsilon"] == pytest.approx(4, rel=1e-3)
    for path in (folder / "east.key", to / "east.ledger", to / "east.ledger.releases"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077
    before = (folder / "east.key").read_bytes()
    message = run("site", "keygen", "east", "-o", folder / "east.key", code=2).stderr
    assert "keys are never replaced" in message
    assert (folder / "east.key").read_bytes() == before


def test_the_config_says_what_colluders_and_one_site_could_learn(folder):
    message = make_config(folder, "wary", colluders=1).stderr
    assert "one insider  epsilon 4:" in message
    assert "a document of another has epsilon 4." in message
    assert "--colluders 1" not in message
    message = make_config(folder, "alone").stderr
    found = FederationConfig.load(folder / "alone").epsilon_against(1)
    stated = float(message.split("a document of another has epsilon ")[1].split(".\n")[0])
    assert 4.9 < found <= stated < found + 0.001
    assert "take --colluders 1 or more" in message


def test_show_says_what_a_site_signs(folder):
    config = FederationConfig.load(folder / "config")
    shown = run("site", "show", folder / "config").stdout
    for part in (
        f"digest       {config.digest}\n",
        "sites        3\n",
        *(f"  {m.name}: weight {m.weight!r}, key {m.key.fingerprint}\n" for m in config.members),
        f"aggregator   hub: {config.aggregator.fingerprint}\n",
        "promise      epsilon 4, delta 1e-06 for each document, against the aggregator and 0 ",
        f"alone        epsilon {config.epsilon_alone:.4g} at delta 1e-06: if all others collude",
    ):
        assert part in shown
    # It is what keygen showed at the site, too.
    key = config.member("east").key
    run("site", "keygen", "west", "-o", folder / "west.key")
    assert key.fingerprint in shown


def test_nothing_is_signed_or_shared_unseen(folder, tmp_path):
    """The attack: a config of a stranger is answered at first sight."""
    sign_and_begin(folder, tmp_path)
    make_config(folder, "other", label="other")
    ledger, of_other = tmp_path / "east.ledger", folder / "other"
    digest = FederationConfig.load(of_other).digest
    for command, message in (
        (sign_command(folder, tmp_path, "east", expect="0" * 64), "the one that you expect"),
        (sign_command(folder, tmp_path, "east", expect=digest[:32]), "the one that you expect"),
        (
            sign_command(folder, tmp_path, "east", **{"max-epsilon-alone": 3}),
            "not keep max_epsilon_alone",
        ),
        (share_command(folder, tmp_path, "east", config="other"), "has not signed the federation"),
        ([*share_command(folder, tmp_path, "east"), "--expect", digest], "that you expect"),
        (
            [*share_command(folder, tmp_path, "east"), "--max-epsilon-alone", 3],
            "no bound|not keep max_epsilon_alone",
        ),
    ):
        printed = run(*command, code=CONFIGURATION).stderr
        assert any(part in printed for part in message.split("|"))
        assert "promise      epsilon 4" in printed
        assert not ledger.exists()


def test_one_site_among_invented_ones_signs_and_shares_nothing(folder, tmp_path):
    """The attack: "epsilon 1" of many sites, of which one is real; its share was nearly bare."""
    own = own_key(folder, tmp_path, "east")
    keys = [SiteKey.load(own), *(SiteKey.generate(f"invented{i}") for i in range(39))]
    settings = settings_of(epsilon=1.0, delta=1e-6, documents_per_snapshot=40_000)
    config = config_of(keys, settings)
    config.save(tmp_path / "config")
    shown = run("site", "show", tmp_path / "config").stdout
    assert "sites        40\n" in shown
    assert config.epsilon_alone is None or config.epsilon_alone > 3
    command = ("site", "sign", tmp_path / "config", "--expect", config.digest, "--key", own)
    command += ("-o", tmp_path / "east.signed")
    message = "does not keep max_epsilon_alone"
    assert message in run(*command, code=CONFIGURATION).stderr
    assert not (tmp_path / "east.key.rounds").exists()
    # Nor after it was signed all the same, with another limit.
    run(*command, "--max-epsilon-alone", "inf")
    announced = [RoundKeys(tmp_path / k.public.name).announce(k, config.digest, 1, 1) for k in keys]
    announced[0] = Announcement.load(tmp_path / "east.signed")
    Round.first(config, announced).sign(HUB).save(tmp_path / "round1")
    command = share_command(folder, tmp_path, "east", config=tmp_path / "config")
    command = [part for part in command if part not in KNOWN]
    assert message in run(*command, code=CONFIGURATION).stderr
    assert not (tmp_path / "east.ledger").exists()


def test_another_ledger_or_a_link_of_the_key_gives_no_second_share(folder, tmp_path):
    """The attack: two shares under one mask, whose difference shows documents under less noise."""
    sign_and_begin(folder, tmp_path)
    command = share_command(folder, tmp_path, "east")
    share, key = tmp_path / "east.share", tmp_path / "east.key"
    kept = next((tmp_path / "east.key.rounds").glob("*/000001-1"))
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "east.key").hardlink_to(key)
    (tmp_path / "round-key").hardlink_to(kept)
    run(*command)
    # Of the secret that masked it, nothing is left.
    assert kept.read_bytes() == (tmp_path / "round-key").read_bytes() == b""
    first = share.read_bytes()
    other = share_command(folder, tmp_path, "east", ledger=tmp_path / "other.ledger")
    assert "earlier shares were paid from another ledger" in run(*other, code=CONFIGURATION).stderr
    assert not (tmp_path / "other.ledger").exists()
    linked = [tmp_path / "linked" / "east.key" if part == str(key) else part for part in other]
    assert "has not signed the federation" in run(*linked, code=CONFIGURATION).stderr
    # Signing again at the other place makes another key, which the round does not name.
    run(*sign_command(folder, tmp_path / "linked", "east"))
    assert "names another" in run(*linked, code=CONFIGURATION).stderr
    assert share.read_bytes() == first
    report = json.loads(run("budget", tmp_path / "other.ledger", "--json").stdout)
    assert report["generation"] == 0
    # The stored share may be sent again, and nothing is read for it.
    share.write_bytes(b"")
    run(*share_command(folder, tmp_path, "east", records=tmp_path / "away.jsonl"))
    assert share.read_bytes() == first


def test_a_site_without_the_slots_of_a_whole_window_pays_for_no_round_of_it(folder, tmp_path):
    """Otherwise all sites lose the documents of the rounds before."""
    sign_and_begin(folder, tmp_path)
    wanted = round(SITES["east"] * EVERY)
    lines = (folder / "east.jsonl").read_text("ascii").splitlines(keepends=True)
    few = tmp_path / "few.jsonl"
    few.write_text("".join(lines[: wanted - 1]), "ascii")
    short = share_command(folder, tmp_path, "east", records=few)
    said = run(*short, code=DATA).stderr
    assert "remaining rounds of a window" in said
    assert f"slots={wanted - 1} expected={wanted}" in said
    few.write_text("\n" * wanted, "ascii")
    assert "no record is a document" in run(*short, code=DATA).stderr
    assert not json.loads(run("budget", tmp_path / "east.ledger", "--json").stdout)["snapshots"]
    # One record, whose bytes look like UTF-16, does not decide how the others are read.
    few.write_text("x\0" * 250_000 + "\n" + "".join(lines[1:wanted]), "ascii")
    run(*short)


def test_records_that_a_site_shares_again_under_another_path_are_charged_for_each(folder, tmp_path):
    """In a share of another config, which takes fewer than a third of the file."""
    run(*share_command(folder, tmp_path, "east", sign_and_begin(folder, tmp_path)))
    make_config(folder, "other", label="other")
    again = tmp_path / "again"
    again.mkdir()
    sign_and_begin(folder, again, config="other")
    copy = again / "copy.jsonl.gz"
    copy.write_bytes(gzip.compress((folder / "east.jsonl").read_bytes()))
    given = {"config": "other", "records": copy, "ledger": tmp_path / "east.ledger"}
    result = run(*share_command(folder, again, "east", **given))
    assert "charged for each: repeated=" in result.stderr
    report = json.loads(run("budget", tmp_path / "east.ledger", "--json").stdout)
    assert report["documents"]["repeated"] == report["documents"]["records"]
    assert report["documents"]["most"] == 2


@pytest.mark.long
def test_records_that_a_site_has_shared_from_standard_input_are_known(folder, tmp_path):
    """By slots under one name, round by round; under another one each is charged again."""
    records = (folder / "east.jsonl").read_bytes()

    def at_east(to, round_file, config="config", *more, code=0):
        ledger = tmp_path / "east.ledger"
        command = share_command(folder, to, "east", round_file, config, "-", ledger)
        return run(*command, "--format", "jsonl", *more, given=records, code=code).stderr

    first = sign_and_begin(folder, tmp_path)
    # Lines without a document cost nothing.
    whole, records = records, b'{"txet": "one"}\n' * records.count(b"\n")
    assert "no record is a document" in at_east(tmp_path, first, code=DATA)
    assert "none yet" in run("budget", tmp_path / "east.ledger").stdout
    records = whole
    at_east(tmp_path, first)
    for site in ("north", "south"):
        run(*share_command(folder, tmp_path, site, first))
    shares = [shutil.move(tmp_path / f"{site}.share", tmp_path / f"{site}.1") for site in SITES]
    run(*aggregate_command(folder, tmp_path, shares, first))
    # The next round continues behind the first.
    at_east(tmp_path, tmp_path / "next")
    make_config(folder, "another", label="another")
    again = tmp_path / "again"
    again.mkdir()
    other = sign_and_begin(folder, again, config="another")
    said = at_east(again, other, "another", "source.stream=other")
    assert "charged for each: repeated=" in said
    report = json.loads(run("budget", tmp_path / "east.ledger", "--json").stdout)
    first, second, charged = (shot["documents"] for shot in report["snapshots"])
    n = first[0][2]
    assert (first, charged) == ([["stdin", 0, n]], [["other", 0, n]])
    assert second[0][:2] == ["stdin", n]


def test_a_round_is_begun_again_when_a_share_was_lost_and_all_sites_agree(folder, tmp_path):
    first = sign_and_begin(folder, tmp_path)
    run(*share_command(folder, tmp_path, "east"))
    shutil.rmtree(tmp_path / "east.ledger.releases")
    result = run(*share_command(folder, tmp_path, "east"), code=CONFIGURATION)
    assert "paid for and is lost, got site='east' round=1 attempt=1" in result.stderr
    hub = ("--config", folder / "config", "--round", first)
    for site in SITES:
        again = sign_command(folder, tmp_path, site, round=first, output=tmp_path / f"{site}.again")
        run(*again)
    again = begin(folder, tmp_path, "again", tmp_path / "round1.2", "--round", first)
    command = share_command(folder, tmp_path, "east", again)
    run(*command)
    (first_shot, second) = LedgerReader(tmp_path / "east.ledger").report()["snapshots"]
    ((origin, start, stop),) = first_shot["documents"]
    assert (origin, start) == (str(folder / "east.jsonl"), 0)
    assert second["documents"] == [[origin, stop, 2 * stop]]
    assert Share.load(tmp_path / "east.share").attempt == 2
    # The attack: attempts of the aggregator alone, until a site has no documents left.
    command = ["site", "begin", *(tmp_path / f"{site}.again" for site in SITES), "-o"]
    command += [tmp_path / "forged", *hub[:2], "--round", again, "--key", folder / "hub.key"]
    assert "is of another round" in run(*command, code=CONFIGURATION).stderr


def test_bad_configs_are_refused(folder):
    for changes, message, code in (
        ({"weights": "0.5,0.5"}, "not as many as sites", USAGE),
        ({"weights": "much"}, "is not a list of numbers", USAGE),
        ({"vocabulary": None}, "no words are public", USAGE),
        ({"epsilon": None, "delta": None}, "sites agree on is missing: set --epsilon", USAGE),
        ({"snapshot-every": None}, "sites agree on is missing: set --snapshot-every", USAGE),
    ):
        assert message in make_config(folder, "bad", code=code, **changes).stderr
        assert not (folder / "bad").exists()


def test_outputs_that_would_replace_inputs_are_refused(folder, tmp_path):
    command = ["aggregate", tmp_path / "east.share", "--config", folder / "config"]
    command += ["--round", tmp_path / "round1"]
    share = share_command(folder, tmp_path, "east")[:-1]
    for wrong in (
        (*command, "--next-round", tmp_path / "same", "-o", tmp_path / "same"),
        (*command, "--next-round", folder / "config", "-o", tmp_path / "m"),
        (*share, tmp_path / "east.ledger"),
        (*share, tmp_path / "east.ledger.documents"),
        (*sign_command(folder, tmp_path, "east")[:-1], folder / "config"),
    ):
        assert "or another output" in run(*wrong, code=CONFIGURATION).stderr
    (tmp_path / "model").touch()  # Of a window before.
    wrong = (*command, "--next-round", tmp_path / "next", "-o", tmp_path / "model")
    assert "models are never replaced" in run(*wrong, code=USAGE).stderr
