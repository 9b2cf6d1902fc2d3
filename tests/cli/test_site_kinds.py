"""Three sites in three processes learn directions, a mixture, and topics one to a document."""

import pytest

from streamlda.exit_codes import CONFIGURATION, USAGE
from streamlda.sites.estimate import read
from tests.cli import sites
from tests.cli.site_rows import (
    ROWS,
    D,
    check_directions,
    check_means,
    check_topics,
    config_of_rows,
    config_of_topics,
    make_keys,
    write_documents,
    write_rows,
)
from tests.cli.sites import SITES, aggregate_command, begun, share_command
from tests.cli.test_cli import run
from tests.sites.rows import planted_mixture, planted_subspace


@pytest.fixture
def folder(tmp_path):
    return make_keys(tmp_path)


def learned(folder, kind, suffix):
    """Return what three processes learn, and what they print."""
    config_of_rows(folder, kind)
    round_file = begun(folder, folder, kind)
    commands = [share_command(folder, folder, site, round_file, kind, suffix) for site in SITES]
    log = sites.in_processes(commands)
    shares = [folder / f"{site}.share" for site in SITES]
    log.append(run(*aggregate_command(folder, folder, shares, round_file, kind)).stderr)
    return read(folder / "model"), log


@pytest.mark.long
def test_three_processes_learn_directions_as_the_simulation_does(folder):
    rows, moment = planted_subspace(ROWS, D)
    write_rows(folder, rows)
    found, log = learned(folder, "pca", "csv")
    assert (
        f"3 directions of {D} numbers, private: epsilon 2, delta 1e-06 for each record" in log[-1]
    )
    check_directions(found, rows, moment)
    assert found.privacy["sites"]["n_sites"] == 3
    assert found.privacy["neighboring_relation"] == "replace-one"
    # No number of a row is shown.
    assert not any(f"{value:.6e}" in text for value in rows[:50, 0] for text in log)


@pytest.mark.long
def test_three_processes_learn_a_mixture_as_the_simulation_does(folder):
    rows, means = planted_mixture(ROWS, D)
    write_rows(folder, rows)
    found, log = learned(folder, "mixture", "npy")
    assert f"3 means of {D} numbers, private" in log[-1]
    check_means(found, rows, means)


@pytest.mark.long
def test_three_processes_learn_topics_that_documents_do_not_mix(folder):
    topics = write_documents(folder)
    shown = config_of_topics(folder).stderr
    assert "learns       3 topics, one to a document of 30 words (given), 6,000 record" in shown
    round_file, number = begun(folder, folder), 1
    while not (folder / "model").exists():
        sites.in_processes([share_command(folder, folder, s, round_file) for s in SITES])
        shares, following = [folder / f"{s}.share" for s in SITES], f"round{number + 1}"
        run(*aggregate_command(folder, folder, shares, round_file, following=following))
        round_file, number = folder / following, number + 1
    assert number == 3
    check_topics(read(folder / "model"), topics)


def test_rows_and_words_are_told_apart(folder):
    shown = config_of_rows(folder, "pca").stderr
    assert f"learns       3 leading directions of rows of {D} numbers, of norm at most 1, " in shown
    assert "delta 1e-06 for each record, against" in shown
    for kind, changes, message in (
        ("pca", {"columns": None}, "--columns must be given"),
        ("lda", {"columns": 5}, "--columns must be given"),
        ("lda", {"columns": None, "radius": 2}, "other kinds take neither it nor --radius"),
        ("mixture", {"hash-bits": 5}, "rows of numbers have no words"),
        ("lda", {"columns": None}, "words must be public"),
    ):
        assert message in config_of_rows(folder, kind, code=USAGE, **changes).stderr
    message = config_of_rows(folder, "pca", columns=2, code=CONFIGURATION).stderr
    assert "n_components must lie in" in message
