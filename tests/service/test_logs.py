"""Log lines of the daemon, without lines of other packages, and states for systemd."""

import json
import logging
import os
import re
import socket
from itertools import pairwise

import pytest

from streamlda.errors import SourceError
from streamlda.service.logs import log, log_failure, name_reason, start_logging
from streamlda.service.status import Status

LOGGERS = (None, "streamlda", "streamlda_connectors")


@pytest.fixture
def said(capfd):
    """Return a function that gives the lines logged since; logging is as before in the end."""
    root = logging.getLogger()
    handlers, levels = root.handlers[:], [logging.getLogger(name).level for name in LOGGERS]
    yield lambda: capfd.readouterr().err.splitlines()
    root.handlers[:] = handlers
    for name, level in zip(LOGGERS, levels, strict=True):
        logging.getLogger(name).setLevel(level)


def test_lines_are_one_line_and_json_parses_whatever_the_values(said):
    start_logging("json", "debug")
    values = {"number": 1, "share": 0.5, "text": 'a "b"\nc\x00\u2028ü', "none": None}
    log("info", "event", **values, other={1})
    (line,) = said()
    found = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
    assert found == {"level": "info", "event": "event", **values, "other": "{1}"}
    start_logging("console", "info")
    log("warning", "event", text="two\nlines", word="one", share=1 / 3)
    log("debug", "hidden")
    (line,) = said()
    values = r'text="two\\nlines" word=one share=0\.3333'
    assert re.fullmatch(rf"\d\d:\d\d:\d\d warning event {values}", line)


def test_a_reason_is_that_of_the_first_cause():
    full, said, away = OSError(28, "No space left"), SourceError("away"), SourceError("registry")
    said.reason = "registry:HTTP-503"
    for causes, reason in (
        ([full], "ENOSPC"),
        ([SourceError("letters"), RuntimeError("not written"), KeyError("x")], "KeyError"),
        ([RuntimeError("not written"), full], "ENOSPC"),
        ([away, said, KeyError("x")], "registry:HTTP-503"),
    ):
        for error, cause in pairwise(causes):
            error.__cause__ = cause
        assert name_reason(causes[0]) == reason


@pytest.mark.parametrize("style", ["json", "console"])
def test_of_others_neither_messages_nor_errors_are_shown(said, style):
    start_logging(style, "debug")
    errors = [
        SourceError("a rule, got name=value; do this"),
        OSError(28, "No space left on device"),
        ValueError("canary"),
    ]
    for error in errors:
        try:
            raise error
        except Exception as caught:
            log_failure("failed", caught)
    ours, system, other = said()
    assert "a rule, got name=value; do this" in ours
    assert "No space left" in system
    assert "ValueError" in other
    assert all("test_logs.py:" in line for line in (ours, system, other))
    assert "canary" not in other

    others = ("kafka.client", "snappy", "asyncio", "uvicorn.error")
    for name in others[:3]:
        logging.getLogger(name).warning("got %s", "canary")
        logging.getLogger(name).info("hidden")
    try:
        raise ValueError("canary")
    except ValueError:
        logging.getLogger(others[3]).exception("canary")
    logging.getLogger("streamlda_connectors.files").info("ours")
    lines = said()
    assert len(lines) == 5
    assert all(name in line for name, line in zip((*others, "ours"), lines, strict=True))
    assert not re.search("canary|hidden", "".join(lines))


def test_systemd_hears_that_the_loop_goes_round_and_holds_nothing_up(tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG, "streamlda.service")
    now = iter(range(100_000))
    status = Status(private=False, stream="s", clock=lambda: next(now))
    for address, bound in ((f"@streamlda-{os.getpid()}", "\0"), (str(tmp_path / "s"), "")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(address.replace("@", bound))
            monkeypatch.setenv("NOTIFY_SOCKET", address)
            status.beat()
            assert manager.recv(100) == b"READY=1\nWATCHDOG=1"
            caplog.clear()
            # One that does not read: its queue is bounded.
            while not caplog.records:
                status.beat()
            assert caplog.messages == ["supervisor-away"]
