"""Encodings of text: what files are in, and their bytes as UTF-8 with line feeds.

A file is UTF-8 unless its user, a byte order mark or its first bytes say otherwise. A guess is made
where the first bytes are no UTF-8, and is used only if it is likelier than any other.
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from math import inf, log
from typing import Any, NamedTuple, cast
from unicodedata import category

from streamlda_connectors.checks import fault

AUTO, UTF_8 = "auto", "utf-8"

#: Decoded bytes of a file that its encoding is found by, and how many of them a guess looks at.
HEAD_BYTES, SAMPLE_BYTES = 2**20, 64 * 1024

#: Encodings that a guess chooses from: those that offices, databases and older systems write.
GUESSED = (
    *("cp1252", "cp1250", "iso8859_2", "cp1251", "koi8_r", "cp866", "iso8859_5", "mac_cyrillic"),
    *("cp1253", "cp737", "mac_greek", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
    *("cp850", "cp852", "mac_roman", "cp932", "euc_jp", "gb18030", "big5", "cp949"),
)

#: How many times likelier than any other a reading that is used must be; and how many accented
#: letters foreign to its language it may have, besides two for each that the language has.
LIKELIER, LOANED = 20.0, 3

#: Ranks among the letters of a language of what is not among its most frequent: punctuation, Latin
#: letters and symbols, letters of other alphabets.
PUNCTUATION, LATIN, FOREIGN = 30, 1000, 30_000

#: Signs that stand within words; and of how many beyond ASCII one may be odd in text.
WITHIN_WORDS, ODDITIES = "\u2019\u2018\u2013\u2014\u2026\xb7\xad\xa0", 20

#: First letter of other alphabets than the Latin one.
OTHERS = "\u0250"

#: Zero bytes of a short text that are no evidence of UTF-16.
FEW_ZEROS = 4

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: UTF_8,
}

#: Files that are no text, by their first bytes, and what to do with them.
_ARCHIVE = "unpack it, or name a file in it: zip://NAME.csv::FILE.zip"
_SQL = "a dump of SQL", "export the table as CSV"
_KINDS = {
    b"PK\x03\x04": ("a zip archive or an office document", f"{_ARCHIVE}; a workbook ends in .xlsx"),
    b"\xd0\xcf\x11\xe0": ("an old office document", "save its sheet as CSV, or as .xlsx"),
    b"%PDF-": ("a PDF", "extract its text first, by pdftotext or pypdf"),
    b"SQLite format 3\0": ("a SQLite database", "export the table: sqlite3 -csv -header FILE"),
    b"ARROW1": ("an Arrow or Feather file", "write the table as Parquet"),
    b"PAR1": ("a Parquet file", "end its name in .parquet, or set the format to parquet"),
    **dict.fromkeys((b"-- MySQL dump", b"-- MariaDB dump", b"--\n-- PostgreSQL"), _SQL),
    **dict.fromkeys((b"\x80\x04\x95", b"\x80\x05\x95"), ("a pickle", "write the table as Parquet")),
    **dict.fromkeys((b"Obj\x01", b"\x89HDF"), ("Avro or HDF5", "write the table as Parquet")),
    **dict.fromkeys((b"7z\xbc\xaf", b"Rar!\x1a"), ("an archive", "unpack it")),
    b"{\\rtf": ("RTF", "save it as text"),
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff"), ("a picture", "leave it out (--include)")),
    b"\x1f\x8b": ("gzip", "end its name in .gz"),
    b"BZh": ("bzip2", "end its name in .bz2"),
    b"\xfd7zXZ\0": ("xz", "end its name in .xz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "end its name in .zst"),
}

_is_tar = re.compile(r"\.(tgz|tbz2?|txz|tar(\.(gz|bz2|xz|zst|z))?)$").search

#: Capitals within words, Latin letters before digits or three in a row, letters of another alphabet
#: next to one of ASCII, and symbols between letters or symbols.
_find_odd = re.compile(
    "[aeg](?=[EG])|[eg](?=[AEG])|[eE](?=1|[eE]{2})|[gG](?=[aA])|[aA](?=[gG])"
    "|(?<=[aegAEGs])s(?=[aegAEGs])"
).findall

#: Where another encoding of Windows has signs.
_find_controls = re.compile("[\x80-\x9f]").findall

_drop_quoted = re.compile(r'"[^"]*+"').sub

# Bytes that an encoding does not have become no UTF-8, so that their record is rejected.
codecs.register_error("streamlda.no-text", lambda error: ("\udcff", cast(Any, error).end))


def check_encoding(encoding: str) -> str:
    """Return the name of an encoding of text as Python has it, or ``"auto"``."""
    if encoding == AUTO:
        return AUTO
    with suppress(LookupError, UnicodeError):
        "".encode(encoding)
        return codecs.lookup(encoding).name.removesuffix("-sig")
    raise fault("encoding", encoding=encoding)


def name_kind(name: str, head: bytes) -> tuple[str, str] | None:
    """Return the kind of a file that is no text, and what to do with it; None of all others."""
    if _is_tar(name.lower()):
        return "a tar archive", "unpack it"
    return next((kind for mark, kind in _KINDS.items() if head.startswith(mark)), None)


class Encoding(NamedTuple):
    """Encoding of a file, and what ends its lines."""

    name: str = UTF_8
    carriage_returns: bool = False

    @property
    def is_stored(self) -> bool:
        """True if the stored bytes are read as they are."""
        return self.name == UTF_8 and not self.carriage_returns


def find_mark(head: bytes) -> str | None:
    """Return the encoding whose byte order mark a text begins with, if it does with one."""
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)


def find_encoding(head: bytes, given: str, *, is_csv: bool) -> tuple[Encoding, list[str]]:
    """Return the encoding of a file that begins with `head`, and what to say of a guess.

    `given` is the name of the encoding, or ``"auto"``.

    Lines end in carriage returns if no line feed is there but, in CSV, within quotes.
    """
    name, note = given, ""
    if given == AUTO:
        mark = find_mark(head)
        name, note = _guess(head) if mark is None else (mark, "")
    returns = b"\r" in head
    if returns:
        text = codecs.getincrementaldecoder(name)("replace").decode(head)
        returns = "\r" in text and "\n" not in (_drop_quoted("", text) if is_csv else text)
    return Encoding(name, returns), [note] * bool(note)


def _guess(head: bytes) -> tuple[str, str]:
    low, high = head[::2].count(0), head[1::2].count(0)
    for name, zeros, others in (("utf-16-le", high, low), ("utf-16-be", low, high)):
        # Half of the bytes of Western text in UTF-16 are zero, and next to none of other text.
        if zeros > max(FEW_ZEROS, len(head) // 8, 8 * others):
            return name, f"is read as {name}, since every second byte is zero"
    try:
        codecs.getincrementaldecoder(UTF_8)().decode(head)
        return UTF_8, ""
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes

    # Lines that are ASCII say nothing.
    lines = [line for line in head.splitlines(keepends=True) if not line.isascii()]
    sample = b"".join(lines)[:SAMPLE_BYTES]
    n_signs = len(sample.translate(None, bytes(range(128))))
    found = list(from_bytes(sample, cp_isolation=list(GUESSED)))
    odd = {id(match): _count_oddities(str(match)) for match in found}
    found = [match for match in found if odd[id(match)] == min(odd.values())]
    # Equal readings have the first name that the list above has for them.
    named = {str(match): min(match.could_be_from_charset, key=GUESSED.index) for match in found}
    likely = sorted(((*_weigh(text), text) for text in named), reverse=True)
    names = [named[text] for *_, text in likely]
    how = "name the encoding (--encoding) where that is wrong"
    if found and min(odd.values()) * ODDITIES <= n_signs:
        (best, loaned, _), second = likely[0], likely[1][0] if likely[1:] else -inf
        if best - second >= log(LIKELIER) and loaned <= LOANED:
            return names[0], f"is no UTF-8 and is read as {names[0]}; {how}"
    fits = f"; it may be {' or '.join(names)}" if names else ""
    return UTF_8, f"is no UTF-8{fits}: name its encoding (--encoding)"


def _weigh(text: str) -> tuple[float, int]:
    """Return the log likelihood in the best language, and accents foreign to it less twice own."""
    from charset_normalizer.constant import FREQUENCIES

    counts = Counter(sign for sign in text.lower() if sign.isalpha() or not sign.isascii())
    ranks: dict[str, dict[str, int]] = {}
    for language, letters in FREQUENCIES.items():
        # One language may have several scripts.
        ranks.setdefault(language.rstrip("\u2014"), {}).update(zip(letters, count(2), strict=False))
    others = {sign: _get_rank(sign) for sign in counts}
    best, found = max(
        (-sum(n * log(of.get(sign, others[sign])) for sign, n in counts.items()), language)
        for language, of in ranks.items()
    )
    accents = {sign: n for sign, n in counts.items() if _get_kind(sign) == "e"}
    return best, sum(-2 * n if sign in ranks[found] else n for sign, n in accents.items())


def _get_rank(sign: str) -> int:
    """Return the rank of a sign in languages that do not have it."""
    if category(sign).startswith("P"):
        return PUNCTUATION
    return FOREIGN if sign.isalpha() and sign >= OTHERS else LATIN


def _count_oddities(text: str) -> int:
    """Return how many signs beyond ASCII stand where no writer sets them."""
    kinds = {ord(sign): _get_kind(sign) for sign in set(text)}
    return len(_find_controls(text)) + len(_find_odd(text.translate(kinds)))


def _get_kind(sign: str) -> str:
    """Return a for letters of ASCII, e for other Latin ones, g for other alphabets, s, 1 or -."""
    if sign.lower() != sign.upper() or (sign.isalpha() and sign < OTHERS):
        kind = "a" if sign.isascii() else "e" if sign < OTHERS else "g"
        return kind.upper() if sign.isupper() else kind
    if sign.isdigit() and sign.isascii():
        return "1"
    return "-" if sign.isascii() or sign.isalpha() or sign in WITHIN_WORDS else "s"


class Recoder:
    """Bytes of one encoding as UTF-8, block by block."""

    def __init__(self, encoding: Encoding) -> None:
        decoder = codecs.getincrementaldecoder(encoding.name)
        # UTF-8 stays as it is: its faults are found record by record.
        self._decoder = None if encoding.name == UTF_8 else decoder("streamlda.no-text")
        self._carriage_returns = encoding.carriage_returns

    def feed(self, block: bytes, *, final: bool = False) -> bytes:
        """Return what a block completes."""
        if self._decoder is not None:
            block = self._decoder.decode(block, final).encode(UTF_8, "surrogateescape")
        return block.replace(b"\r", b"\n") if self._carriage_returns else block


def recode(blocks: Iterator[bytes], encoding: Encoding) -> Iterator[bytes]:
    """Yield blocks as UTF-8, none of them empty."""
    recoder = Recoder(encoding)
    yield from filter(None, map(recoder.feed, blocks))
    if found := recoder.feed(b"", final=True):
        yield found
