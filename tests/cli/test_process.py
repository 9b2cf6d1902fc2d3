"""The command line as a process of its own: exit codes, signals, pipes and full disks."""

import fcntl
import signal
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager

import pytest

from streamlda.model.topic_model import load
from streamlda.privacy.ledger import read_report
from tests.cli.conftest import ALL_WORDS, plant, spelled
from tests.kafka.topics import wait_until

pytestmark = pytest.mark.long

STREAMLDA = [sys.executable, "-m", "streamlda"]
LINE = b'{"text": "apple bread cheese dates"}\n'
FIT = spelled("fit", "-", "--format", "jsonl", "-k", "1", *ALL_WORDS)


@contextmanager
def started(*arguments, lines=()):
    """Run the command line over a pipe, which has these lines."""
    process = subprocess.Popen(
        [*STREAMLDA, *spelled(*arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        # The shell that started the tests may have told its children to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        try:
            process.stdin.write(b"".join(lines))
            yield process
        finally:
            process.kill()


def wait_until_read(pipe):
    """Wait until the other end has read all that was written to a pipe."""

    def reached():
        return not struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]

    wait_until(reached, 300)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_what_was_read(tmp_path, number, code):
    output = tmp_path / "model"
    output.write_bytes(b"older")
    with started(*FIT, "-o", output, lines=[LINE] * 500) as process:
        wait_until_read(process.stdin)
        assert output.read_bytes() == b"older"
        process.send_signal(number)
        # Standard input stays open: the end is the signal's doing.
        assert process.wait(300) == code
        assert load(output).documents_seen == 500
        message = process.stderr.read()
    assert b"stopped before the end of the source" in message
    assert message.count(b"a second signal ends at once") == 1
    assert b"Traceback" not in message


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Documents of planted topics as lines of text, and a file of their words."""
    folder = tmp_path_factory.mktemp("planted")
    plant(folder / "a.txt", 3000, 20, n_topics=2, mean_length=30, truth=folder / "truth")
    return folder


@pytest.fixture(scope="module")
def lines(planted):
    return (planted / "a.txt").read_bytes().splitlines(True)


def privately(planted, source, to, *more):
    """Return the arguments of a private run that writes to a folder."""
    return [
        *("fit", source, "-k", "2", "-o", to / "m", "--vocabulary", planted / "words"),
        *("--epsilon", "8", "--delta", "1e-6", "--ledger", to / "L", "--snapshot-every", "500"),
        *more,
    ]


@pytest.mark.parametrize(("read", "released", "made"), [(1300, 8, True), (490, 3, False)])
def test_a_signal_keeps_the_last_private_snapshot(planted, lines, tmp_path, read, released, made):
    """In the second case most of the last stage was read: where a signal comes is no end."""
    ledger = tmp_path / "L"

    def reached():
        return ledger.exists() and read_report(ledger)["generation"] >= released

    with started(*privately(planted, "-", tmp_path), lines=lines[:read]) as process:
        wait_until_read(process.stdin)
        wait_until(reached, 300)
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
        message = process.stderr.read()
    assert b"Traceback" not in message
    assert (tmp_path / "m").exists() == made
    if made:
        assert b"stopped before the end of the source" in message
        assert load(tmp_path / "m").settings["snapshot"] == 2
    else:
        assert b"stopped before a model was learned" in message
        assert b"slots=490" in message
        assert read_report(ledger)["generation"] == 3
