"""Arrays of JSON, mail and pages: one record for each item or message, wherever blocks end."""

import gzip
import json
import mailbox
import math
from contextlib import closing
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.stream.source import Reject
from streamlda_connectors.files import FileSource
from streamlda_connectors.json_values import JsonSplitter
from streamlda_connectors.mail import MboxSplitter, mail_parser, text_of_page
from streamlda_connectors.records import ReadOptions, Rejected, Skipped
from tests.connectors.checks import SOURCE_CHECKS, Case

PAGE = """<!DOCTYPE html><html><head><title>The Sea</title><style>p {color: red}</style></head>
<body><p>Waves &amp; wind</p><script>var hidden = "<p>never</p>";</script>
<ul><li>in<b>side</b></li><li>end</li></ul></body></html>"""
READ = "The Sea\nWaves & wind\ninside\nend"


def message(subject, text, html=None):
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "Zoë <zoe@example.org>", subject
    mail["Message-ID"], mail["Date"] = f"<{subject}@example.org>", "Thu, 1 Jan 1970 01:00:10 +0100"
    mail.set_content(text)
    if html:
        mail.add_alternative(html, subtype="html")
    mail.add_attachment(b"\0" * 99, maintype="image", subtype="png")
    return mail


@pytest.fixture
def folder(tmp_path):
    pages = EmailMessage()
    pages["Subject"] = "page"
    pages.set_content(PAGE, subtype="html")
    with closing(mailbox.mbox(tmp_path / "c.mbox")) as box:
        for name in ("one", "two"):
            box.add(message(name, f"text of {name}\nFrom here on\n\nFrom there", PAGE))
    files = {
        "a.json": b' [{"text": "a]b,"}, \n{"text": "c\\"}", "of": [1, {}]},7,{"no": 1}]\n',
        "b.json": b'\n{\n "text": "over\\nlines"\n}\n{"text":\n"again"}\n',
        "d.eml": pages.as_bytes(),
        "e.html": PAGE.encode(),
        "f.htm": '<meta charset="latin-1"><p>caf\u00e9'.encode("latin-1"),
        "g.eml": b"no headers at all\n",
        "h.html": b"\xff",
        "i.json": b"[]",
        "j.json": b'{"text": "a line"}\n{"text": "',
        "k.html": b"<p>&#" + b"9" * 6000 + b";",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_a_folder_passes(check, folder):
    mails = [f"{name}\n\ntext of {name}\n>From here on\n\n>From there" for name in ("one", "two")]
    reasons = [
        *(("a.json", 3, "not-an-object"), ("a.json", 4, "missing-field")),
        *(("g.eml", 1, "not-a-message"), ("h.html", 1, "not-utf8"), ("j.json", 2, "not-json")),
        ("k.html", 1, "not-a-page"),
    ]
    whole = [str(folder / name) for name in ("d.eml", "e.html", "f.htm")]
    texts = ["a]b,", 'c"}', "over\nlines", "again", *mails, f"page\n\n{READ}", READ, "café"]
    check(
        Case(
            lambda: FileSource(folder),
            [*texts, "a line"],
            [Reject(str(folder / name), record, reason) for name, record, reason in reasons],
            blank_lines=2,
            ids=[None, None, None, None, None, None, *whole, None],
        )
    )


ALTERNATIVES = (
    "Content-Type: multipart/alternative; boundary=C\n\n--C\nContent-Type: text/plain\n\nplain\n"
    "--C\nContent-Type: text/html\n\n<p>page\n--C--\n"
)
MIXED = "Content-Type: multipart/mixed; boundary=B\n\n"


@pytest.mark.parametrize(
    ("head", "data", "text"),
    [
        ("Content-Type: text/plain\n\n", "Größe naïve".encode(), "Größe naïve"),
        ("Content-Type: text/plain\n\n", "Größe €".encode("windows-1252"), "Größe €"),
        ("Content-Type: text/plain; charset=utf-8\n\n", "Größe".encode("latin-1"), "Größe"),
        ("Content-Type: text/plain; charset=utf-8\n\n", "Größe".encode() + b"\xc3", "Größe\ufffd"),
        ("Content-Type: text/plain; charset=koi8-r\n\n", "Мир".encode("koi8-r"), "Мир"),
        ("Content-Type: text/plain; charset=of-nobody\n\n", "Größe".encode(), "Größe"),
        (MIXED, b"--B\n\none\n--B\n\ntwo\n--B--\n", "one\n\ntwo"),
        (MIXED, f"--B\n{ALTERNATIVES}\n--B\n\ntwo\n--B--\n".encode(), "plain\n\ntwo"),
        (
            MIXED,
            b"--B\n\none\n--B\nContent-Disposition: attachment\n\nfile\n--B--\n",
            "one",
        ),
        (MIXED, b"no border", "no border"),
    ],
)
def test_what_a_mail_says_is_read_whatever_it_says_of_itself(head, data, text):
    parse = mail_parser(ReadOptions("body"))
    assert parse(b"From: a\n" + head.encode() + data)[0] == text


def test_a_long_header_of_a_part_is_read_to_a_bound():
    """Time that grows as the square would be hours for these 300 kB."""
    parse = mail_parser(ReadOptions("body"))
    for piece in ('"', ";a=", "<", ";a*0=b"):
        head = f"From: a\nContent-Type: text/plain; {piece * (300_000 // len(piece))}\n\n"
        assert parse(head.encode() + b"hello")[0] == "hello"


def test_a_mail_of_too_many_parts_is_refused():
    parse = mail_parser(ReadOptions("body"))
    parts = {n: b"--B\nContent-Type: text/plain\n\none\n" * n for n in (999, 1000)}
    head = b"From: a\n" + MIXED.encode()
    assert parse(head + parts[999] + b"--B--\n")[0].count("one") == 999
    with pytest.raises(Rejected, match="not-a-message"):
        parse(head + parts[1000] + b"--B--\n")


@pytest.mark.parametrize(
    ("name", "data", "texts", "lost"),
    [
        ("a.json", b'["a", {"text": "b"}]', ["a", "b"], None),
        ("a.json", b'["a", "b"]\n', ["a", "b"], None),
        ("a.json", b'["a"]]', ["a"], 1),
        ("a.json", b'["a"] more', ["a"], 5),
        ("a.json", b'["a", "b', ["a"], 8),
        ("a.json", b'["a", ', ["a"], 6),
        ("a.json", b'[{"text": "a"}, {"text": "b", {"text": "c"}]', ["a"], 44),
        ("a.json", b'{\n"text": "a"}\n{"text":', ["a"], 23),
        ("a.csv", b'text\na\n"b', ["a"], 2),
        ("a.csv", b'text\na\n"b\nc\nd"\n', ["a", "b\nc\nd"], None),
    ],
)
def test_what_a_file_loses_by_its_end_is_known(tmp_path, name, data, texts, lost):
    path = tmp_path / name
    path.write_bytes(data)
    with closing(FileSource(path)) as source:
        batch = source.poll(9)
    assert batch.documents == texts
    assert [file.lost_bytes for file in batch.damage] == ([] if lost is None else [lost])
    with gzip.open(f"{path}.gz", "wb") as file:
        file.write(data)
    with closing(FileSource(f"{path}.gz")) as source:
        batch = source.poll(9)
    assert batch.documents == texts
    size = (tmp_path / f"{name}.gz").stat().st_size
    if lost is None:
        assert not batch.damage
    else:
        part = 1 if lost == len(data) else lost / len(data)
        assert batch.damage[0].lost_bytes == math.ceil(part * size)


def test_headers_are_fields(folder):
    fields = {"id_field": "Message-ID", "user_field": "from", "time_field": "date"}
    with closing(FileSource([folder / "c.mbox", folder / "d.eml"], **fields)) as source:
        batch = source.poll(9)
    assert [at.id for at in batch.locations] == ["<one@example.org>", "<two@example.org>", None]
    assert batch.users == ["Zoë <zoe@example.org>"] * 2 + [None]
    assert batch.times == [10.0, 10.0, None]
    with closing(FileSource(folder / "c.mbox", text_field="subject")) as source:
        assert source.poll(9).documents == ["one", "two"]


def pieces(splitter, data, cuts):
    """Feed data in pieces; return the records."""
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    found = []
    for start, end in zip([0, *ends], ends, strict=False):
        found += splitter.feed(data[start:end]) if end > start else []
    return found + list(splitter.finish())


NAMES = st.sampled_from(["a", '"', "]}", "\\"])
JSON = st.recursive(
    st.text(st.sampled_from('a"\\]}[{,\n'), max_size=5) | st.integers(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=6,
)
CUTS = st.lists(st.integers(0, 80), max_size=12)


@given(st.lists(JSON, min_size=1, max_size=4), CUTS, st.sampled_from([None, 0, 2]))
def test_an_array_is_cut_into_its_items(items, cuts, indent):
    data = json.dumps(items, indent=indent).encode()[1:] + b"\n"
    for ends in (cuts, range(len(data))):
        found = pieces(JsonSplitter(10**6, array=True), data, ends)
        assert [json.loads(item) for item in found] == items


@given(st.lists(st.dictionaries(NAMES, JSON, max_size=2), min_size=1, max_size=3), CUTS)
def test_objects_over_lines_are_cut_between_them(items, cuts):
    data = b"".join(json.dumps(item, indent=1).encode() + b"\n" for item in items)
    found = pieces(JsonSplitter(10**6, array=False), data, cuts)
    assert [json.loads(item) for item in found] == items


def quoted(body):
    """Return lines that are no postmark."""
    before = ["From x", *body]
    return [
        f">{line}" if line[:5] == "From " and not last.strip() else line
        for last, line in zip(before, body, strict=False)
    ]


@given(st.lists(st.lists(st.sampled_from(["From a", "b", "", "\r", "long " * 9]))), CUTS)
def test_messages_are_cut_at_postmarks_behind_blank_lines(bodies, cuts):
    sent = ["\n".join(["From x", *quoted(body), ""]) for body in bodies]
    data = "".join(f"{each}\n" for each in sent).encode()
    expected = [
        Skipped(len(each), "too-long") if len(each) > 30 else each.encode() for each in sent
    ]
    assert pieces(MboxSplitter(30), data, cuts) == expected


def test_a_long_item_costs_only_itself(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"text": text} for text in ("a", "b" * 99, "c")]), "ascii")
    with closing(FileSource(path, max_document_bytes=50)) as source:
        batch = source.poll(9)
    assert batch.texts == ["a", None, "c"]
    assert batch.rejects == [Reject(str(path), 2, "too-long")]


def test_a_page_without_ends_is_read():
    assert text_of_page("<p>one<div>two<br>three &nbsp;<style>x") == "one\ntwo\nthree"
    assert text_of_page("no markup < 3 > 2") == "no markup < 3 > 2"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a<p>b<br/>c</p d", "a\nb\nc"),
        ("a <b class='x", "a"),
        ("a <!-- b <p>c", "a"),
        ("a &amp", "a &"),
        ("a &am", "a &am"),
        ("a<![if !IE]>b<![endif]-->c<!x>d", "abcd"),
        ("a<![CDATA[b]]>c<![ x>d", "acd"),
    ],
)
def test_unfinished_markup_is_left_out_and_no_declaration_is_an_error(page, text):
    assert text_of_page(page) == text


@pytest.mark.parametrize(
    "piece", ["<script ", "<!--", '<a b="', "<a/ ", "</", "<?x", "<![if ", "<!d", " ", "&#", "<a>"]
)
def test_a_long_page_of_unfinished_markup_is_read_in_linear_time(piece):
    """Time that grows as the square would be hours for these 2 MB."""
    assert text_of_page(f"<p>one</p>{piece * (2_000_000 // len(piece))}<p>").startswith("one")
