"""The command line as a process of its own: exit codes, signals, pipes and full disks."""

import fcntl
import json
import resource
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from streamlda.model import load

STREAMLDA = [sys.executable, "-m", "streamlda"]
LINE = b'{"text": "apple bread cheese dates"}\n'
FIT = ["fit", "-", "--format", "jsonl", "-k", "1", "--max-document-frequency", "1.0"]


def start(*arguments, **options):
    return subprocess.Popen(
        [*STREAMLDA, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # The shell that started the tests may have told its children to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def wait_until_read(pipe):
    """Wait until the other end has read all that was written to a pipe."""
    deadline = time.monotonic() + 60
    while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]:
        assert time.monotonic() < deadline, "nobody reads the pipe"
        time.sleep(0.01)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_what_was_read(tmp_path, number, code):
    output = tmp_path / "model"
    output.write_bytes(b"older")
    process = start(*FIT, "-o", output)
    process.stdin.write(LINE * 500)
    process.stdin.flush()
    wait_until_read(process.stdin)
    assert output.read_bytes() == b"older"
    process.send_signal(number)
    # Standard input stays open: the end is the signal's doing.
    assert process.wait(60) == code
    assert load(output).documents_seen == 500
    message = process.stderr.read()
    assert b"stopped before the end of the source" in message
    assert b"Traceback" not in message
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()


def test_a_signal_before_any_document_saves_nothing(tmp_path):
    process = start(*FIT, "-o", tmp_path / "m")
    process.stdin.write(b"{\n")
    process.stdin.flush()
    wait_until_read(process.stdin)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"stopped before a model was learned" in message
    assert b"not-json=1" in message
    assert b"Traceback" not in message
    assert not (tmp_path / "m").exists()


def test_a_second_signal_ends_at_once(tmp_path):
    """The first asks for a good end, which is put off here; the second does not ask."""
    program = (
        "import os, signal, time\n"
        "from streamlda.cli.running import StopSignals\n"
        "with StopSignals() as signals:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    assert signals.received == signal.SIGINT\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        timeout=30,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.returncode == -signal.SIGINT


def test_a_full_disk_keeps_the_older_model(tmp_path):
    output = tmp_path / "model"
    output.write_bytes(b"older")

    def allow_no_large_file():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    done = subprocess.run(
        [*STREAMLDA, *FIT, "-o", str(output)],
        input=LINE * 50,
        capture_output=True,
        preexec_fn=allow_no_large_file,
        # Compiled code that is not cached yet is not cached under the limit either.
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(b"streamlda: error: ")
    assert b"Traceback" not in done.stderr
    assert output.read_bytes() == b"older"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_reader_that_has_enough_is_no_error(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"apple bread cheese dates\n" * 60_000)
    fitted = [*STREAMLDA, "fit", str(tmp_path / "a.txt"), "-k", "1", "-o", str(tmp_path / "m")]
    subprocess.run([*fitted, "--max-document-frequency", "1.0", "-q"], check=True)
    process = start("infer", tmp_path / "m", tmp_path / "a.txt")
    first = json.loads(process.stdout.readline())
    process.stdout.close()
    assert first["record"] == 1
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stdin.close()
    process.stderr.close()


def test_progress_and_answers_do_not_mix(tmp_path):
    done = subprocess.run(
        [*STREAMLDA, *FIT, "-o", str(tmp_path / "m")], input=LINE * 50, capture_output=True
    )
    assert done.returncode == 0
    assert done.stdout == b""
    assert b"50 documents" in done.stderr
    assert b"apple" not in done.stderr
    infer = [*STREAMLDA, "infer", str(tmp_path / "m"), "-", "--format", "jsonl"]
    answered = subprocess.run(infer, input=LINE * 2, capture_output=True, check=True)
    rows = [json.loads(line) for line in answered.stdout.splitlines()]
    assert [(row["location"], row["record"]) for row in rows] == [("stdin", 1), ("stdin", 2)]
