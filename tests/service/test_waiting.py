"""After a refusal a daemon that was told to wait is alive, not ready, says why, reads nothing."""

import subprocess

import pytest

from streamlda.utils.exit_codes import CONFIGURATION, DATA
from tests.kafka.broker import free_ports
from tests.service.daemon_process import (
    ROOT,
    STREAMLDA,
    Daemon,
    environment,
    settings_of,
)
from tests.service.long_stream import answer_of, not_ready


def waits(daemon, port, code, why):
    assert daemon.wait_for("waits-after-refusal")["code"] == code
    assert why in not_ready(port)
    assert answer_of(port, "/livez") == {"alive": True}
    assert daemon.stop() == code


def test_it_waits_after_records_that_cannot_be_read(tmp_path):
    source = tmp_path / "documents.jsonl"
    source.write_text("no JSON\n" * 3000)
    (port,) = free_ports(1)
    more = {"breaker.records": 1000, "breaker.then": "wait", "http.port": port}
    with Daemon(settings_of(tmp_path, source, more)) as daemon:
        daemon.wait_for("http", 2)
        waits(daemon, port, DATA, "exit code 65")
    assert len(daemon.events("breaker")) == 1


@pytest.mark.parametrize("text", ["[topics]\ncuont = 3\n", "[topics", ""])
def test_it_waits_after_settings_that_are_refused(tmp_path, text):
    config = tmp_path / "streamlda.toml"
    config.write_text(text)
    (port,) = free_ports(1)
    variables = {"BREAKER_THEN": "wait", "HTTP_PORT": str(port), "LOG_FORMAT": "json"}
    env = environment(**{f"STREAMLDA_{name}": value for name, value in variables.items()})
    command = [*STREAMLDA, "run", "--config", str(config)]
    with Daemon(None, command=command, env=env) as daemon:
        daemon.wait_for("http")
        # Who asks has no token, and no settings say that none is needed.
        assert answer_of(port, "/livez") == {"alive": True}
        probe = subprocess.run([*command, "--probe"], env=env, cwd=ROOT, capture_output=True)
        assert (probe.returncode, probe.stdout) == (0, b"alive\n")
        waits(daemon, port, CONFIGURATION, "see streamlda run --help-all")
