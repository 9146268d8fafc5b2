"""Files that may be compressed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nanovllm.trace.packed import open_for_reading, open_for_writing


@pytest.mark.parametrize("name", ["plain.jsonl", "packed.jsonl.gz"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with open_for_writing(path) as file:
        file.write(b"one\n")
        file.flush()
        file.write(b"two\n")
    with open_for_reading(str(path)) as file:
        assert list(file) == [b"one\n", b"two\n"]


def test_a_packed_file_tells_neither_its_name_nor_the_time(tmp_path: Path) -> None:
    for name in ("a.gz", "another-name.gz"):
        with open_for_writing(tmp_path / name) as file:
            file.write(b"the same " * 100)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "another-name.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"the same " * 100


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_what_is_flushed_is_with_the_operating_system(tmp_path: Path, name: str) -> None:
    file = open_for_writing(tmp_path / name)
    file.write(b"kept")
    file.flush()
    with open_for_reading(tmp_path / name) as reader:
        assert reader.read(4) == b"kept"
    file.close()
    file.close()


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_a_place_that_is_not_there(tmp_path: Path, name: str) -> None:
    for opened in (open_for_reading, open_for_writing):
        with pytest.raises(FileNotFoundError):
            opened(tmp_path / "nowhere" / name)
