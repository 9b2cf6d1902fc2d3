"""Private daemons killed at any moment: nothing is released twice, and nothing that is out changes.

After each kill `tests.service.daemon_crash_private.verify` asserts that every draw of noise was
paid for, no release drew twice, releases are of disjoint places, one after the other without holes,
and that all artefacts are still the same bytes; each daemon checks that the records at its places
are those of the stream. At the end every window has one snapshot, unless one of its releases was
lost: paid for, and never drawn or stored.
"""

from pathlib import Path

import pytest

from tests.service.test_daemon_crash import crash_run, with_documents

PRIVATE = {"module": "daemon_crash_private"}

N_DOCUMENTS = 1400


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_kills_at_random_moments_release_nothing_twice(tmp_path: Path, kills: int) -> None:
    found = crash_run("any-moment", with_documents(tmp_path, N_DOCUMENTS), kills, 1, **PRIVATE)
    assert found["killed"] >= kills
    assert found["snapshots"] >= found["streams"]


@pytest.mark.parametrize("kind", ["hashed", "private"])
@pytest.mark.parametrize("stride", [97, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_at_any_step_releases_nothing_twice(tmp_path: Path, kind: str, stride: int) -> None:
    folder = with_documents(tmp_path, N_DOCUMENTS)
    found = crash_run("steps", folder, stride, stride // 2, kind, **PRIVATE)
    assert found["wrong"] == 0
    assert found["killed"] == found["streams"] - 1 >= 150 // stride
    assert found["snapshots"] >= 2 * found["streams"] - 2 * found["lost"]


def test_crashes_in_a_row_lead_on(tmp_path: Path) -> None:
    """Each case of `tests.service.daemon_crash_private.AGAIN`, and what it loses."""
    found = crash_run("again", with_documents(tmp_path, 2500), **PRIVATE)
    assert (found["killed"], found["streams"], found["lost"]) == (16, 6, 5)


def test_a_daemon_that_forgets_to_pass_records_is_found(tmp_path: Path) -> None:
    found = crash_run("again", with_documents(tmp_path, 2500), "mistaken", **PRIVATE)
    # In the cases in which records are behind the checkpoint.
    assert found["wrong"] >= 4
    assert found["wrong"] + found["streams"] == 6
