"""A relay between a client and a broker, which closes connections or lets them fall silent."""

import socket
from contextlib import suppress
from threading import Thread


class Relay:
    """Passes connections on to an address; the first ones end in place of their third answer."""

    def __init__(self, target, *, port=0, closes=0):
        self._target, self._closes = target.split(":"), closes
        self._server = socket.create_server(("127.0.0.1", port))
        self._opened, self._n_accepted, self._held = [self._server], 0, False
        self._silences = 0
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        Thread(target=self._accept, daemon=True).start()

    def fall_silent(self):
        """Pass on nothing of any connection from now on, and close none: they are half-open."""
        self._silences += 1
        self._held = True

    def go_on(self):
        """Pass new connections on; those that fell silent stay so."""
        self._held = False

    def _accept(self):
        with suppress(OSError):
            while True:
                client = self._server.accept()[0]
                self._opened.append(client)
                if self._held:
                    continue
                there = socket.create_connection((self._target[0], int(self._target[1])))
                self._opened.append(there)
                self._n_accepted += 1
                answers = 2 if self._n_accepted <= self._closes else -1
                for way in ((client, there, -1), (there, client, answers)):
                    Thread(target=self._pass_on, args=way, daemon=True).start()

    def _pass_on(self, source, target, messages):
        silences = self._silences
        with suppress(OSError), source.makefile("rb") as stream:
            while messages != 0 and (size := stream.read(4)):
                message = size + stream.read(int.from_bytes(size))
                if silences != self._silences:
                    return
                target.sendall(message)
                messages -= 1
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._server.shutdown(socket.SHUT_RDWR)
        for each in self._opened:
            each.close()
