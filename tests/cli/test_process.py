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
from contextlib import contextmanager, suppress
from itertools import pairwise

import pytest

from streamlda.model.topic_model import load
from streamlda.privacy.ledger import read_report
from streamlda.run.fit import POLL_RECORDS
from streamlda.stream.schedule import CLOCKED_SLOTS
from tests.cli.conftest import ALL_WORDS, check_releases, plant, run, slots_of, spelled

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


def wait_until(reached, failure):
    deadline = time.monotonic() + 300
    while not reached():
        assert time.monotonic() < deadline, failure
        time.sleep(0.01)


def wait_until_read(pipe):
    """Wait until the other end has read all that was written to a pipe."""

    def reached():
        return not struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]

    wait_until(reached, "nobody reads the pipe")


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


def test_a_signal_before_any_document_saves_nothing(tmp_path):
    with started(*FIT, "-o", tmp_path / "m", lines=[b"{\n"]) as process:
        wait_until_read(process.stdin)
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
        message = process.stderr.read()
    assert b"stopped before a model was learned" in message
    assert b"not-json=1" in message
    assert b"Traceback" not in message
    assert not (tmp_path / "m").exists()


def test_a_second_signal_ends_at_once(tmp_path):
    """The first asks for a good end, which is put off here; the second does not ask."""
    program = (
        "import os, signal, time\n"
        "from streamlda.cli.shared import StopSignals\n"
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
    assert done.returncode == 74
    assert done.stderr.splitlines()[-1].startswith(b"streamlda: error: ")
    assert b"Traceback" not in done.stderr
    assert output.read_bytes() == b"older"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_reader_that_has_enough_is_no_error(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"apple bread cheese dates\n" * 60_000)
    run("fit", tmp_path / "a.txt", "-k", 1, "-o", tmp_path / "m", *ALL_WORDS, "--quiet")
    with started("infer", tmp_path / "m", tmp_path / "a.txt") as process:
        first = json.loads(process.stdout.readline())
        process.stdout.close()
        assert first["record"] == 1
        assert process.wait(300) == 141
        assert process.stderr.read() == b""


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


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Documents of planted topics as lines of text, and a file of their words."""
    folder = tmp_path_factory.mktemp("planted")
    plant(folder / "a.txt", 3000, 20, n_topics=2, mean_length=30, truth=folder / "truth")
    words = load(folder / "truth").vocabulary.words
    (folder / "words").write_text("\n".join(words), "ascii")
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


def test_a_private_run_over_a_pipe_ends_with_its_last_snapshot(planted, lines, tmp_path):
    arguments = privately(planted, "-", tmp_path, "snapshots.most=2")
    with started(*arguments, lines=lines[:1000]) as process:
        # Standard input stays open: the number of snapshots is the end.
        assert process.wait(300) == 0
        assert b"snapshot 2, of the record slots 500 to 999" in process.stderr.read()
    snapshots = read_report(tmp_path / "L")["snapshots"]
    assert {each["documents"][0][0] for each in snapshots} == {"stdin"}
    again = subprocess.run([*STREAMLDA, *spelled(*arguments)], input=b"", capture_output=True)
    assert again.returncode == 78
    assert b"stream='stdin'" in again.stderr


def test_a_clock_ends_private_stages_at_whole_blocks(planted, lines, tmp_path):
    """Of a pipe that is slow: no block of the usual size fills up in time."""
    every = ("--snapshot-every", "100000", "snapshots.seconds=2", "snapshots.most=1")
    with started(*privately(planted, "-", tmp_path, *every)) as process:
        deadline = time.monotonic() + 300
        while process.poll() is None:
            assert time.monotonic() < deadline
            with suppress(BrokenPipeError):
                process.stdin.write(b"".join(lines[:40]))
            time.sleep(0.02)
        assert process.returncode in (0, 65)
    snapshots = read_report(tmp_path / "L")["snapshots"]
    assert len(snapshots) == 4
    ends = [each["documents"][0][2] for each in snapshots]
    assert all(0 < end < POLL_RECORDS * 4 and end % CLOCKED_SLOTS == 0 for end in ends)


@pytest.mark.parametrize(("read", "released", "made"), [(1300, 8, True), (490, 3, False)])
def test_a_signal_keeps_the_last_private_snapshot(planted, lines, tmp_path, read, released, made):
    """In the second case most of the last stage was read: where a signal comes is no end."""
    ledger = tmp_path / "L"

    def reached():
        return ledger.exists() and read_report(ledger)["generation"] >= released

    with started(*privately(planted, "-", tmp_path), lines=lines[:read]) as process:
        wait_until_read(process.stdin)
        wait_until(reached, "the releases do not come")
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


#: Forks private runs that have all modules already, and kills each a random time after it has made
#: a random number of releases: on a busy machine, too, a kill meets a run.
KILLER = """
import json, os, random, signal, sys, time
import streamlda_connectors.files, sklearn.feature_extraction.text, tqdm
from streamlda.run import fit
from streamlda.private import learner, release_manager
from streamlda.cli import commands
from streamlda.kernels import load_kernels
load_kernels()

def start(arguments):
    pid = os.fork()
    if pid == 0:
        log = os.open(arguments[arguments.index("-o") + 1] + ".log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            commands.main(arguments, "streamlda")
        except SystemExit as end:
            os._exit(end.code)
    return pid

def end(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def releases(arguments):
    folder = arguments[arguments.index("--ledger") + 1] + ".releases"
    return len(os.listdir(folder)) if os.path.exists(folder) else 0

runs, wanted_kills, seed = json.loads(sys.argv[1]), int(sys.argv[2]), 0
rng = random.Random(seed)
began = time.monotonic()
ends = [[end(start(runs[0])), None]]
longest, most = time.monotonic() - began, releases(runs[0])
for arguments in runs[1:]:
    if sum(killed == -signal.SIGKILL for killed, _ in ends) == wanted_kills:
        break
    pid, wanted = start(arguments), rng.randrange(most)
    patience = time.monotonic() + 300
    while releases(arguments) < wanted and time.monotonic() < patience:
        time.sleep(0.001)
    time.sleep(rng.uniform(0, longest / most))
    os.kill(pid, signal.SIGKILL)
    ends.append([end(pid), end(start(arguments))])
print(json.dumps(ends))
"""


def kill_at_random(planted, folder, kills):
    """Kill private runs at random moments, and start each once more, until `kills` have landed.

    Behind its last release a run may end first: that is a run more, not a failure.
    """
    runs = []
    for i in range(4 * kills + 1):
        (folder / str(i)).mkdir()
        more = ("--quiet", "source.max_documents=1300")
        arguments = privately(planted, planted / "a.txt", folder / str(i), *more)
        runs.append(spelled(*arguments))
    command = [sys.executable, "-c", KILLER, json.dumps(runs), str(kills)]
    done = subprocess.run(command, capture_output=True, check=True)
    ends = json.loads(done.stdout)
    # The first ran to its end, to take the time.
    assert ends[0] == [0, None]
    for i, (killed, again) in enumerate(ends[1:], 1):
        assert killed in (0, -signal.SIGKILL)
        check_after_a_kill(folder / str(i), again)
    return [killed for killed, _ in ends[1:]]


def check_after_a_kill(to, again):
    """The second run went through, behind what was spent, or was refused for the want of more."""
    report = check_releases(to)
    assert report["pending"] == []
    states = [each["state"] for each in report["snapshots"]]
    log = (to / "m.log").read_text("utf-8")
    if again == 0:
        # The killed run's last release may be lost; the second run goes on behind it, and takes up
        # the others.
        assert states.count("lost") <= 1
        assert {*states} <= {"committed", "lost"}
    else:
        assert again == 78
        assert "must not be in two releases" in log
    assert "Traceback" not in log
    parts = slots_of(report)
    assert all(before[1] == after[0] for before, after in pairwise(parts))
    if (to / "m").exists():
        stages = load(to / "m").privacy["stages"]
        run = report["snapshots"][-1]["run"]
        paid = [each["slots"] for each in report["snapshots"] if each["run"] == run]
        assert all([stage["first"], stage["last"] + 1] in paid for stage in stages)


def test_a_private_run_killed_at_any_moment_never_spends_unseen(planted, tmp_path):
    assert kill_at_random(planted, tmp_path, 3).count(-signal.SIGKILL) == 3


@pytest.mark.soak
def test_a_private_run_killed_a_hundred_times_never_spends_unseen(planted, tmp_path):
    assert kill_at_random(planted, tmp_path, 75).count(-signal.SIGKILL) == 75
