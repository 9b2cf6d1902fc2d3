"""Exit codes of every command, as sysexits.h has them where it does.

==========  ====================================================================================
0           done
1           the answer is no (``doctor``)
2           wrong usage of the command line
65          the data: too few documents, most records rejected, a file that is damaged
70          an internal error
71          memory was short for too long
74          the source or the disk failed: starting again may help
75          the end took longer than its grace
78          settings, words, ledger, checkpoints, packages or the source refuse: starting again
            cannot help
130, 143    stopped by SIGINT (Ctrl-C) or SIGTERM before all was read
141         standard output was closed by its reader
==========  ====================================================================================
"""

from streamlda import errors

OK, NO, USAGE = 0, 1, 2
DATA, INTERNAL, MEMORY, IO, UNFINISHED, CONFIGURATION = 65, 70, 71, 74, 75, 78
INTERRUPTED, PIPE_CLOSED = 130, 141

_OF_DATA = (errors.InsufficientDataError, errors.InvalidDocumentsError, errors.ModelFileError)
_OF_CONFIGURATION = (
    *(
        errors.BudgetExceededError,
        errors.InvalidSettingError,
        errors.LedgerError,
        errors.MissingExtraError,
    ),
    *(errors.SourceRefusedError, errors.VocabularyError),
)


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error."""
    for kinds, code in ((_OF_CONFIGURATION, CONFIGURATION), (_OF_DATA, DATA), (OSError, IO)):
        if isinstance(error, kinds):
            return code
    return MEMORY if isinstance(error, MemoryError) else INTERNAL
