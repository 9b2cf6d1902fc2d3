"""Parts that are removed from texts before they are split."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.stream.counts import RecordCounts
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.cleaning import STEPS, clean_text
from streamlda.text.vocabulary import Vocabulary
from tests.cli.conftest import ALL_WORDS, run

UUENCODED = "M" + "AX<'(MAX" * 7 + "PL)@"
BASE64 = "QmFzZSA2NCBpcyBub3QgdGV4dCBhbmQgbXVzdCBub3QgYmUgc3BsaXQgaW50byB3b3Jkcwaa"


@pytest.mark.parametrize(
    ("text", "kept", "removed"),
    [
        ("see https://a.org/b?c=d&e now, www.x.de too", "see now, too", {"urls": 2}),
        ("mail jo.b+c@mail.example.org or @home", "mail or @home", {"emails": 1}),
        (
            "<p class='a'>one</p> a<b <br/>&amp;&nbsp;caf&eacute; &#252;",
            "one a<b & café ü",
            {"html": 7},
        ),
        ("<file> of <unsigned int>, a <b and c> d", "<file> of <unsigned int>, a <b and c> d", {}),
        ("<x/>one</y><z a=b>two <h2 >x</h2 ><A>y", "one two x y", {"html": 6}),
        ("a <script>var b = 1 < 2;</script> c <!-- d --> e", "a c e", {"html": 2}),
        (f"begin 644 a\n{UUENCODED}\nend", "begin 644 a end", {"attachments": 1}),
        (f"base64\n{BASE64}\nafter", "base64 after", {"attachments": 1}),
        ("a@b.co@d.ef g", "@d.ef g", {"emails": 1}),
        ("a@b.co+gh@d.ef g a@b.co +gh@d.ef", "+gh@d.ef g", {"emails": 3}),
        ("<b x=1 <i> y> z http://a.b caf&eacute;", "<b x=1 y> z café", {"html": 2, "urls": 1}),
        (f"{'a' * 65}@b.co", f"{'a' * 65}@b.co", {}),
        (f"{'a' * 64}@b.co", "", {"emails": 1}),
        ("AT&T; 3 > 2; a@b", "AT&T; 3 > 2; a@b", {}),
        ("ftp://a httphttps://b :// www. xhttp://c", "http :// www. x", {"urls": 3}),
        ("see://a www.b.://c http://www.d, www", "see://a www", {"urls": 2}),
    ],
)
def test_what_is_no_text_is_removed_and_counted(text, kept, removed):
    assert len(UUENCODED) == 61
    found = Counter()
    assert clean_text(text, STEPS, found).split() == kept.split()
    assert found == removed
    assert clean_text(text, ()) == text


#: One expression for all markup, as slow as the square of a text.
MARKUP = re.compile(
    r"<(script|style)\b.*?</\1\s*>|<(?:a|style)\s*>|</[a-z][a-z0-9]*\s*>|<!--.*?-->"
    r"|<[a-z][a-z0-9]*(?:\s[^<>]*=[^<>]*|\s*/|\s[^<>]*/)>",
    re.IGNORECASE | re.DOTALL,
)
PIECES = st.sampled_from(["<script", "</Script", "<STYLE", "</style ", "<!--", "-->"]) | (
    st.sampled_from(["<a", "<x ", ">", "=", "/", "b", " "])
)


@given(st.lists(PIECES, max_size=20).map("".join))
def test_markup_is_found_as_by_one_expression(text):
    assert clean_text(text, ["html"]) == MARKUP.sub(" ", text)


@pytest.mark.parametrize(
    "piece", ["<script ", "<!-- ", "<style><script </script x", "=", "</a", "://", "a@b"]
)
def test_a_long_text_of_unfinished_pieces_is_read_in_linear_time(piece):
    """Time that grows as the square would be minutes for these 500 kB."""
    text = "<a " + piece * (500_000 // len(piece))
    assert len(clean_text(text, STEPS)) > len(text) / 2


@pytest.mark.parametrize("made", [TextAnalyzer(), TextAnalyzer(ngram_range=(1, 2))])
def test_the_same_is_learned_and_counted(made):
    texts = ["see www.x.de cats", "cats & <b>dogs</b> été", "don@x.org cats"]
    learned = Vocabulary.learn(texts, analyzer=made)
    assert {"see", "cats", "dogs", "été"} <= set(learned.words)
    assert not {"www", "org", "de"} & set(learned.words)
    encoded = learned.encode(texts)
    assert encoded.unseen_tokens == 0
    assert encoded.removed == {"urls": 1, "html": 2, "emails": 1}
    counts = RecordCounts(documents=3)
    counts.add_encoded(encoded, 3)
    counts.add_encoded(encoded, 3)
    assert counts.removed == {"urls": 2, "html": 4, "emails": 2}
    plain = Vocabulary.learn(texts, analyzer=TextAnalyzer(clean=()))
    assert "www" in plain.words
    assert TextAnalyzer(clean=["html", "urls"]).clean == ("urls", "html")


def test_fit_says_what_was_removed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(["apple bread cheese http://a.b", "dates eggs figs a@b.de"] * 30))
    fitted = run("fit", path, "-k", 2, "-o", tmp_path / "m", *ALL_WORDS)
    assert "removed from texts: emails 30, urls 30" in fitted.stderr
    fitted = run("fit", path, "-k", 2, "-o", tmp_path / "m", *ALL_WORDS, "vocabulary.clean=none")
    assert "removed from" not in fitted.stderr
