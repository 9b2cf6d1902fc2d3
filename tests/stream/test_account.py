"""Account of a stream: each record before the position is in the state once, or it is refused."""

import json
from contextlib import ExitStack

import pytest

from streamlda.errors import AccountError
from streamlda.run.opening import open_ledger, open_pipeline
from streamlda.storage.store import Store
from streamlda.stream.counts import Account
from streamlda.stream.source import WHOLE, Behind, RecordBatch, RecordLocation
from tests.run.opened import TEXTS, run_settings


def batch(passed, **records):
    """Return records of parts, the last of each of the number that is passed."""
    at = [RecordLocation(part, 0) for part, n in records.items() for _ in range(n)]
    return RecordBatch([None] * len(at), locations=at, behind=Behind({}, passed))


#: What is taken from a stream of parts at 10 and 0, how many records the state counts, and whether
#: that is right.
TAKEN = {
    "each-once": ([batch({"a": 12, "b": 3}, a=2, b=3), batch({"a": 13, "b": 3}, a=1)], 6, True),
    "nothing": ([], 0, True),
    "dropped": ([batch({"a": 12, "b": 0}, a=2), batch({"a": 15, "b": 0}, a=1)], 3, False),
    "twice": ([batch({"a": 12, "b": 0}, a=2)] * 2, 4, False),
    "made-up-for-elsewhere": ([batch({"a": 12, "b": 3}, a=3, b=2)], 5, False),
    "another-count": ([batch({"a": 12, "b": 0}, a=2)], 3, False),
    "new-part": ([batch({"a": 10, "b": 0, "c": 2}, c=2), batch({"c": 3}, c=1)], 3, True),
    "part-that-left": ([batch({"a": 12, "b": 0}, a=2), batch({"b": 1}, b=1)], 3, True),
}


@pytest.mark.parametrize("kept", [False, True], ids=["at-once", "resumed"])
@pytest.mark.parametrize(("batches", "records", "right"), TAKEN.values(), ids=TAKEN)
def test_an_account_is_right_or_refused(batches, records, right, kept):
    account, passed = Account(), {"a": 10, "b": 0}
    account.begin(passed)
    for each in batches:
        account.add(each)
        passed = each.behind.passed
        account = Account(json.loads(json.dumps(account.to_json()))) if kept else account
    if right:
        account.check(passed, records)
        shown = account.count_records(passed)
        assert shown["records"] == shown["passed"] == records
        return
    with pytest.raises(AccountError, match="in the state once, got records="):
        account.check(passed, records)


def test_a_source_that_tells_no_part_has_no_account():
    account = Account()
    account.begin({})
    account.add(RecordBatch(["text"]))
    account.check({}, 7)
    assert account.count_records({}) is None


def test_a_private_release_of_slots_that_are_not_those_of_the_log_is_not_paid(tmp_path):
    """A lost record would let all later slots stand for other records than after a restart."""
    budget = {"privacy.epsilon": 12.0, "privacy.delta": 1e-3, "snapshots.every": 500}
    budget |= {"vocabulary.hash_bits": 5, "privacy.ledger": str(tmp_path / "ledger")}
    settings = run_settings("private", tmp_path / "run", budget)
    lines = [json.dumps({"text": text}) for text in TEXTS]
    (tmp_path / "run" / "documents.jsonl").write_text("\n".join(lines))
    with ExitStack() as opened, Store.open(output=tmp_path / "p", private=True) as output:
        ledger = open_ledger(settings, opened, output, print)
        pipeline = open_pipeline(settings, ledger=ledger).pipeline
        pipeline.begin_at(Behind({"at": 0}, {WHOLE: 0}))
        slots, before = pipeline.due, ledger.generation
        lost = {WHOLE: slots + 1}
        pipeline.add(RecordBatch(["a few words of it"] * slots, behind=Behind({}, lost)))
        assert pipeline.due == 0
        with pytest.raises(AccountError):
            pipeline.release()
        assert ledger.generation == before
        assert ledger.report()["pending"] == []
