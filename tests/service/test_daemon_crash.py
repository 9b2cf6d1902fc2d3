"""Daemons killed at any step: in the end everything is as if nobody had killed them.

Of private ones nothing is released twice, and nothing that is out changes: see
`tests.service.daemon_crash.verify`. In the end every window has one snapshot, unless one of
its releases was lost: paid for, and never drawn or stored.
"""

import pytest

from tests.crashes import CrashProcess
from tests.service.daemon_process import environment, few_or, texts, write_documents


@pytest.fixture
def crash_run(tmp_path):
    def run(n_documents, task, *values):
        write_documents(tmp_path / "documents.jsonl", texts(n_documents))
        process = CrashProcess("tests.service.daemon_crash", environment())
        try:
            return process.run(task, tmp_path, *values)
        finally:
            process.close()

    return run


@pytest.mark.long
@pytest.mark.parametrize("kind", ["hashed", "learned"])
@pytest.mark.parametrize("stride", few_or(29, 1))
def test_a_kill_at_any_step_changes_nothing(crash_run, kind, stride):
    found = crash_run(5500, "steps", stride, stride // 2, kind)
    # How many steps there are depends on how far learning runs ahead of writing.
    killed = found["killed"]
    assert killed >= 30 // stride
    assert found == {"killed": killed, "streams": killed + 1, "same": killed + 1}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["hashed", "private"])
@pytest.mark.parametrize("stride", few_or(97, 1))
def test_a_kill_at_any_step_releases_nothing_twice(crash_run, kind, stride):
    found = crash_run(1400, "private-steps", stride, stride // 2, kind)
    assert found["killed"] == found["streams"] - 1 >= 150 // stride
    assert found["snapshots"] >= 2 * found["streams"] - 2 * found["lost"]


@pytest.mark.long
def test_private_crashes_in_a_row_lead_on(crash_run):
    """Each case of `tests.service.daemon_crash.AGAIN`, and what it loses."""
    found = crash_run(2500, "again")
    assert (found["killed"], found["streams"], found["lost"]) == (16, 6, 5)
