"""Options and paths that sources refuse: rule and value."""

import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda_connectors.files import FileSource
from streamlda_connectors.follow import FollowSource
from streamlda_connectors.kafka import KafkaSource
from streamlda_connectors.stdin import StdinSource


@pytest.mark.parametrize(
    ("kind", "paths", "options", "match"),
    [
        (FileSource, "a.eml", {}, r"a\.eml'; extract their text first \(\S+mail-and-html\.md\)"),
        (FileSource, "a.html", {}, r"a\.html'; extract their text"),
        (FileSource, "a.txt", {"format": "mbox"}, r"format='mbox'.*mail-and-html\.md"),
        (FileSource, "a.txt", {"max_document_bytes": 0}, "max_document_bytes=0"),
        (FileSource, "a.txt", {"user_field": "id"}, "fields, got format='text' user_field='id'"),
        (FileSource, "a.txt", {"records_field": "data"}, "in the format json, got format='text'"),
        (FileSource, "a.txt", {"encoding": "klingon"}, "encoding='klingon'"),
        (FileSource, "a.txt", {"encoding": "base64"}, "encoding='base64'"),
        (KafkaSource, "t", {"encoding": "hex", "bootstrap_servers": "x:1"}, "encoding='hex'"),
        (FollowSource, "a", {"format": "csv"}, "format='csv'"),
        (FollowSource, "a", {"format": "text", "user_field": "u"}, "user_field='u'"),
        (FollowSource, "a", {"max_document_bytes": 0}, "max_document_bytes=0"),
        (FollowSource, "s3://bucket/a", {}, "path='s3://bucket/a'"),
        (FollowSource, "a.log.gz", {}, r"path='a\.log\.gz'"),
        (FollowSource, [], {}, r"paths=\[\]"),
        (StdinSource, None, {"format": "csv"}, "format='csv'"),
        (StdinSource, None, {"max_document_bytes": 0}, "max_document_bytes=0"),
        (StdinSource, None, {"user_field": "id"}, "format with fields"),
        (FileSource, "a.txt", {"format": "file", "id_field": "id"}, "ids can only be read from a"),
        *(
            (FileSource, "a.txt", {"delimiter": delimiter}, "one ASCII character")
            for delimiter in ("", ";;", '"', "\n", "\r", " ", "é")
        ),
    ],
)
def test_a_source_is_refused(kind, paths, options, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "a.eml", "a.html"):
        (tmp_path / name).touch()
    with pytest.raises((InvalidSettingError, SourceError), match=match):
        kind(paths, **options)
