"""Files that may be compressed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nanovllm.trace.files.packed import open_for_reading, open_for_writing, written_whole


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


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_a_file_that_is_written_whole_takes_its_place_at_the_end(tmp_path: Path, name: str) -> None:
    path, link = tmp_path / name, tmp_path / f"link-{name}"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    with written_whole(link) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    with open_for_reading(path) as reader:
        assert reader.read() == b"new"
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640


def write_half(path: Path) -> None:
    with written_whole(path) as file:
        file.write(b"half of it")
        raise KeyboardInterrupt


def test_a_file_that_is_not_written_whole_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    for place in (path, tmp_path / "another"):
        with pytest.raises(KeyboardInterrupt):
            write_half(place)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"old")]
    with pytest.raises(IsADirectoryError), written_whole(tmp_path):
        pass


def test_what_is_no_file_is_written_to_at_once() -> None:
    with written_whole("/dev/null") as file:
        file.write(b"anything")
