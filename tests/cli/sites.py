"""Three sites at the command line: their records and keys, and the commands that they give."""

import shutil

from streamlda.sites.federation import FederationConfig
from tests.cli.conftest import plant, run

SITES = {"east": 0.2, "north": 0.3, "south": 0.5}

#: Record slots of all sites together, and records of each, which is more than it needs.
EVERY, RECORDS = 9000, 5000


def made_at(folder):
    """Fill a folder with records of each site (every tenth is none), their words, and keys."""
    planted = folder / "all.jsonl"
    plant(planted, RECORDS * len(SITES), 60, truth=folder / "truth")
    lines = planted.read_text("ascii").splitlines(keepends=True)
    for number, name in enumerate(SITES):
        own = lines[number * RECORDS : (number + 1) * RECORDS]
        own[::10] = ["{\n"] * len(own[::10])
        (folder / f"{name}.jsonl").write_text("".join(own), "ascii")
        run("site", "keygen", name, "-o", folder / f"{name}.key")
    run("site", "keygen", "hub", "-o", folder / "hub.key")
    return folder


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


def begun(folder, to, config="config"):
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
