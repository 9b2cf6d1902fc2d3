"""A wait after a refusal that a restart would only repeat: alive, not ready, with the reason.

Compose and Kubernetes restart a container whatever its exit code says. After exit codes 65 and 78
they would read the same records again and again.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import NoReturn

from streamlda.service.daemon import TICK_SECONDS
from streamlda.service.logs import log
from streamlda.service.running import make_status, serve
from streamlda.service.signals import leave, watch_signals
from streamlda.service.status import Status
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.table import HttpSettings
from streamlda.storage.snapshots import Snapshots


def wait_for_signal(code: int, reason: str, settings: RunSettings | HttpSettings) -> NoReturn:
    """Serve what is published, and why nothing is read; end with the code at the first signal.

    Where the settings were refused, those of HTTP are enough.
    """
    watch_signals(lambda number: leave(code), late=lambda: None)
    log("error", "waits-after-refusal", code=code, reason=reason)
    if isinstance(settings, RunSettings):
        status, http, private = make_status(settings), settings.http, settings.private
        folder = settings.output.folder
    else:
        # Nothing is shown of what no settings are known of.
        status, http, private = Status(private=True, stream="refused"), settings, True
        folder = None
    with ExitStack() as opened:
        folder = folder or opened.enter_context(TemporaryDirectory())
        status.note(phase="refused", not_ready=reason)
        serve(http, status, Snapshots(folder), opened, private=private)
        while True:
            status.beat()
            time.sleep(TICK_SECONDS)
