"""Commands of this installation without the start of Python: forks of a process that has imported.

`warm_commands` makes a folder with a `streamlda` and a `python` for the PATH. Each asks a server,
``python -m tests.warm SOCKET``, for a fork that runs its command, and exits as the fork does.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import types
from contextlib import contextmanager
from pathlib import Path

#: What most commands import; other modules are imported by the commands that need them.
IMPORTED = ("numba", "scipy.special", "sklearn.base", "streamlda.cli.fit", "streamlda.cli.site")

#: Asks the server for the command by whose name it was started.
ASK = f"""#!{sys.executable} -ISE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.environ["TESTS_WARM"])
    asked = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [asked], [0, 1, 2])
    server.shutdown(socket.SHUT_WR)
    code = server.recv(8)
sys.exit(int(code or b"1"))
"""


@contextmanager
def warm_commands(folder):
    """Start a server; give the folder of its commands and the variable that they need."""
    for name in ("streamlda", "python"):
        (folder / name).write_text(ASK, "utf-8")
        (folder / name).chmod(0o755)
    address = str(folder / "socket")
    command = [sys.executable, "-W", "error", "-m", "tests.warm", address]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    # The server ends with its standard input.
    with subprocess.Popen(command, **pipes) as server:
        assert server.stdout.readline() == b"ready\n"
        yield str(folder), {"TESTS_WARM": address}


def serve(address):
    """Fork for each command; return in the fork, with its arguments in `sys.argv`."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("ready", flush=True)
        while True:
            if sys.stdin in select.select([listening, sys.stdin], [], [])[0]:
                sys.exit()
            asking, _ = listening.accept()
            if os.fork() == 0:
                break
            asking.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, files, *_ = socket.recv_fds(asking, 1 << 16, 3)
    while more := asking.recv(1 << 16):
        asked += more
    if pid := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        asking.send(str(code).encode())
        os._exit(0)
    asking.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.argv, folder, environment = json.loads(asked)
    os.environ.clear()
    os.environ |= environment
    os.chdir(folder)


def run():
    """Run the command that `sys.argv` names: `streamlda ...`, or `python -c CODE`."""
    if Path(sys.argv[0]).name == "python":
        option, code = sys.argv[1:]
        assert option == "-c"
        sys.argv, sys.path[0] = ["-c"], ""
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), main.__dict__)
    else:
        from streamlda.__main__ import main

        main()


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    from numba.core.registry import cpu_target

    cpu_target.target_context.refresh()
    # Garbage collection in a fork would copy pages of what is shared.
    gc.freeze()
    serve(sys.argv[1])
    run()
