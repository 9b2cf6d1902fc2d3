"""All settings of a run, and the rows of the table by name."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from streamlda.settings import table
from streamlda.settings.setting import RUN, Setting, make_setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """All settings of a run, checked. Made by `load_settings` and `settings_of_parameters`.

    `origins` says where values that were given come from: file, environment, flag or parameter.
    """

    source: table.SourceSettings = field(default_factory=table.SourceSettings)
    kafka: table.KafkaSettings = field(default_factory=table.KafkaSettings)
    registry: table.RegistrySettings = field(default_factory=table.RegistrySettings)
    vocabulary: table.VocabularySettings = field(default_factory=table.VocabularySettings)
    topics: table.TopicsSettings = field(default_factory=table.TopicsSettings)
    snapshots: table.SnapshotSettings = field(default_factory=table.SnapshotSettings)
    privacy: table.PrivacySettings = field(default_factory=table.PrivacySettings)
    output: table.OutputSettings = field(default_factory=table.OutputSettings)
    infer: table.InferSettings = field(default_factory=table.InferSettings)
    checkpoint: table.CheckpointSettings = field(default_factory=table.CheckpointSettings)
    memory: table.MemorySettings = field(default_factory=table.MemorySettings)
    dead_letters: table.DeadLetterSettings = field(default_factory=table.DeadLetterSettings)
    breaker: table.BreakerSettings = field(default_factory=table.BreakerSettings)
    http: table.HttpSettings = field(default_factory=table.HttpSettings)
    log: table.LogSettings = field(default_factory=table.LogSettings)
    cluster: table.ClusterSettings = field(default_factory=table.ClusterSettings)
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
        return name in self.origins and self[name] != SETTINGS[name].default

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
