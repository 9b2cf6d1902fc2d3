"""The one table of settings: each is declared here once, and nowhere else.

A setting is a field of a section. From its one entry follow its place in the settings file
(``[section]`` ``key = ...``), its environment variable (``STREAMLDA_SECTION_KEY``), its name for
``--set``, its flag where a command shows one, its parameter of `StreamLDA` if it has one, its
checks and its help.
`streamlda.settings.load` reads values; `streamlda.settings.rules` says which go together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from streamlda.settings.setting import FIT, INFER, RUN, Secret, Setting, entry, make_setting
from streamlda.stream.credentials import MECHANISMS, PROTOCOLS
from streamlda.stream.event_time import MOST_AHEAD_SECONDS, UNITS

if TYPE_CHECKING:
    from streamlda.model.topic_model import TopicModel
    from streamlda.privacy.clipping import ClipBounds

MIB = 2**20

#: Settings of the daemon, of ``streamlda infer`` and of the estimator, alone.
RUN_ONLY, INFER_ONLY, ESTIMATOR_ONLY = (RUN,), (INFER,), ()


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """Source of the documents, and how their records are read."""

    kind: str = entry(
        "text", "auto", "A Kafka topic, files once (- is standard input), or files that grow and "
        "folders that fill; auto decides by kafka.topic and source.files.",
        choices=("auto", "kafka", "files", "follow"), flag="--source-kind")
    files: tuple[str, ...] = entry(
        "list", (), "Files, folders, patterns and fsspec URLs, in order.", flag="SOURCE")
    include: str | None = entry(
        "text", None, "Patterns, such as *.json,*.md, one of which files of folders must match; "
        "default: all files.", flag="--include")
    format: str = entry(
        "text", "auto", "Form of records: text is a document a line, file a document a file, json "
        "lines or one array or table, registry Avro or JSON with schemas; auto: by file name "
        "(other names: text, in folders file), from Kafka and files that grow jsonl.",
        choices=("auto", "text", "file", "jsonl", "json", "csv", "parquet", "registry"),
        flag="--format")
    text_field: str = entry(
        "text", "text", "Key or column of the text; a.b for nested ones, title,body for several.")
    records_field: str | None = entry(
        "text", None, "Key of the array of records in a JSON object, such as data.")
    user_field: str | None = entry(
        "text", None, "Key or column of the user who wrote the document, text or an integer.")
    time_field: str | None = entry(
        "text", None, "Key or column of the event time, in UTC without an offset; @record is the "
        "timestamp of the Kafka record.")
    time_format: str | None = entry(
        "text", None, "Form of event times, as %d/%m/%Y %H:%M, or unix or excel for numbers; "
        "default: ISO 8601 and common forms; all values of files tell day from month.")
    most_ahead: float = entry(
        "seconds", MOST_AHEAD_SECONDS, "Most that an event time may be ahead of the clock; later "
        "documents are learned from and counted as ahead, in no bin.", least=0)
    id_field: str | None = entry(
        "text", None, "Key or column of the id of a record; text or an integer, shown with "
        "representative documents, by infer and on the map of a report; default: file and number.")
    class_field: str | None = entry(
        "text", None, "Key or column of the class of a record; text or an integer, such as a "
        "section or a rating.", commands=("report",))
    encoding: str = entry(
        "text", "auto", "Encoding of text, such as cp1252 or utf-16; auto: UTF-8, or of files "
        "that of a byte order mark, or a guess, which is reported.")
    delimiter: str | None = entry(
        "text", None, "Delimiter of csv, one character or tab; default: by the header.")
    max_record: int = entry(
        "bytes", 16 * MIB, "Longer records are rejected.", least=1, flag="--max-record")
    stream: str | None = entry(
        "text", None, "Name of the stream in models, and in the ledger where the source has no "
        "name (standard input, matrices); default: the source.", parameter="stream")
    allow_gaps: bool = entry(
        "bool", False, "Continue after records that are gone (retention, truncation), and record "
        "the gap.")
    most_lost: float = entry(
        "number", 0.1, "Write the model but exit with 65 when more than this fraction of records "
        "is rejected, or of bytes lost to damage.", least=0, most=1, commands=(FIT, INFER))


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Connection to a Kafka cluster, and the topic to read."""

    bootstrap: str | None = entry("text", None, "Brokers, host:port,host:port.")
    topic: str | None = entry("topic", None, "Topic of records.")
    partitions: str = entry(
        "text", "all", "all, a list such as 0,3, or group: members of kafka.group, with one "
        "checkpoint.folder, divide them.")
    start: str = entry(
        "text", "earliest", "Start without a checkpoint (infer: without an offset of the group).",
        choices=("earliest", "latest"))
    group: str | None = entry(
        "text", None, "Consumer group: shares partitions, shows lag, names a private ledger.")
    protocol: str = entry("text", "PLAINTEXT", "Security of the connection.", choices=PROTOCOLS)
    mechanism: str | None = entry("text", None, "SASL mechanism.", choices=MECHANISMS)
    username: str | None = entry(
        "text", None, "SASL user; with kafka.token_endpoint, the id of the client.")
    password: Secret | None = entry(
        "secret", None, "SASL password; with kafka.token_endpoint, the secret of the client.")
    token: Secret | None = entry(
        "secret", None, "OAUTHBEARER token that another program renews; read at each login.")
    token_endpoint: str | None = entry(
        "text", None, "https:// address that gives OAUTHBEARER tokens (OAuth 2.0 client "
        "credentials; http:// on this machine); SSL_CERT_FILE has authorities to trust.")
    token_scope: str | None = entry("text", None, "Scope to ask kafka.token_endpoint for.")
    token_extensions: str | None = entry(
        "text", None, "SASL extensions that go with OAUTHBEARER tokens, name=value,name=value.")
    kerberos_service: str | None = entry(
        "text", None, "Name of the brokers' service for GSSAPI; default: kafka.")
    ca_file: str | None = entry("text", None, "Certificates of the authorities that are trusted.")
    certificate_file: str | None = entry("text", None, "Certificate of this client.")
    key_file: str | None = entry("text", None, "Key of this client, without a password.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Registry of the schemas of Kafka records."""

    url: str | None = entry(
        "text", None, "Schema registry, https://host:port.")
    username: str | None = entry("text", None, "User of the schema registry.")
    password: Secret | None = entry("secret", None, "Password of the user.")
    ca_file: str | None = entry(
        "text", None, "Certificates that are trusted; default: SSL_CERT_FILE, or certifi's.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularySettings:
    """Words that are counted."""

    kind: str = entry(
        "text", "auto", "Words: learned from the first documents, given in a file, hashed to "
        "columns, or private (chosen from the first records with privacy); auto decides by "
        "vocabulary.file and vocabulary.hash_bits, otherwise learned.",
        choices=("auto", "learned", "given", "hashed", "private"), flag="--vocabulary-kind")
    file: str | None = entry(
        "text", None, "File of words, one a line.", flag="--vocabulary")
    size: int = entry("int", 8000, "Maximum number of words.", least=1, flag="--vocabulary-size")
    hash_bits: int = entry("int", 14, "Columns of hashed words, as a power of 2.", least=1, most=22)
    documents: int | None = entry(
        "int", None, "First documents that words are learned from, or records of a private choice; "
        "default: 20000, private: a quarter of a window.", least=1, flag="--vocabulary-documents")
    min_document_frequency: float | None = entry(
        "frequency", None, "Leave out words in fewer documents: a count, or a fraction with a "
        "point; default: 0.005 of the documents, at least 1 and at most 5.")
    max_document_frequency: float | None = entry(
        "frequency", None, "Leave out words in more documents: a count, or a fraction with a "
        "point, 1.0 for none; default: 0.3, with fewer than 5 topics 0.5, above 20 documents.")
    grow_every: int | None = entry(
        "int", None, "Let frequent words enter a learned vocabulary after every N documents, and "
        "gone ones leave; default: the words stay.", least=100)
    stop_words: str = entry(
        "text", "english", "Languages (english,german) of stop words; none, or a file of words.")
    token_pattern: str | None = entry(
        "text", None, "Regular expression of a word; default: letters of any script, with digits.")
    clean: str = entry(
        "text", "attachments,urls,emails,html,initialisms", "Steps that clean texts; or none.")
    analyzer: str | None = entry(
        "text", None, "Function that splits texts into words, as module:function, such as "
        "rjieba:cut.")
    phrases: str | None = entry(
        "text", None, "Phrases that count as one word: how many pairs of neighbours to learn, or a "
        "file of phrases, one a line; with privacy a public one.")
    ngrams: int = entry("int", 1, "Longest run of words that counts as one.", least=1, most=99)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSettings:
    """Topics to learn, and the method."""

    count: int = entry(
        "int", 10, "Number of topics K.", least=1, flag="--topics", short="-k",
        parameter="n_components")
    alpha_0: float | Literal["auto"] = entry(
        "number", 1.0, "Sum of the Dirichlet parameters, in pseudo-tokens; auto estimates it.",
        least=0, open=True, words=("auto",), parameter="alpha_0")
    solver: str = entry(
        "text", "whitened-tensor", "From sums to topics: whitened-tensor decomposes one small "
        "tensor; online-power uses fresh documents for each power iteration; with privacy, "
        "noisy-power and simultaneous do.",
        choices=("whitened-tensor", "online-power", "simultaneous", "noisy-power"),
        parameter="solver")
    refine: bool | None = entry(
        "bool", None, "Refine topics by likelihood; default: yes, but not with privacy or a "
        "projection file of sums.")
    refinement_passes: int | Literal["auto", "thorough"] = entry(
        "int", "auto", "Passes over the documents in memory that refine the topics; auto makes "
        "sweeps after them, thorough four times as many of both.", least=0,
        words=("auto", "thorough"), parameter="refinement_passes", commands=ESTIMATOR_ONLY)
    warmup_documents: int | None = entry(
        "int", None, "Documents in memory that give the first topics; default: 20000, or 10000 "
        "without a refinement.", least=1, parameter="warmup_documents")
    oversampling: int = entry(
        "int", 50, "Columns of the projection in addition to K.", least=0, parameter="oversampling")
    documents_per_round: int | None = entry(
        "int", None, "Documents of a power iteration of online-power; default: more in each.",
        least=1, parameter="documents_per_round")
    restarts: int | None = entry(
        "int", None, "Random starts L for each topic in power methods; default: 10, private 3.",
        least=1, parameter="n_restarts")
    iterations: int | None = entry(
        "int", None, "Power iterations R for each topic; default: 5, with privacy by solver.",
        least=1, parameter="n_iterations")
    seed: int = entry(
        "int", 0, "Seed of projections and restarts, never of privacy noise.", least=0,
        most=2**64 - 1, parameter="random_state")
    relevance: float = entry(
        "number", 1.0, "Rank of the words shown of a topic: 1 by probability, less favours words "
        "that other topics do not have.", least=0, most=1, parameter="relevance")
    representative_documents: int = entry(
        "int", 0, "Keep ids of this many documents with most of each topic; never with privacy.",
        least=0, most=100)
    representative_texts: bool = entry(
        "bool", False, "Also keep their first 1000 characters, in models and checkpoints.")
    seeds: tuple[str, ...] = entry(
        "seeds", (), "A topic to begin with, such as 'space: orbit launch'; repeatable.",
        flag="--seed-topic", parameter="seed_topics")
    projection_file: str | None = entry(
        "text", None, "File of `streamlda projection`: the start of runs that are merged later; "
        "default: a start of its own.", flag="--projection")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """Times of publication."""

    every: int | None = entry(
        "int", None, "Records between snapshots, or in a private window; default: 100000; a source "
        "that ends gives one snapshot, at its end.", least=100, flag="--snapshot-every",
        parameter="documents_per_snapshot")
    seconds: float | None = entry(
        "seconds", None, "Also publish a snapshot after this time; default: never.", least=0,
        open=True, flag="--snapshot-seconds", commands=RUN_ONLY)
    most: int | None = entry(
        "int", None, "Maximum number of snapshots; default: no limit.", least=1, flag="--snapshots",
        parameter="snapshots")
    time_bins: str = entry(
        "text", "day", "Bins of event time, in UTC; weeks begin on Monday. The newest 1,000 are "
        "kept.", choices=UNITS)
    when_exhausted: str = entry(
        "text", "idle", "Action after the last private snapshot.",
        choices=("idle", "stop"), commands=RUN_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacySettings:
    """Differential privacy: on when epsilon is set."""

    epsilon: float | None = entry(
        "number", None, "Privacy budget: how much output may depend on one document or user; "
        "default: not private.", least=0, open=True, parameter="epsilon")
    delta: float | None = entry(
        "number", None, "Probability with which epsilon may fail; far below 1 / documents.",
        least=0, most=1, open=True, parameter="delta")
    ledger: str | None = entry(
        "text", None, "File of what was spent, and on which documents; FILE.documents and "
        "FILE.releases belong to it.", parameter="ledger")
    unit: str = entry(
        "text", "document", "Unit whose presence is hidden; user needs source.user_field, "
        "privacy.documents_per_user and snapshots.most.", choices=("document", "user"),
        parameter="privacy_unit")
    documents_per_user: int | None = entry(
        "int", None, "Maximum number of documents of one user in a stage.", least=1,
        parameter="documents_per_user")
    relation: str = entry(
        "text", "zero-out", "Neighbouring relation: a document or a blank in its slot, or another "
        "document there; add-remove is the former name of zero-out.",
        choices=("zero-out", "replace-one", "add-remove"), parameter="neighboring_relation")
    mode: str = entry(
        "text", "window", "Snapshots of disjoint windows, or of all since the start.",
        choices=("window", "prefix"), parameter="mode")
    clipping: str | ClipBounds = entry(
        "text", "quantile", "Bound on what a document adds to a sum.",
        choices=("quantile", "worst-case"), parameter="clipping")
    refinement_rounds: int | None = entry(
        "int", None, "1 to find topics by common words and refine them by other documents, about "
        "half of a window; default: 0 up to 1024 words, else 1.", least=0, most=1)
    public_model: str | TopicModel | None = entry(
        "text", None, "Model of public documents: a window begins with its topics if they fit, and "
        "with its words unless others are given.", parameter="public_model")
    publish_useless: bool = entry(
        "bool", False, "Write models too whose topics are expected to predict documents no better "
        "than word frequencies do.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """Outputs for topics."""

    file: str | None = entry(
        "text", None, "Model file to write: the newest snapshot.", flag="--output", short="-o")
    folder: str | None = entry(
        "text", None, "Folder of numbered snapshots; default: snapshots, of a fit none.",
        flag="--output-folder")
    keep: int | float | None = entry(
        "keep", None, "Snapshots to keep in the folder: a number, or an age such as 30 d; default: "
        "all. The newest and private ones stay.", commands=RUN_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferSettings:
    """Proportions of each document of the topic that is read, by the newest model."""

    topic: str | None = entry(
        "topic", None, "Kafka topic for the proportions of each document that is read from Kafka.",
        flag="--output-topic", commands=INFER_ONLY)
    group: str | None = entry(
        "text", None, "Consumer group that shares these documents among processes; default: "
        "streamlda-infer-TOPIC, with the topic that is written.", commands=INFER_ONLY)
    top: int | None = entry(
        "int", None, "Only the N largest proportions, as pairs of topic and proportion; default: "
        "all, in order.", least=1, flag="--top", commands=INFER_ONLY)
    disclose: bool = entry(
        "bool", False, "Write proportions of a private model to a topic: they reveal documents.",
        commands=INFER_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Checkpoints, from which an interrupted run resumes."""

    folder: str | None = entry(
        "text", None, "Folder of checkpoints, from the newest of which a run continues; default: "
        "checkpoints, of a fit none.")
    interval: float = entry("seconds", 60.0, "Time between checkpoints.", least=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Limits of memory."""

    queue: int = entry("bytes", 64 * MIB, "Limit of memory for documents that wait.", least=MIB)
    kept: int = entry(
        "bytes", 192 * MIB, "Limit of memory for the documents of files: within it they are fitted "
        "together at the end; beyond it topics follow them as a stream.", least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings:
    """Topic for references to rejected records."""

    topic: str | None = entry("topic", None, "Kafka topic for rejected records.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """Limits of failures, after which a run stops."""

    share: float = entry(
        "number", 0.5, "Stop when more than this fraction of the records is rejected.", least=0,
        most=1)
    records: int = entry(
        "int", 10_000, "Fewest last records in which the fraction is measured, after each poll of "
        "at most 4096.", least=1)
    attempts: int = entry(
        "int", 5, "Consecutive failures of a damaged source, after which the daemon stops; it "
        "waits for one that is away.", least=1)
    then: str = entry(
        "text", "exit", "Action where no restart helps (exit codes 65 and 78): exit, or wait for a "
        "signal, alive and not ready.", choices=("exit", "wait"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The page and its API."""

    host: str = entry("text", "127.0.0.1", "Address to listen on.")
    port: int = entry(
        "int", 8080, "Port of health, metrics and snapshots; 0 for none.", least=0, most=65535)
    token: Secret | None = entry(
        "secret", None, "Bearer token; must be set unless the host is loopback.")
    operator_token: Secret | None = entry(
        "secret", None, "Bearer token that also opens /status and /metrics of a private run.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Log lines."""

    format: str = entry("text", "console", "Format of log lines.", choices=("console", "json"))
    level: str = entry(
        "text", "info", "Minimum log level.", choices=("debug", "info", "warning", "error"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """A Dask cluster to learn on."""

    dask: str | None = entry(
        "text", None, "Dask scheduler on whose workers to learn or infer; they must see the files; "
        "default: here.", flag="--dask", commands=(FIT, INFER))
    shards: int | None = entry(
        "int", None, "Parts, about, into which the files are cut on the cluster; default: by size.",
        least=1, flag="--shards", commands=(FIT, INFER))
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """All settings of a run, checked. Made by `load_settings` and `settings_of_parameters`.

    `origins` says where values that were given come from: file, environment, flag or parameter.
    """

    source: SourceSettings = field(default_factory=SourceSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    vocabulary: VocabularySettings = field(default_factory=VocabularySettings)
    topics: TopicsSettings = field(default_factory=TopicsSettings)
    snapshots: SnapshotSettings = field(default_factory=SnapshotSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    infer: InferSettings = field(default_factory=InferSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    dead_letters: DeadLetterSettings = field(default_factory=DeadLetterSettings)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    log: LogSettings = field(default_factory=LogSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    command: str = RUN
    origins: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def private(self) -> bool:
        """True if the run has a privacy budget."""
        return self.privacy.epsilon is not None

    @property
    def ends(self) -> bool:
        """True if the source has an end."""
        return self.source.kind == "files" or self.command != RUN

    def is_given(self, name: str) -> bool:
        """Return whether a setting was given a value other than its default."""
        return name in self.origins and self[name] != SETTINGS[name].default

    def __getitem__(self, name: str) -> Any:
        section, _, key = name.partition(".")
        return getattr(getattr(self, section), key)


#: Sections with their classes, in the order of the table.
SECTIONS: dict[str, type] = {
    each.name: type(getattr(RunSettings(), each.name)) for each in fields(RunSettings)[:-2]
}
#: All settings, in the order of the table, and by name.
TABLE: tuple[Setting, ...] = tuple(
    make_setting(section, each) for section, made in SECTIONS.items() for each in fields(made)
)
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in TABLE}
