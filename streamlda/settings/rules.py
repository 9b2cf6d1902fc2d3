"""Which settings of ``streamlda run`` go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def clashes(values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with settings that are right one by one, a line each.

    Parameters
    ----------
    values : mapping
        A value for each name of `streamlda.settings.table.TABLE`.
    """
    of = values.__getitem__
    kafka, words, private = of("source.kind") == "kafka", of("words.kind"), of("privacy.epsilon")
    by_user = of("privacy.unit") == "user"
    rules = [
        (kafka and not of("kafka.bootstrap"), "kafka.bootstrap must be set to read from Kafka"),
        (kafka and not of("kafka.topic"), "kafka.topic must be set to read from Kafka"),
        (
            kafka and of("source.format") not in ("json", "text"),
            "source.format must be json or text for Kafka",
        ),
        (
            of("source.kind") == "follow" and of("source.format") not in ("json", "text"),
            "source.format must be json or text to follow files",
        ),
        (
            of("source.kind") == "files" and of("source.allow_gaps"),
            "source.allow_gaps must not be set for kind files, which have none",
        ),
        (not kafka and not of("source.files"), "source.files must be set to read files"),
        (
            not kafka and of("dead_letters.topic"),
            "dead_letters.topic must have source.kind kafka",
        ),
        (
            (of("output.topic") or of("dead_letters.topic")) and not of("kafka.bootstrap"),
            "kafka.bootstrap must be set to write to topics",
        ),
        (
            of("topics.map_file") and (private or of("topics.solver") != "whitened-tensor"),
            "topics.map_file goes with solver whitened-tensor and without privacy",
        ),
        (
            of("topics.refine")
            and (private or of("topics.map_file") or of("topics.solver") != "whitened-tensor"),
            "topics.refine must be left out with privacy, topics.map_file or another solver than "
            "whitened-tensor",
        ),
        (
            of("topics.map_file") and words != "hashed",
            "topics.map_file brings its own words: words.kind must be left out",
        ),
        (
            of("kafka.protocol").startswith("SASL")
            and not (of("kafka.username") and of("kafka.password") and of("kafka.mechanism")),
            "kafka.mechanism, kafka.username and kafka.password_file must be set for SASL",
        ),
        ((words == "given") != bool(of("words.file")), "words.file goes with words.kind given"),
        (
            of("http.port") and of("http.host") not in LOOPBACK and not of("http.token"),
            "http.token_file must be set unless http.host is loopback",
        ),
        (
            of("dead_letters.with_text") and not of("dead_letters.topic"),
            "dead_letters.topic must be set for dead_letters.with_text",
        ),
        (
            not private and of("topics.solver") == "noisy-power",
            "topics.solver noisy-power must have privacy.epsilon",
        ),
        (
            not private and (of("privacy.delta") or of("privacy.ledger")),
            "privacy.delta and privacy.ledger must have privacy.epsilon",
        ),
        (not private and words == "selected", "words.kind selected must have privacy.epsilon"),
    ]
    if private:
        rules += [
            (not of("privacy.delta"), "privacy.delta must be set with privacy.epsilon"),
            (not of("privacy.ledger"), "privacy.ledger must be set with privacy.epsilon"),
            (
                of("source.kind") == "follow"
                and (len(of("source.files")) != 1 or set(of("source.files")[0]) & set("*?[")),
                "source.files must name one file with privacy: between files that grow, places "
                "would depend on how long documents are",
            ),
            (
                of("topics.documents_per_round") or of("topics.memory_documents"),
                "topics.documents_per_round and topics.memory_documents are not for private runs",
            ),
            (words == "learned", "words.kind must not be learned with privacy: words are data"),
            (by_user and words == "selected", "words.kind must not be selected for users"),
            (
                kafka and not of("kafka.partitions").isdecimal(),
                "kafka.partitions must be one number with privacy: between partitions, places "
                "would depend on how long documents are",
            ),
            (
                by_user and not (of("source.user_field") and of("privacy.documents_per_user")),
                "source.user_field and privacy.documents_per_user must be set for users",
            ),
            (
                not by_user and of("privacy.documents_per_user") is not None,
                "privacy.documents_per_user must have privacy.unit user",
            ),
            (
                (by_user or of("privacy.mode") == "prefix") and not of("snapshots.most"),
                "snapshots.most must be set for users and in prefix mode",
            ),
            (
                of("topics.solver") == "online-power",
                "topics.solver must not be online-power with privacy: noisy-power is its private "
                "form",
            ),
        ]
    return [problem for wrong, problem in rules if wrong]
