"""Error messages of folders of checkpoints, snapshots and shared beginnings."""

from streamlda import errors

FAULTS = errors.Faults(
    {
        errors.InvalidSettingError: {
            "no folder": "a folder of a run cannot be made; choose another, or make its parent",
            "locked": "another process holds the lock on a folder; stop that process, or choose "
            "another folder",
            "read-only": "a folder of a run is not writable; make it writable, or choose another",
            "several states": "checkpoint.folder has a state for each partition, for daemons that "
            "share them; set kafka.partitions to group, or choose another folder",
            "one state": "checkpoint.folder has one state of several partitions, and daemons that "
            "share partitions need a state for each; resume with the kafka.partitions it was made "
            "with, or begin in an empty checkpoint.folder",
            "private beside others": "private snapshots would lie in one folder with others; "
            "choose another output.folder",
            "no ledger": "a private state has no ledger, without which nothing notices that its "
            "documents are released twice; run with a ledger",
            "ledger or none": "a private checkpoint is loaded without its ledger, or another with "
            "one; run with the settings it was made with, or in an empty folder",
            "learner or none": "a private state is loaded without a new PrivateLearner, or another "
            "with one; pass the learner that fits",
            "private merge": "a private state cannot leave its daemon; use the snapshots that the "
            "daemon publishes",
            "merged twice": "a document is in two of the states to merge; name the folders of "
            "daemons with disjoint partitions, each once",
            "published": "a snapshot of this number is published; publish the model under the next "
            "number",
            "no topic": "the snapshots have no such topic; take its number from the page of the "
            "daemon",
        },
        errors.ModelFileError: {
            "no index": "a folder of checkpoints has no index; name the checkpoint.folder of a "
            "daemon, restore the index from a copy, or start in an empty folder",
            "broken index": "the index of checkpoints is damaged; restore it from a copy, or start "
            "in an empty folder",
        },
        errors.FencedError: {
            "fenced": "another daemon has taken over this partition; nothing was written, the "
            "other daemon resumes it",
        },
        errors.InsufficientDataError: {
            "no checkpoint": "a folder has no checkpoint; let the daemon save first",
        },
        errors.SourceRefusedError: {
            "other log": "a folder of partitions is of another topic; connect to the topic that it "
            "was begun with, or begin in an empty checkpoint.folder",
        },
        errors.VocabularyError: {
            "other words": "documents of one projection are read by different words; use one "
            "vocabulary, that of the projection, for all",
            "newer words": "a newer model lacks words of the one before; begin with the new model: "
            "start again",
            "no words": "a model of matrices has no vocabulary to read text; learn one with "
            "streamlda fit",
        },
    }
)
