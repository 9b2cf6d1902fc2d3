"""After a refusal a daemon that was told to wait is alive, not ready, says why, reads nothing."""

import subprocess

from streamlda.utils.exit_codes import DATA
from tests.kafka.broker import free_ports
from tests.service.daemon_process import ROOT, Daemon, arguments, environment, settings_of
from tests.service.long_stream import answer_of, not_ready


def test_it_waits_after_a_refusal(tmp_path):
    (port,) = free_ports(1)
    more = {"breaker.records": 1000, "breaker.then": "wait", "http.port": port}
    source = tmp_path / "documents.jsonl"
    source.write_text("no JSON\n" * 3000)
    command = arguments(settings_of(tmp_path, source, more))
    with Daemon(None, command=command) as daemon:
        assert daemon.wait_for("waits-after-refusal")["code"] == DATA
        daemon.wait_for("http", 2)
        assert "exit code 65" in not_ready(port)
        # Who asks has no token, and no settings say that none is needed.
        assert answer_of(port, "/livez") == {"alive": True}
        probe = [*command, "--probe"]
        done = subprocess.run(probe, env=environment(), cwd=ROOT, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b"alive\n")
        assert daemon.stop() == DATA
