"""Progress bars of long work, for a terminal or a notebook, where a user asks for them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SHOWN = ContextVar("shown", default=False)

#: Work that takes less, in seconds, shows nothing.
_LEAST_SECONDS = 0.5


@contextmanager
def show_progress(verbose: object) -> Iterator[None]:
    """Show the progress of what is done inside, if `verbose`."""
    token = _SHOWN.set(bool(verbose))
    try:
        yield
    finally:
        _SHOWN.reset(token)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """Give a function that takes how much was done; a bar follows it, where progress is shown.

    Nothing is shown where standard error is neither a terminal nor a notebook.
    """
    if not (_SHOWN.get() and (sys.stderr.isatty() or "ipykernel" in sys.modules)):
        yield lambda done: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=what, leave=False, delay=_LEAST_SECONDS) as bar:
        yield bar.update
