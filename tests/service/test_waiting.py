"""After a refusal a daemon that was told to wait is alive, not ready, says why, reads nothing."""

import subprocess

import pytest

from streamlda.utils.exit_codes import CONFIGURATION, DATA
from tests.kafka.broker import free_ports
from tests.service.daemon_process import (
    ROOT,
    STREAMLDA,
    Daemon,
    arguments,
    environment,
    settings_of,
)
from tests.service.long_stream import answer_of, not_ready

REFUSED = {
    "records": (DATA, "exit code 65"),
    "settings": (CONFIGURATION, "see streamlda run --help-all"),
}


@pytest.mark.parametrize("what", ["records", pytest.param("settings", marks=pytest.mark.long)])
def test_it_waits_after_a_refusal(tmp_path, what):
    code, why = REFUSED[what]
    (port,) = free_ports(1)
    more = {"breaker.records": 1000, "breaker.then": "wait", "http.port": port}
    source, env = tmp_path / "documents.jsonl", environment()
    source.write_text("no JSON\n" * 3000)
    command = arguments(settings_of(tmp_path, source, more))
    if what == "settings":
        config = tmp_path / "streamlda.toml"
        config.write_text("[topics]\ncuont = 3\n")
        variables = {"BREAKER_THEN": "wait", "HTTP_PORT": str(port), "LOG_FORMAT": "json"}
        env = environment(**{f"STREAMLDA_{name}": value for name, value in variables.items()})
        command = [*STREAMLDA, "run", "--config", str(config)]
    with Daemon(None, command=command, env=env) as daemon:
        assert daemon.wait_for("waits-after-refusal")["code"] == code
        daemon.wait_for("http", 2 if what == "records" else 1)
        assert why in not_ready(port)
        # Who asks has no token, and no settings say that none is needed.
        assert answer_of(port, "/livez") == {"alive": True}
        probe = subprocess.run([*command, "--probe"], env=env, cwd=ROOT, capture_output=True)
        assert (probe.returncode, probe.stdout) == (0, b"alive\n")
        assert daemon.stop() == code
