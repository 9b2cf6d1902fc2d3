"""Mail and web pages as documents, by the standard library."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser
from email.policy import EmailPolicy
from html.parser import HTMLParser
from itertools import islice
from typing import Any

from streamlda_connectors.lines import Field, LineSplitter, decoder, document_reader
from streamlda_connectors.records import Document, Parser, ReadOptions, Record, Rejected, Skipped

#: How the line before a message in a file of several begins.
_POSTMARK = b"From "

#: How a part is to be read: headers of a mail that say it, and characters of one. The package takes
#: the square of their length.
_CONTENT = re.compile(rb"^content-", re.IGNORECASE | re.MULTILINE)
_MOST_CONTENT_LINES, _MOST_CONTENT_CHARACTERS = 1000, 500

#: How a page says what its encoding is.
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)

#: Elements whose text is not read, and those that a word does not reach across.
_UNREAD = frozenset(("script", "style", "template"))
_INSIDE = frozenset(
    re.findall(
        "[a-z]+",
        "a abbr b bdi bdo cite code em font i ins kbd mark q s small span strong sub sup tt u var "
        "wbr",
    )
)


class MboxSplitter(LineSplitter):
    """Cut before each line that begins with ``From`` and a space, after a blank line."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._lines = LineSplitter(max_bytes)
        self._begun = self._blank = False

    def feed(self, block: bytes) -> Sequence[Record]:
        """Return the messages that `block` completes."""
        return self._messages(self._lines.feed(block))

    def finish(self) -> Sequence[Record]:
        """Return the last message."""
        return [*self._messages(self._lines.finish()), *super().finish()]

    def _messages(self, lines: Sequence[Record]) -> Sequence[Record]:
        found: list[Record] = []
        for line in lines:
            if isinstance(line, Skipped):
                self._size += line.size + self._begun
                self._tail.clear()
                self._begun, self._blank = True, False
                continue
            if self._blank and line.startswith(_POSTMARK):
                found.append(self._complete())
                self._begun = False
            self._extend(b"\n" + line if self._begun else line)
            self._begun, self._blank = True, not line.rstrip(b"\r")
        return found


class _Policy(EmailPolicy):
    def header_fetch_parse(self, name: str, value: str) -> Any:
        """Return a header; of one that says how a part is to be read, its beginning."""
        if name.lower().startswith("content-"):
            value = value[:_MOST_CONTENT_CHARACTERS]
        return super().header_fetch_parse(name, value)


def mail_parser(options: ReadOptions) -> Parser:
    """Return the parser of one message: subject and body, or any of its headers as fields."""
    document = document_reader(options, _value_of)
    parser = BytesParser(policy=_Policy())

    def parse(data: bytes) -> Document | None:
        if not data.strip():
            return None
        if data.startswith(_POSTMARK):
            data = data.partition(b"\n")[2]
        if next(islice(_CONTENT.finditer(data), _MOST_CONTENT_LINES, None), None) is not None:
            raise Rejected("not-a-message")
        try:
            message = parser.parsebytes(data)
            if not message.keys():
                raise Rejected("not-a-message")
            return document(message)
        except Rejected:
            raise
        except LookupError as error:
            raise Rejected("bad-encoding") from error
        except Exception as error:  # the package raises many kinds on what is malformed
            raise Rejected("not-a-message") from error

    return parse


def _value_of(message: EmailMessage, field: Field) -> object:
    name = field[0].lower()
    if name == "text":
        subject = message["subject"]
        return "\n\n".join(part for part in (subject and str(subject), _body(message)) if part)
    if name == "body":
        return _body(message)
    value = message[name]
    if value is None:
        return None
    return getattr(value, "datetime", None) if name == "date" else str(value)


def _body(message: EmailMessage) -> str:
    return "\n\n".join(text for text in _texts(message) if text)


def _texts(part: MIMEPart) -> Iterator[str]:
    """Yield the texts of a part that are no attachment; of alternatives one, the plain first."""
    kind, subtype = part.get_content_maintype(), part.get_content_subtype()
    if part.is_attachment():
        return
    if part.is_multipart() and subtype in ("alternative", "related"):
        chosen = part.get_body(("plain", "html"))
        if chosen is not None:
            yield _text_of(chosen)
    elif part.is_multipart() and kind == "multipart":
        for each in part.iter_parts():
            yield from _texts(each)
    elif kind == "multipart" or (kind == "text" and subtype in ("plain", "html")):
        yield _text_of(part)


def _text_of(part: MIMEPart) -> str:
    data, named = part.get_payload(decode=True), part.get_content_charset("us-ascii")
    assert isinstance(data, bytes)
    text = _decoded(data, named)
    return text_of_page(text) if part.get_content_subtype() == "html" else text.strip()


def _decoded(data: bytes, named: str) -> str:
    """Decode what may be in another encoding than it says: UTF-8, or Windows-1252."""
    for encoding in (named, "utf-8"):
        try:
            return data.decode(encoding)
        except (LookupError, UnicodeDecodeError):
            continue
    text = data.decode(named, errors="replace")
    if 2 * text.count("\ufffd") > len(text) - sum(map(str.isascii, text)):
        return data.decode("windows-1252", errors="replace")
    return text


def page_parser(encoding: str) -> Parser:
    """Return the parser of one page of HTML, in the encoding that it names itself, if it does."""
    given = decoder(encoding)

    def parse(data: bytes) -> Document | None:
        page = _decode(data, given)
        try:
            text = text_of_page(page)
        except ValueError as error:  # of the package: a character with thousands of digits
            raise Rejected("not-a-page") from error
        return (text, None, None, None) if text else None

    return parse


def _decode(data: bytes, given: Callable[[bytes], str]) -> str:
    named = _CHARSET.search(data, 0, 2048)
    try:
        return given(data)
    except Rejected:
        if named is None:
            raise
    try:
        return data.decode(named[1].decode())
    except (LookupError, UnicodeDecodeError) as error:
        raise Rejected("bad-encoding") from error


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._unread: str | None = None

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _UNREAD and self._unread is None:
            self._unread = tag
        self._between(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._unread:
            self._unread = None
        self._between(tag)

    def handle_data(self, data: str) -> None:
        if self._unread is None:
            self.pieces.append(data)

    def parse_html_declaration(self, i: int) -> int:
        # As browsers do: it ends at the first ">", and what it declares is no error.
        return self.parse_bogus_comment(i)

    def _between(self, tag: str) -> None:
        if tag not in _INSIDE:
            self.pieces.append("\n")


def text_of_page(page: str) -> str:
    """Return what a page of HTML says, without markup, scripts and styles. Time O(characters).

    As browsers do, it leaves out what follows a tag or comment that is not finished.
    """
    reader = _Page()
    # Never closed: it would take what is not finished for text, in the square of the time. The
    # line end shows that a character reference before it is whole.
    reader.feed(f"{page}\n")
    lines = "".join(reader.pieces).split("\n")
    return "\n".join(line for line in map(str.strip, lines) if line)
