"""The memory that control groups allow, as `/status` shows it."""

import pytest

from streamlda.utils.process import allowed_bytes


@pytest.mark.parametrize(
    ("own", "files", "allowed"),
    [
        # A container sees its own group as the root, or is named a path that only the host has.
        ("0::/", {"memory.max": 2**31}, 2**31),
        ("0::/docker/c0ffee", {"memory.max": 2**31}, 2**31),
        # Of a unit its own limit counts, or that of its slice.
        ("0::/a.slice/b", {"a.slice/memory.max": 5, "a.slice/b/memory.max": "max"}, 5),
        ("0::/a.slice/b", {"a.slice/memory.max": 5, "a.slice/b/memory.max": 3}, 3),
        ("0::/a.slice/b", {"a.slice/memory.max": "max"}, None),
        (None, {"memory.max": 2**31}, None),
    ],
)
def test_a_limit_of_a_control_group_is_found_wherever_it_is_set(tmp_path, own, files, allowed):
    for name, value in files.items():
        file = tmp_path / "sys" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
    if own is not None:
        (tmp_path / "own").write_text(f"{own}\n")
    assert allowed_bytes(tmp_path / "own", tmp_path / "sys") == allowed
