"""Signals that end the process, and its states for systemd."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from threading import Thread, Timer
from typing import NoReturn

from streamlda.service.logs import log
from streamlda.utils import exit_codes

SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: From the first signal to the end of the process, at most.
LATEST_EXIT_SECONDS = 9.7


def watch_signals(take: Callable[[int], None], late: Callable[[], None]) -> None:
    """Call `take` with the first signal, and `late` if the process continues; the second ends it.

    All in threads: Python's own handlers run in the main thread, which a library may keep waiting.
    Called again, it replaces what was to be called.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in SIGNALS:
        signal.signal(number, _wake)
    watch = Thread(target=_watch, args=(reader, take, late), name="streamlda-signals", daemon=True)
    watch.start()


def _wake(number: int, frame: object) -> None:
    """Interrupt what the main thread waits for; the signal itself is in the pipe."""


def _watch(reader: int, take: Callable[[int], None], late: Callable[[], None]) -> None:
    taken = False
    while True:
        for number in os.read(reader, 64):
            if number in SIGNALS:
                if taken:
                    os._exit(128 + number)
                taken = True
                timer = Timer(LATEST_EXIT_SECONDS, late)
                timer.daemon = True
                timer.start()
                take(number)


def end_at_once(number: int) -> None:
    """End the process with code 0 at a signal: nothing was begun that must be finished."""
    log("info", "signal", number=number, phase="starting")
    leave(exit_codes.OK)


def leave(code: int) -> NoReturn:
    """End the process at once, whatever threads still do: all that counts is on the disk."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def notify(state: str) -> None:
    """Tell systemd a state by a datagram, where ``NOTIFY_SOCKET`` asks for it; never wait."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            # A name in the abstract namespace is written with @ in place of its first byte.
            sender.sendto(state.encode(), address.replace("@", "\0", 1))
        except OSError as error:
            log("debug", "supervisor-away", error=type(error).__name__)
