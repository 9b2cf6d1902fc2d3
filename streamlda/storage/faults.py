"""Error messages of folders of checkpoints, snapshots and shared beginnings."""

from __future__ import annotations

from streamlda import errors

FAULTS = errors.Faults(
    {
        errors.InvalidSettingError: {
            "no folder": "a folder of a run must be a folder, or one that can be made in its "
            "parent; choose another, or make its parent",
            "locked": "another process holds the lock on a folder; stop that process, or choose "
            "another folder",
            "read-only": "a folder of a run must be writable; make it writable, or choose another",
            "several states": "checkpoint.folder has a state for each partition, for daemons that "
            "share them; set kafka.partitions to group, or choose another folder",
            "one state": "checkpoint.folder has one state of several partitions, and daemons that "
            "share partitions need a state for each; resume with the kafka.partitions it was made "
            "with, or begin in an empty checkpoint.folder",
            "private beside others": "private snapshots must not lie in one folder with others; "
            "choose another output.folder",
            "no ledger": "a private state must be saved beside a ledger, without which nothing "
            "notices that its documents are released twice; run with a ledger",
            "ledger or none": "a private checkpoint must be loaded with its ledger, and another "
            "without; run with the settings it was made with, or in an empty folder",
            "learner or none": "a private state must be loaded into a new PrivateLearner, and "
            "another state into none; pass the learner that fits",
            "private merge": "a state that leaves its daemon must not be private; use the "
            "snapshots that the daemon publishes",
            "merged twice": "each document must be in one of the states that are merged, not in "
            "both; name the folders of daemons with disjoint partitions, each once",
            "published": "a published snapshot must not change; publish the model under the next "
            "number",
            "no topic": "a topic to name must be one of the snapshots; take its number from the "
            "page of the daemon",
        },
        errors.ModelFileError: {
            "no index": "a folder of checkpoints must have its index; name the checkpoint.folder "
            "of a daemon, restore the index from a copy, or start in an empty folder",
            "broken index": "the index of checkpoints must be whole; restore it from a copy, or "
            "start in an empty folder",
        },
        errors.FencedError: {
            "fenced": "another daemon has taken over this partition; nothing was written, the "
            "other daemon resumes it",
        },
        errors.InsufficientDataError: {
            "no checkpoint": "a folder of checkpoints must have one; let the daemon save first",
        },
        errors.SourceRefusedError: {
            "other log": "a folder of partitions must be of one topic; connect to the topic that "
            "it was begun with, or begin in an empty checkpoint.folder",
        },
        errors.VocabularyError: {
            "other words": "documents that are summed through one projection must be read by the "
            "same words; use one vocabulary, that of the projection, for all",
            "newer words": "a newer model must have the words of the one before; begin with the "
            "new model: start again",
            "no words": "a model must have a vocabulary to read text, got a model of matrices; "
            "learn one with streamlda fit",
        },
    }
)
