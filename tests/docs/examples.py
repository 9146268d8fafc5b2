"""The examples of a page: found in its Markdown, and run in order, as a reader would run them.

Python blocks share one namespace, commands one directory. What a page shows below a command, or in an ``output``
block below Python, must be what comes out; a line ``…`` stands for any lines, and ``…`` within one for anything.
``<!-- not run: why -->`` above a block says that no test can run it here.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import metadata
from pathlib import Path
from types import ModuleType

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("README*.md"), ROOT / "CONTRIBUTING.md", *(ROOT / "notebooks").glob("*.md"), *DOCS.rglob("*.md")]
)

PYTHON, CONSOLE, SHELL = "python", "console", "sh"
COMMANDS_RUN_ELSEWHERE = ("nanovllm demo", "nanovllm models fetch")
"""They take the real model; the page that runs with it runs them."""
PARTS_OF_OUTPUT = {
    "lines": (r"\n…(?=\n)", r"(?:\n.*)*?"),
    "anything": (r"…", r".*"),
    "measure": (r"\b\d[\d,]*\.\d+", r"(\d[\d,]*\.\d+)"),
    "blanks": (r" +", r" +"),
}
"""What is not taken by the letter in an output that a page shows, and what may be printed in its place. A number with
a decimal point was measured, or follows from measured constants: ``TOLERANCE`` says how far it may be off."""
TOLERANCE = 0.1


@dataclass(frozen=True)
class Example:
    """A block of code. ``line``: of its first line of code, from 1. ``output``: what the page shows as what Python
    printed."""

    page: Path
    line: int
    language: str
    text: str
    output: str | None = None
    why_not_run: str | None = None

    @property
    def place(self) -> str:
        """Where a reader finds it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def needs_model(self) -> bool:
        """Whether it loads a model by name."""
        if self.language == PYTHON:
            return bool(re.search(r"\bLLM\(", self.text))
        return any(line.startswith("nanovllm generate") for line, _ in self.commands())

    def commands(self) -> list[tuple[str, str]]:
        """Command lines, each with the output shown below it (empty: none is shown)."""
        text = self.text.replace("\\\n", "")
        if self.language == SHELL:
            return [(line, "") for line in text.splitlines() if line.strip() and not line.startswith("#")]
        assert text.startswith("$ "), f"{self.place}: a console block begins with a command"
        parts = ("\n" + text).split("\n$ ")[1:]
        return [(line, shown.removesuffix("\n")) for line, _, shown in (part.partition("\n") for part in parts)]


def examples_of(page: Path) -> list[Example]:
    """The Python and shell blocks of a page."""
    found: list[Example] = []
    previous = ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence" and token.map is not None:
            if token.info in (PYTHON, CONSOLE, SHELL):
                reason = re.fullmatch(r"<!-- not run: (.+) -->\s*", previous)
                why_not_run = reason[1] if reason else None
                found.append(Example(page, token.map[0] + 2, token.info, token.content, why_not_run=why_not_run))
            elif token.info == "output":
                assert found[-1].language == PYTHON, f"{found[-1].place}: only Python blocks have output blocks"
                found[-1] = replace(found[-1], output=token.content)
        previous = token.content
    return found


@dataclass
class Reader:
    """Follows a page from top to bottom. ``run``: runs a ``nanovllm`` command, and gives its exit code and what it
    printed. ``runs_all_commands``: also those that are run elsewhere."""

    run: Callable[..., tuple[int, str]]
    runs_all_commands: bool = False
    module: ModuleType = field(default_factory=lambda: ModuleType("examples"))

    def follow(self, page: Path) -> dict[str, object]:
        """Run all examples; returns the names that Python ones left behind."""
        sys.modules[self.module.__name__] = self.module  # dataclasses look there for the names of their types
        try:
            for example in examples_of(page):
                if example.why_not_run is None:
                    (self.run_python if example.language == PYTHON else self.run_commands)(example)
        finally:
            del sys.modules[self.module.__name__]
        return vars(self.module)

    def run_python(self, example: Example) -> None:
        """Errors point to the line of the page."""
        tree = ast.increment_lineno(ast.parse(example.text, example.place), example.line - 1)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = compile(tree, example.page, "exec", dont_inherit=True)
            exec(code, vars(self.module))  # noqa: S102 (what it is all about)
        if example.output is not None:
            assert_shown(example.output, printed.getvalue(), example.place)

    def run_commands(self, example: Example) -> None:
        """Those of ``nanovllm``; of others, that there is such a thing."""
        for line, shown in example.commands():
            program, *words = shlex.split(line, comments=True)
            place = f"{example.place}: {line}"
            if program == "make":
                assert_is_target(words, place)
            elif program == "pip":
                assert_can_be_installed(words, place)
            elif program != "nanovllm":
                raise AssertionError(f"{place}: nobody knows how to test {program}")
            elif self.runs_all_commands or not line.startswith(COMMANDS_RUN_ELSEWHERE):
                code, printed = self.run(*words)
                if shown:
                    assert_shown(shown, printed, place)
                else:
                    assert code == 0, f"{place}: {printed}"


def assert_shown(shown: str, printed: str, place: str) -> None:
    """What the page shows is what was printed, but for ``PARTS_OF_OUTPUT``."""
    split = re.compile("|".join(f"(?P<{name}>{part})" for name, (part, _) in PARTS_OF_OUTPUT.items()) + r"|\S|\n")
    parts = list(split.finditer(lines_of(shown)))
    pattern = "".join(PARTS_OF_OUTPUT[part.lastgroup][1] if part.lastgroup else re.escape(part[0]) for part in parts)
    match = re.fullmatch(pattern, lines_of(printed))
    assert match, f"{place}: printed\n{printed}"
    told = [part[0] for part in parts if part.lastgroup == "measure"]
    for measures in zip(told, match.groups(), strict=True):
        expected, found = (float(measure.replace(",", "")) for measure in measures)
        assert abs(found - expected) <= TOLERANCE * expected, f"{place}: {measures[0]} is {measures[1]} in\n{printed}"


def lines_of(text: str) -> str:
    """The text with clean ends of lines, and an empty line before it."""
    return "".join(f"\n{line.rstrip()}" for line in text.splitlines()) + "\n"


def assert_is_target(words: list[str], place: str) -> None:
    """The Makefile has what ``make`` is told to make."""
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    wanted = [word for word in words if "=" not in word]
    assert set(wanted) <= set(targets), f"{place}: the targets are {', '.join(targets)}"


def assert_can_be_installed(words: list[str], place: str) -> None:
    """``pip`` is told to install this project, with extras that there are."""
    match = re.fullmatch(r"(nanovllm-lab|\.)(\[[\w,]+\])?", words[-1])
    assert words[0] == "install", place
    assert match, place
    extras = re.findall(r"\w+", match[2] or "")
    assert set(extras) <= set(metadata("nanovllm-lab").get_all("Provides-Extra") or ()), place


def imported_names(example: Example) -> Iterator[tuple[str, str]]:
    """The names that a Python example takes from modules, each with its module."""
    for node in ast.walk(ast.parse(example.text)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, alias.name) for alias in node.names)
