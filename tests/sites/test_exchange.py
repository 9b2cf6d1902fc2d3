"""Which records of a topic are the shares of a round, and which are refused by name."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.sites.aggregate import aggregate
from streamlda.sites.announcement import Announcement
from streamlda.sites.exchange import (
    OTHERS,
    make_key,
    publish_announcement,
    publish_share,
    read_announcements,
    read_shares,
)
from streamlda_connectors.kafka import Record
from tests.sites.protocol import moved, signed


@pytest.fixture(scope="module")
def shares(at_work):
    return {name: at_work.share(name, at_work.first) for name in at_work.sites}


class Log(list):
    """A topic of one partition, as a list; what a broker does with it, the Kafka tests see."""

    def publish(self, key, value, headers=None):
        encoded = None if key is None else key.encode()
        self.append(Record("shares", 0, len(self), -1, encoded, value, ()))


def file_of(share, folder):
    share.save(folder / "share")
    return (folder / "share").read_bytes()


@pytest.fixture
def log(shares, tmp_path):
    """All shares of the round, as `publish_share` writes them."""
    made = Log()
    for share in shares.values():
        share.save(tmp_path / "published")
        publish_share(made, tmp_path / "published")
    return made


def names(found):
    return sorted(one.site for one in found.messages)


def test_shares_of_a_topic_add_up_as_those_of_files_do(at_work, this, shares, log):
    # The same bytes twice are one share.
    log.extend(list(log))
    found = read_shares(log, at_work.config, this)
    assert not found.skipped
    released = aggregate(at_work.config, this, found.messages).released
    expected = aggregate(at_work.config, this, list(shares.values())).released
    assert all(np.array_equal(released[name], expected[name]) for name in expected)
    assert [record.key.decode() for record in log[:3]] == [make_key(s, this.digest) for s in shares]


def test_what_is_under_other_keys_is_skipped_and_counted(at_work, this, log):
    value = log[0].value
    for key in (
        make_key("site1", "1" * 64),
        make_key("site1", "0" * 64),
        make_key("west", "0" * 64),
        make_key("", this.digest),
        make_key("a/b", this.digest),
        make_key("site1", this.digest.upper()),
        f"{make_key('site1', this.digest)}\n",
        "",
        None,
    ):
        log.publish(key, value)
    log.publish(make_key("site1", "0" * 64), None)
    log.publish(None, None)
    found = read_shares(log, at_work.config, this)
    assert names(found) == ["site0", "site1", "site2"]
    assert found.skipped == {"site1": 2, OTHERS: 7}


def other(at_work, share):
    """Return another share of the same site and round, signed as a site that cheats would."""
    return signed(at_work, share, arrays=moved(share, 1))


NOT_SIGNED = "as its site has signed it, and this one is another, got site='site1'"
REFUSED = {
    "two that differ": (other, "two that differ were sent, got site='site1' round=1"),
    "altered numbers": (
        lambda sites, share: replace(other(sites, share), signature=share.signature),
        NOT_SIGNED,
    ),
    "another site's name": (
        lambda sites, share: replace(share, site="site2"),
        "under the key of its site and round, got site='site2'",
    ),
    "another round": (
        lambda sites, share: replace(share, round_digest="0" * 64),
        "under the key of its site and round, got site='site1'",
    ),
}


@pytest.mark.parametrize("first", [False, True], ids=["behind", "before"])
@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_share_is_refused_wherever_it_stands_until_it_is_withdrawn(
    at_work, this, shares, log, tmp_path, change, message, first
):
    key = make_key("site1", this.digest)
    wrong = file_of(change(at_work, shares["site1"]), tmp_path)
    right = log[1].value
    if first:
        log[1] = log[1]._replace(value=wrong)
        log.publish(key, right)
    else:
        log.publish(key, wrong)
    error = InvalidSettingError if change is other else ModelFileError
    with pytest.raises(error, match=message) as caught:
        read_shares(log, at_work.config, this)
    where = 3 if change is other or not first else 1
    assert f"partition=0 offset={where}" in str(caught.value)
    assert f"write a record without value under key={key!r}" in str(caught.value)
    log.publish(key, None)
    assert names(read_shares(log, at_work.config, this)) == ["site0", "site2"]
    log.publish(key, right)
    assert names(read_shares(log, at_work.config, this)) == ["site0", "site1", "site2"]


@pytest.mark.parametrize("damage", [lambda v: v[:-1], lambda v: v[:-1] + b"?", lambda v: b""])
def test_a_damaged_share_is_refused_by_the_name_of_its_site(at_work, this, log, damage):
    log[1] = log[1]._replace(value=damage(log[1].value))
    with pytest.raises(ModelFileError, match=r"whole and unaltered.* offset=1 .*site='site1'"):
        read_shares(log, at_work.config, this)


def test_a_stranger_is_refused_by_name_before_a_look_at_the_value(at_work, this, log):
    log.publish(make_key("west", this.digest), b"no share")
    with pytest.raises(InvalidSettingError, match="in the federation config, got site='west'"):
        read_shares(log, at_work.config, this)


def test_only_whole_shares_are_published(tmp_path, log):
    (tmp_path / "damaged").write_bytes(log[0].value[:-1])
    topic = Log()
    with pytest.raises(ModelFileError, match="whole and unaltered"):
        publish_share(topic, tmp_path / "damaged")
    assert topic == []


def test_announcements_of_a_topic_begin_a_round_as_those_of_files_do(at_work, this, log):
    for announced in this.keys:
        publish_announcement(log, announced)
    log.extend(list(log[-3:]))
    wanted = this.keys[0].occasion
    found = read_announcements(log, at_work.config, wanted)
    assert found.messages == list(this.keys)
    assert found.skipped == {"site0": 1, "site1": 1, "site2": 1}
    assert not read_announcements(log, at_work.config, "0" * 64).messages
    # Shares beside them are those of the round still.
    assert names(read_shares(log, at_work.config, this)) == ["site0", "site1", "site2"]


def forged(at_work, own):
    """Return what a stranger announces under the name of a site."""
    return replace(own, exchange=at_work.first.get_key("site0").exchange)


def later(at_work, own):
    return at_work.announce("site1", at_work.config, 1, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (forged, "as its site has signed it, and this one is another, got site='site1'"),
        (later, "must lie under the key of its site and round, got site='site1'"),
    ],
)
def test_wrong_announcements_are_refused_until_they_are_withdrawn(at_work, this, change, message):
    log, own = Log(), this.get_key("site1")
    log.publish(make_key("site1", own.occasion), change(at_work, own).to_bytes())
    with pytest.raises(ModelFileError, match=message):
        read_announcements(log, at_work.config, own.occasion)
    log.publish(make_key("site1", own.occasion), None)
    publish_announcement(log, own)
    assert read_announcements(log, at_work.config, own.occasion).messages == [own]
    assert Announcement.parse(log[-1].value, "here") == own
