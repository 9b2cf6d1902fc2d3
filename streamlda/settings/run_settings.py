"""All settings of a run, and the rows of the table by name."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from streamlda.settings.setting import RUN, Setting, make_setting
from streamlda.settings.table import (
    BreakerSettings,
    CheckpointSettings,
    ClusterSettings,
    DeadLetterSettings,
    HttpSettings,
    InferSettings,
    KafkaSettings,
    LogSettings,
    MemorySettings,
    OutputSettings,
    PrivacySettings,
    RegistrySettings,
    SnapshotSettings,
    SourceSettings,
    TopicsSettings,
    VocabularySettings,
)


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

    def given(self, name: str) -> bool:
        """Return whether a setting was given a value other than its default."""
        default = SETTINGS[name].default_of(self.command)
        return name in self.origins and self[name] != default

    def __getitem__(self, name: str) -> Any:
        section, _, key = name.partition(".")
        return getattr(getattr(self, section), key)


#: Sections with their classes, in the order of the table.
SECTIONS: dict[str, type] = {
    each.name: type(getattr(RunSettings(), each.name))
    for each in fields(RunSettings)
    if each.name not in ("command", "origins")
}
#: All settings, in the order of the table, and by name.
TABLE: tuple[Setting, ...] = tuple(
    make_setting(section, each) for section, made in SECTIONS.items() for each in fields(made)
)
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in TABLE}
