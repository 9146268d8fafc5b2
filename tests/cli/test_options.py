"""Options made from a dataclass: each field is one, with its name, type, default and docstring."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from nanovllm.cli.options import field_docs, takes
from nanovllm.config import Config
from nanovllm.errors import ConfigError
from nanovllm.sampling_params import SamplingParams

MODES = ("slow", "fast")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One field of each kind."""

    count: int = 3
    """How many, as in ``[1, 2]``."""
    share: float = 0.5
    is_on: bool = True
    mode: str = "slow"
    """One of ``MODES``, on
    two lines."""
    seed: int | None = None
    ids: int | tuple[int, ...] = -1
    words: tuple[str, ...] = ("a", "b")
    stops: str | Sequence[str] = ()


def run(*arguments: str) -> Sample:
    received: list[Sample] = []
    app = typer.Typer()

    @app.command()
    @takes("sample", Sample, panel="Sample", defaults={"share": 0.25}, names={"seed": "dice_seed"})
    def command(path: Annotated[str, typer.Argument()], *, sample: Sample) -> None:
        assert path == "here"
        received.append(sample)

    result = CliRunner().invoke(app, ["here", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return received[0]


def test_without_options_the_defaults_hold() -> None:
    assert run() == Sample(share=0.25)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--count", "7"], {"count": 7}),
        (["--no-is-on"], {"is_on": False}),
        (["--mode", "fast"], {"mode": "fast"}),
        (["--dice-seed", "0"], {"seed": 0}),
        (["--ids", "5", "--ids", "6"], {"ids": (5, 6)}),
        (["--words", "c"], {"words": ("c",)}),
        (["--stops", "x", "--stops", "y"], {"stops": ("x", "y")}),
        (["--share", "1"], {"share": 1.0}),
    ],
)
def test_each_kind_of_field(arguments: list[str], expected: dict[str, object]) -> None:
    assert run(*arguments) == Sample(**{"share": 0.25, **expected})  # type: ignore[arg-type]


def test_docs_are_the_text_under_the_field_with_named_tuples_spelt_out() -> None:
    docs = field_docs(Sample)
    assert docs == {"count": "How many, as in [1, 2].", "mode": "One of slow, fast, on two lines."}


@pytest.mark.parametrize("dataclass", [Config, SamplingParams])
def test_every_option_of_the_engine_is_documented(dataclass: type) -> None:
    assert list(field_docs(dataclass)) == [field.name for field in fields(dataclass)]


def test_the_dataclass_judges_the_values() -> None:
    app = typer.Typer()

    @app.command()
    @takes("config", Config, panel="Engine")
    def command(*, config: Config) -> None:
        raise AssertionError("a wrong value got through")

    with pytest.raises(ConfigError, match="max_num_seqs=0"):
        CliRunner().invoke(app, ["--max-num-seqs", "0"], catch_exceptions=False)


def test_what_is_refused_is_called_as_its_option_is() -> None:
    @dataclass(frozen=True)
    class Picky:
        limit_s: float = 1.0

        def __post_init__(self) -> None:
            raise ConfigError("limit_s", self.limit_s, "nothing")

    app = typer.Typer()

    @app.command()
    @takes("picky", Picky, panel="Picky", names={"limit_s": "slo_limit"})
    def command(*, picky: Picky) -> None:
        raise AssertionError(picky)

    error = CliRunner().invoke(app, ["--slo-limit", "2"]).exception
    assert isinstance(error, ConfigError)
    assert str(error) == "slo_limit=2.0 is not allowed: nothing"
    assert (error.field, error.value, error.allowed) == ("slo_limit", 2.0, "nothing")
