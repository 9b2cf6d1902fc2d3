"""The harness of tests that kill processes: one for ledger, private runs, checkpoints and daemons.

A module of scenes runs as a `CrashProcess`: it imports all there is once, and forks one worker
after the other. Kills are tied to steps of a worker, never to time: a worker calls its hook with
the name of each step that makes something durable.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

KILLED = -signal.SIGKILL


def fork(task, statuses=None):
    """Run a task in a child and return its process id.

    `statuses` are exit statuses by class of a foreseen error; 1 is an unforeseen one.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            task()
            status = 0
        except BaseException as error:
            found = [code for kind, code in (statuses or {}).items() if isinstance(error, kind)]
            status = found[0] if found else 1
            if not found:
                traceback.print_exc()
        finally:
            os._exit(status)
    return child


def wait(child, log=None):
    """Return the exit status of a child, or minus the signal that ended it."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = log.read_text()[-3000:] if log is not None and log.exists() else "see above"
    assert status != 1, f"a worker failed: {said}"
    return status


def die_at(step):
    steps = iter(range(step + 1))

    def on_step(name):
        if next(steps, None) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def die_when(wanted):
    def on_step(name):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def kill_at_steps(run, first=0, stride=1):
    """Yield each step and the status of `run(step)`, up to a run that nothing kills."""
    status, step = KILLED, first
    while status == KILLED:
        status = run(step)
        yield step, status
        step += stride
    assert status == 0


def kill_after(steps, work):
    """Run work in a child, and kill it at any moment after a number of its steps."""
    read_end, write_end = os.pipe()
    child = fork(lambda: work(lambda name: os.write(write_end, b".") and None))
    os.close(write_end)
    while steps > 0:
        done = os.read(read_end, steps)
        assert done, "a worker ended before its kill"
        steps -= len(done)
    os.kill(child, signal.SIGKILL)
    os.close(read_end)
    assert wait(child) == KILLED


class CrashProcess:
    """A process of a module of scenes; started once, so that each fork is warm."""

    def __init__(self, module, env=None):
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=env,
        )

    def run(self, task, folder, *values):
        print(json.dumps([task, str(folder), *values]), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        assert isinstance(answer, dict), answer
        return Counter(answer)

    def close(self):
        self._process.communicate(timeout=300)


def serve(tasks):
    """Run the tasks that come as lines of JSON; answer with the counts of each, or its error."""
    for line in sys.stdin:
        name, scratch, *values = json.loads(line)
        try:
            print(json.dumps(tasks[name](Path(scratch), *values)), flush=True)
        except Exception:
            print(json.dumps(traceback.format_exc()), flush=True)
