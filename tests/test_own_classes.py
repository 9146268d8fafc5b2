"""Classes that options name as ``module:Class``: what has that form, where they are found, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nanovllm.errors import ConfigError
from nanovllm.own_classes import check_name, import_class, is_class_name, source_file


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current one, with some modules; nothing of them is left behind."""
    (tmp_path / "own_module.py").write_text("class Own:\n    pass\n\nNUMBER = 1\n")
    (tmp_path / "unfinished.py").write_text("def f(:\n")
    (tmp_path / "demanding.py").write_text("import a_module_that_there_is_not\n")
    (tmp_path / "json.py").write_text("raise AssertionError('this is not the json that others mean')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("own_module", "unfinished", "demanding"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("text", ["module:Class", "package.module:Class", "_m:_C"])
def test_names_of_classes(text: str) -> None:
    assert is_class_name(text)
    check_name("policy", text, ("mixed",))


@pytest.mark.parametrize("text", ["module", "module:", ":Class", "a b:C", "a:b:c", ".a:C", "a..b:C", "a.py:C d", "", 3])
def test_what_is_no_name_of_a_class(text: object) -> None:
    assert not is_class_name(text)
    with pytest.raises(ConfigError, match=r"is not allowed: one of mixed, fifo, or module:Class$"):
        check_name("policy", text, ("mixed", "fifo"))


def test_a_module_is_found_in_the_current_directory(directory: Path) -> None:
    assert source_file("own_module:Own") == str(directory / "own_module.py")
    assert "own_module" not in sys.modules, "a look at the file runs nothing"
    found = import_class("policy", "own_module:Own")
    assert (found.__name__, found.__module__) == ("Own", "own_module")


def test_the_current_directory_comes_last() -> None:
    assert import_class("policy", "json:JSONDecoder").__module__ == "json.decoder"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("own_module:Other", "module 'own_module' has no class 'Other'"),
        ("own_module:NUMBER", "module 'own_module' has no class 'NUMBER'"),
        ("no_such_module:Own", "(ModuleNotFoundError: No module named 'no_such_module')"),
        ("demanding:Own", "(ModuleNotFoundError: No module named 'a_module_that_there_is_not')"),
        ("unfinished:Own", "module 'unfinished' cannot be imported (SyntaxError: "),
    ],
)
def test_what_cannot_be_had_is_told_in_a_line(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        import_class("policy", text)
    told = str(caught.value)
    assert told.startswith(f"policy={text!r} is not allowed: ")
    assert reason in told
    assert "\n" not in told


def test_a_file_that_is_not_there() -> None:
    assert source_file("no_such_module:Own") is source_file("no.such.module:Own") is None
