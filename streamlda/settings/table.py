"""The one table of settings: each is declared here once, and nowhere else.

A setting is a field of a section. From its one entry follow its place in the settings file
(``[section]`` ``key = ...``), its environment variable (``STREAMLDA_SECTION_KEY``), its flag on the
command line, its parameter of `StreamLDA` if it has one, its checks and its help.
`streamlda.settings.load` reads values; `streamlda.settings.rules` says which go together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from streamlda.settings.setting import FIT, RUN, TOPICS, Secret, Setting, entry, setting_of
from streamlda.stream.credentials import CLIENTS, MECHANISMS, PROTOCOLS

if TYPE_CHECKING:
    from streamlda.model.topic_model import TopicModel
    from streamlda.privacy.clipping import ClipBounds

MIB = 2**20

#: Settings of one command, and of the estimator, alone.
FIT_ONLY, RUN_ONLY, ESTIMATOR_ONLY = (FIT,), (RUN,), ()


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """Where documents come from, and how their records are read."""

    kind: str = entry(
        "text", "auto", "What is read: a Kafka topic, the records that a topic of dead letters is "
        "about, files once (- is standard input), or files that grow and folders that fill; auto "
        "goes by --kafka-topic and SOURCE.",
        choices=("auto", *TOPICS, "files", "follow"), flag="--source-kind")
    files: tuple[str, ...] = entry(
        "list", (), "Files, folders, patterns and fsspec URLs, in order.", flag="SOURCE")
    format: str = entry(
        "text", "auto", "How records are stored; registry is Avro, Protobuf or JSON with schemas; "
        "text is a document a line, file a document a file, json an array or objects over several "
        "lines, mbox several messages, email one; auto goes by file names (.json, .mbox, .eml, "
        ".html ...; others are text, those of folders file) and --registry-url, and else takes "
        "jsonl from Kafka and files that grow, text from standard input.",
        choices=("auto", "text", "file", "jsonl", "json", "csv", "parquet", "mbox", "email", "html",
                 "registry"),
        flag="--format")
    text_field: str = entry(
        "text", "text", "Key (jsonl, json), field (registry) or column (csv, parquet) of the text, "
        "or header of mail; use a.b for nested ones.")
    user_field: str | None = entry(
        "text", None, "Key or column of the user whose document it is, text or an integer.")
    time_field: str | None = entry(
        "text", None, "Key or column of the event time: ISO 8601 (UTC without an offset), or "
        "seconds or milliseconds since 1970; @record is the time that Kafka keeps with a record.")
    id_field: str | None = entry(
        "text", None, "Key or column of what a record calls itself, text or an integer: shown with "
        "representative documents and by infer; default: file and number.")
    delimiter: str | None = entry(
        "text", None, "Delimiter of csv, one character or tab; default: the one of comma, tab, "
        "semicolon and bar by which the header has the text field.")
    compression: str = entry(
        "text", "infer", "Compression of the files; infer goes by file names.",
        choices=("infer", "none", "gzip", "bz2", "xz", "zstd"))
    max_record: int = entry(
        "bytes", 16 * MIB, "Longer records are rejected.", unit="bytes", least=1,
        flag="--max-record")
    max_documents: int | None = entry(
        "int", None, "Stop after this many documents (with privacy: records); default: no limit.",
        unit="documents", least=1, commands=FIT_ONLY)
    stream: str | None = entry(
        "text", None, "Name of the stream in models, and in the ledger where nothing else names "
        "the documents: standard input, matrices; default: the source.", parameter="stream")
    allow_gaps: bool = entry(
        "bool", False, "Go on where records are gone (retention, truncation), and record it.")
    rejects: str | None = entry(
        "text", None, "File for a JSON line for each rejected record: location, record, reason; "
        "lines may come twice where a run goes on; default: none.")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """How to reach a Kafka cluster, and what to read there."""

    bootstrap: str | None = entry("text", None, "Brokers, host:port,host:port.")
    topic: str | None = entry("text", None, "Topic to read.")
    partitions: str = entry(
        "text", "all", "all, a list such as 0,3, share i/n, or group: those that the members of "
        "kafka.group agree on. Each of a share or a group has its own folder in "
        "checkpoint.folder, which all daemons have in common.")
    start: str = entry(
        "text", "earliest", "Where to begin without a checkpoint, and to infer without an offset "
        "of the group.",
        choices=("earliest", "latest"))
    group: str | None = entry(
        "text", None, "Consumer group that shares partitions, under which lag is shown, and a "
        "private run notes its ledger; positions are kept in checkpoints.")
    client: str = entry(
        "text", "kafka-python", "Package that reads the topic; confluent takes two fifths of the "
        "processor time for it, and needs streamlda[confluent].", choices=CLIENTS)
    protocol: str = entry("text", "PLAINTEXT", "How to connect.", choices=PROTOCOLS)
    mechanism: str | None = entry("text", None, "SASL mechanism.", choices=MECHANISMS)
    username: str | None = entry("text", None, "SASL user.")
    password: Secret | None = entry("secret", None, "SASL password.")
    ca_file: str | None = entry("text", None, "Certificates of the authorities that are trusted.")
    certificate_file: str | None = entry("text", None, "Certificate of this client.")
    key_file: str | None = entry("text", None, "Key of this client.")
    key_password: Secret | None = entry("secret", None, "Password of the key.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Where the schemas of Kafka records are."""

    url: str | None = entry(
        "text", None, "Schema registry, https://host:port; several with commas.")
    username: str | None = entry("text", None, "User of the schema registry.")
    password: Secret | None = entry("secret", None, "Password of the user.")
    ca_file: str | None = entry(
        "text", None, "Certificates of the authorities that are trusted there; default: "
        "SSL_CERT_FILE, or those of certifi.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularySettings:
    """Which words are counted."""

    kind: str = entry(
        "text", "auto", "Where the words come from: learned from the first documents, given in a "
        "file, hashed (columns, shown by their most frequent words, but not with privacy), or "
        "private (chosen from the first records with privacy); auto goes by --vocabulary and "
        "--hash-bits, else learned.",
        choices=("auto", "learned", "given", "hashed", "private"), flag="--vocabulary-kind")
    file: str | None = entry(
        "text", None, "File of words, one a line; beside a private choice, public ones.",
        flag="--vocabulary")
    size: int = entry(
        "int", 8000, "Most words.", unit="words", least=1, flag="--vocabulary-size")
    hash_bits: int = entry(
        "int", 14, "Columns of hashed words, as a power of 2.", unit="bits", least=1, most=22)
    documents: int | None = entry(
        "int", None, "First documents that the words are learned from (at most 64 million "
        "characters), or records that choose a private vocabulary; default: 20000, private: a "
        "quarter of a window.", unit="documents", least=1, flag="--vocabulary-documents")
    min_document_frequency: float | None = entry(
        "frequency", None, "Learn no word in fewer documents: a count, or a fraction with a "
        "point; default: a two-hundredth of the documents, at least 1 and at most 5.")
    max_document_frequency: float | None = entry(
        "frequency", None, "Learn no word in more documents: a count, or a fraction with a point, "
        "1.0 for all; default: 0.3, with fewer than 5 topics 0.5, and never a word in 20 or fewer.")
    grow_every: int | None = entry(
        "int", None, "Let words that have become frequent enter a learned vocabulary, and words "
        "that are gone leave, after every N documents; default: the words stay.",
        unit="documents", least=100)
    stop_words: str = entry(
        "text", "english", "Words to leave out: languages (english,german), none, or a file.")
    token_pattern: str | None = entry(
        "text", None, "Expression of a word; default: two or more letters of any script.")
    clean: str = entry(
        "text", "attachments,urls,emails,html", "What is no text and is removed first; or none.")
    analyzer: str | None = entry(
        "text", None, "What finds words instead: a name that a package announces, or "
        "module:function from a text to a list of words, as rjieba:cut.")
    phrases: str | None = entry(
        "text", None, "Runs of words that are one word: how many pairs of neighbours to learn "
        "beside the words, or a file of phrases, one a line, as public as its words.")
    ngrams: tuple[int, int] = entry("ngrams", (1, 1), "Longest run of words, or shortest..longest.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSettings:
    """What is learned, and how."""

    count: int = entry(
        "int", 10, "Topics K.", unit="topics", least=1, flag="--topics", short="-k",
        parameter="n_components")
    alpha_0: float | Literal["auto"] = entry(
        "number", 1.0, "Sum of the Dirichlet parameters, in pseudo-tokens; auto estimates it.",
        least=0, open=True, auto=True, parameter="alpha_0")
    solver: str = entry(
        "text", "whitened-tensor", "From sums to topics: whitened-tensor decomposes one small "
        "tensor; online-power and simultaneous use fresh documents for each power iteration; "
        "noisy-power is online-power with privacy.",
        choices=("whitened-tensor", "online-power", "simultaneous", "noisy-power"),
        parameter="solver")
    refine: bool | None = entry(
        "bool", None, "Let likelihood refine the topics; default: yes, but not with privacy, a "
        "projection file of sums or another solver.")
    refinement_passes: int | Literal["auto"] = entry(
        "int", "auto", "How often the documents at hand are gone over to refine the topics.",
        least=0, auto=True, parameter="refinement_passes", commands=ESTIMATOR_ONLY)
    gibbs_sweeps: int = entry(
        "int", 0, "Gibbs sweeps over the documents at hand after the passes.",
        least=0, parameter="gibbs_sweeps", commands=ESTIMATOR_ONLY)
    warmup_documents: int | None = entry(
        "int", None, "First documents, kept in memory, that the first topics are made of; "
        "default: 20000, or 10000 without a refinement.",
        unit="documents", least=1, parameter="warmup_documents")
    oversampling: int = entry(
        "int", 50, "Columns of projections beyond K.", unit="columns", least=0,
        parameter="oversampling")
    documents_per_round: int | None = entry(
        "int", None, "Documents of a power iteration of the online solvers; default: they grow.",
        unit="documents", least=1, parameter="documents_per_round")
    memory_documents: int | None = entry(
        "int", None, "Let online solvers forget: topics rest on the last half to all of this many "
        "documents; default: nothing is forgotten.",
        unit="documents", least=1, parameter="memory_documents")
    restarts: int | None = entry(
        "int", None, "Random starts L of a topic, power methods; default: 10, with privacy 3.",
        unit="starts", least=1, parameter="n_restarts")
    iterations: int | None = entry(
        "int", None, "Power iterations R that find a topic; default: 5, with privacy by solver.",
        unit="rounds", least=1, parameter="n_iterations")
    seed: int = entry(
        "int", 0, "Seed of projections and restarts; equal documents and settings give equal "
        "topics. It never seeds privacy noise.",
        least=0, most=2**64 - 1, parameter="random_state")
    representative_documents: int = entry(
        "int", 0, "Show the documents most of each topic beside it, this many, by their ids; never "
        "with privacy.", unit="documents", least=0, most=100)
    representative_texts: bool = entry(
        "bool", False, "Also keep the first 1000 characters of each: models and checkpoints hold "
        "texts then.")
    seeds: tuple[str, ...] = entry(
        "seeds", (), "A topic to be about these words, as in 'space: orbit launch'; again for "
        "others, or a file of such lines, or a model, for all of its topics.",
        flag="--seed-topic", parameter="seed_topics")
    projection_file: str | None = entry(
        "text", None, "File of `streamlda projection`: the topics, or the projection, that runs "
        "share that are to be merged; default: its own.", flag="--projection")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """When topics are published."""

    every: int | None = entry(
        "int", None, "Records between snapshots, and of a private window; default: 100000, and "
        "from a source that ends one snapshot at its end.",
        unit="records", least=100, flag="--snapshot-every", parameter="documents_per_snapshot")
    seconds: float | None = entry(
        "seconds", None, "Publish a snapshot after this time too, if that comes first; default: "
        "never.", unit="seconds", least=0, open=True, flag="--snapshot-seconds")
    most: int | None = entry(
        "int", None, "Most snapshots; default: no limit.", unit="snapshots", least=1,
        flag="--snapshots", parameter="snapshots")
    time_bins: str | tuple[str, ...] = entry(
        "bins", "day", "Bins of event time, in UTC: hour, day, week (from Monday), month, year, or "
        "times with commas between them, at which bins begin.")
    when_exhausted: str = entry(
        "text", "idle", "What to do when no release is left.",
        choices=("idle", "stop"), commands=RUN_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacySettings:
    """Differential privacy: on when epsilon is set."""

    epsilon: float | None = entry(
        "number", None, "Learn privately: all that is published tells at most this much of one "
        "document or user; default: not private.", least=0, open=True, parameter="epsilon")
    delta: float | None = entry(
        "number", None, "Probability that epsilon leaves open; far below 1 / documents.",
        least=0, most=1, open=True, parameter="delta")
    ledger: str | None = entry(
        "text", None, "File that remembers what was spent on these documents; made if there is "
        "none, releases go to FILE.releases.", parameter="ledger")
    unit: str = entry(
        "text", "document", "Whose presence is hidden; user needs --user-field, "
        "--documents-per-user and --snapshots.", choices=("document", "user"),
        parameter="privacy_unit")
    documents_per_user: int | None = entry(
        "int", None, "Most documents of one user that count in a stage.", unit="documents",
        least=1, parameter="documents_per_user")
    relation: str = entry(
        "text", "add-remove", "Neighbouring relation: one document more or less, or another in "
        "its place.", choices=("add-remove", "replace-one"), parameter="neighboring_relation")
    mode: str = entry(
        "text", "window", "Snapshots of disjoint windows, or of all since the start (needs "
        "--snapshots).", choices=("window", "prefix"), parameter="mode")
    clipping: str | ClipBounds = entry(
        "text", "quantile", "Bound on what one document adds: a private quantile, or the largest "
        "there can be.", choices=("quantile", "worst-case"), parameter="clipping")
    refinement_rounds: int | None = entry(
        "int", None, "Rounds of fresh documents, half of a window together, that refine the "
        "topics; default: 3 in windows of over 1024 words where the noise is small, else 0.",
        unit="rounds", least=0)
    public_model: str | TopicModel | None = entry(
        "text", None, "Model of public documents, whose topics a window begins with if they fit "
        "(and its words, unless others are given); --topics beyond its number are private.",
        parameter="public_model")
    noise_in_state: bool = entry(
        "bool", False, "Start the accumulators with noise in them, so that one copy of the state "
        "shows no more than a release; noise is sqrt(2) times as large.",
        parameter="noise_in_state", commands=ESTIMATOR_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """Where topics go."""

    file: str | None = entry(
        "text", None, "Model file to write: always the newest snapshot, replaced whole; private "
        "ones that it replaces go to FILE.snapshots if there is no folder.",
        flag="--output", short="-o")
    folder: str | None = entry(
        "text", "snapshots", "Folder of numbered snapshots.", fit_default=None,
        flag="--output-folder")
    topic: str | None = entry(
        "text", None, "Compacted Kafka topic for snapshots; default: none.",
        commands=RUN_ONLY, flag="--output-topic")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferSettings:
    """Proportions of each document of the topic that is read, by the newest model."""

    topic: str | None = entry(
        "text", None, "Kafka topic for the proportions of each document that is read from Kafka, "
        "by the newest snapshot; default: none.", infer_flag="--output-topic")
    group: str | None = entry(
        "text", None, "Consumer group that shares these documents among processes, and holds how "
        "far they are; default: streamlda-infer-TOPIC, of the topic that is written.")
    top: int | None = entry(
        "int", None, "Only the N largest proportions of a document, as pairs of topic and "
        "proportion; default: all, in order.", least=1, infer_flag="--top")
    disclose: bool = entry(
        "bool", False, "Write proportions to a topic though the model is private: they tell of "
        "each document, and no promise covers them.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """What a run that was cut short goes on from."""

    folder: str | None = entry(
        "text", "checkpoints", "Folder of the checkpoints; a run goes on from the newest.",
        fit_default=None)
    interval: float = entry("seconds", 60.0, "Time between checkpoints.", unit="seconds", least=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """How much memory may be used."""

    limit: int | None = entry(
        "bytes", None, "Most resident memory; default: nine tenths of what the control group "
        "(container, systemd unit) allows, else no limit.", unit="bytes", least=1)
    queue: int = entry(
        "bytes", 64 * MIB, "Most memory of documents that wait.", unit="bytes", least=MIB)
    patience: float = entry(
        "seconds", 60.0, "How long memory may stay short before the end.", unit="seconds",
        least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings:
    """Where references to rejected records go."""

    topic: str | None = entry("text", None, "Kafka topic for rejected records; default: none.")
    with_text: bool = entry("bool", False, "Also send the contents of the record.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When to stop because too much goes wrong."""

    share: float = entry(
        "number", 0.5, "Stop when more than this fraction of the records is rejected; never in a "
        "private run.",
        least=0, most=1)
    records: int = entry(
        "int", 10_000, "Number of records that the fraction is taken over.", unit="records",
        least=1)
    attempts: int = entry(
        "int", 5, "Failures in a row of checkpoints, or of a source that is damaged, after which "
        "to stop; what is away is waited for.", least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The page and its API."""

    host: str = entry("text", "127.0.0.1", "Address to listen on.")
    port: int = entry(
        "int", 8080, "Port of health, metrics and snapshots; 0 for none.", least=0, most=65535)
    token: Secret | None = entry(
        "secret", None, "Bearer token, needed unless the host is loopback.")
    operator_token: Secret | None = entry(
        "secret", None, "Bearer token that opens /status and /metrics of a private run, too; "
        "default: nobody sees those.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Log lines."""

    format: str = entry("text", "console", "How log lines look.", choices=("console", "json"))
    level: str = entry(
        "text", "info", "Minimum log level.", choices=("debug", "info", "warning", "error"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """A Dask cluster to learn on."""

    dask: str | None = entry(
        "text", None, "Learn on the workers of this Dask scheduler, which must see the files; if "
        "anything fails, only private models that were released before are written; default: "
        "learn here.",
        flag="--dask", commands=FIT_ONLY)
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """All settings of a run, checked. Made by `load_settings` and `settings_of_parameters`.

    `origins` says where values that were given come from: file, environment, flag or parameter.
    """

    source: SourceSettings = SourceSettings()
    kafka: KafkaSettings = KafkaSettings()
    registry: RegistrySettings = RegistrySettings()
    vocabulary: VocabularySettings = VocabularySettings()
    topics: TopicsSettings = TopicsSettings()
    snapshots: SnapshotSettings = SnapshotSettings()
    privacy: PrivacySettings = PrivacySettings()
    output: OutputSettings = OutputSettings()
    infer: InferSettings = InferSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    memory: MemorySettings = MemorySettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    breaker: BreakerSettings = BreakerSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    cluster: ClusterSettings = ClusterSettings()
    command: str = RUN
    origins: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def private(self) -> bool:
        """Whether the run has a privacy budget."""
        return self.privacy.epsilon is not None

    @property
    def ends(self) -> bool:
        """Whether the source has an end."""
        return self.source.kind == "files" or self.command != RUN

    def given(self, name: str) -> bool:
        """Return whether a setting was given a value other than its default."""
        default = SETTINGS[name].default_of(self.command)
        return name in self.origins and self[name] != default

    def __getitem__(self, name: str) -> Any:
        section, _, key = name.partition(".")
        return getattr(getattr(self, section), key)


#: Sections with their classes, in the order of the table.
SECTIONS: dict[str, type] = {
    each.name: type(each.default)
    for each in fields(RunSettings)
    if each.name not in ("command", "origins")
}


TABLE: tuple[Setting, ...] = tuple(
    setting_of(section, each) for section, made in SECTIONS.items() for each in fields(made)
)
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in TABLE}
