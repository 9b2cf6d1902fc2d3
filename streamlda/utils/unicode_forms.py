"""Unicode forms of texts, in time that does not grow as the square of marks in a row."""

import re
from functools import cache, partial
from itertools import groupby
from typing import Literal
from unicodedata import combining, is_normalized, normalize

#: Marks in a row that are put in order before a text is normalized.
MANY_MARKS = 32

#: Forms of Unicode, and what they are decomposed by.
Form = Literal["NFC", "NFKD"]
_DECOMPOSED: dict[Form, Literal["NFD", "NFKD"]] = {"NFC": "NFD", "NFKD": "NFKD"}


def normalize_text(form: Form, text: str) -> str:
    """Return a text in a Unicode form, as `unicodedata.normalize`; time O(n log n).

    `unicodedata.normalize` takes the square of the number of marks in a row that are not in order:
    many are put in order first.
    """
    if is_normalized(form, text):
        return text
    return normalize(form, _many_marks(form).sub(partial(_in_order, form), text))


def _in_order(form: Form, run: re.Match[str]) -> str:
    """Return marks, and what is among them, decomposed and in canonical order."""
    pieces = "".join(map(partial(normalize, _DECOMPOSED[form]), run[0]))
    parts = (sorted(part, key=combining) for _, part in groupby(pieces, _is_mark))
    return "".join(map("".join, parts))


def _is_mark(character: str) -> bool:
    return combining(character) > 0


@cache
def _many_marks(form: Form) -> re.Pattern[str]:
    # A set with each mark beyond the first plane takes fifty times as long to search for.
    decomposed = (normalize(_DECOMPOSED[form], chr(point))[0] for point in range(0x10000))
    marks = "".join(chr(i) for i, first in enumerate(decomposed) if _is_mark(first))
    return re.compile(f"[{marks}\U00010000-\U0010ffff]{{{MANY_MARKS},}}")
