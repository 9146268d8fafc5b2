"""``nanovllm trace``: read a trace, judge it, compare two, draw it, hand it to other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanovllm.cli.console import print_json, print_line, print_note, refuse_overwriting
from nanovllm.cli.help import Command, examples
from nanovllm.cli.options import SLO_PANEL, takes
from nanovllm.trace.metrics.slo import SLO_OPTIONS, Slo

if TYPE_CHECKING:
    from nanovllm.trace.jsonl import Trace
    from nanovllm.trace.state.laws import Violation

EXIT_FOUND = 1
"""What was asked about is not so: laws are broken, traces differ."""
MAX_VIOLATIONS = 5
"""Of each law, unless all are asked for: one that a policy does not keep is broken in every other step."""

app = typer.Typer(
    help="Read a trace: list it, play it back, judge it, measure it, compare two, draw it, hand it to Perfetto."
)

TracePath = Annotated[Path, typer.Argument(metavar="TRACE", help="A trace file (.jsonl, .jsonl.gz, .nvtrace).")]
Steps = Annotated[
    str | None, typer.Option(metavar="A:B", help="Only steps A to B; either may be left out, A alone is one step.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(
    cls=Command,
    epilog=examples("nanovllm trace show trace.jsonl --steps 0:9", "nanovllm trace show trace.jsonl --request 3"),
)
def show(
    path: TracePath,
    steps: Steps = None,
    request: Annotated[str | None, typer.Option(metavar="ID", help="Only what concerns this request.")] = None,
) -> None:
    """List what the engine did, a line or a few for each step."""
    from nanovllm.cli.trace_selection import of_request, of_steps, parse_steps
    from nanovllm.trace.text import to_text

    chosen = None if steps is None else parse_steps(steps)
    events = _read(path).events
    if chosen is not None:
        events = of_steps(events, *chosen)
    if request is not None:
        events = of_request(events, request)
    for line in to_text(events):
        print_line(line)


@app.command(
    cls=Command, epilog=examples("nanovllm trace watch trace.jsonl", "nanovllm trace watch trace.jsonl --follow")
)
def watch(
    path: TracePath,
    speed: Annotated[int, typer.Option(min=1, metavar="N", help="Steps per second; keys change it.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", help="The file is still being written: show what comes.")] = False,
) -> None:
    """Play a run back in the terminal, step by step and backwards too; the last row names the keys.

    In a pipe, print what `nanovllm trace show` does.
    """
    from nanovllm.trace.jsonl import read_trace
    from viz.live import watch as play

    trace = read_trace(path)
    play(trace, speed_steps_per_s=speed, follow=follow)
    if trace.problem is not None and not follow:
        print_note(trace.problem)


@app.command(cls=Command, epilog=examples("nanovllm trace check trace.jsonl", "nanovllm trace check trace.jsonl --all"))
def check(
    path: TracePath,
    every: Annotated[
        bool, typer.Option("--all", help=f"Print all violations, not {MAX_VIOLATIONS} of each law. JSON has all.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Check that a trace is complete and keeps the engine's laws. Exit code 1 if not."""
    import msgspec

    from nanovllm.trace.check import check as find_violations
    from nanovllm.trace.jsonl import read_trace

    trace = read_trace(path)
    violations = find_violations(trace.events, complete=trace.complete)
    if as_json:
        print_json(
            {"complete": trace.complete, "problem": trace.problem, "violations": msgspec.to_builtins(violations)}
        )
    else:
        if trace.problem is not None:
            print_line(trace.problem)
        _print_violations(path, violations, None if every else MAX_VIOLATIONS)
        if trace.complete and not violations:
            print_line(f"{path}: {len(trace.events):,} events, complete, every law is kept")
    return 0 if trace.complete and not violations else EXIT_FOUND


@app.command(cls=Command, epilog=examples("nanovllm trace diff real.jsonl simulated.jsonl"))
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A trace file.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    as_json: AsJson = False,
) -> int:
    """Compare what two runs decided, whatever the time. Exit code 1 if they differ."""
    import msgspec

    from nanovllm.trace.diff import diff as find_difference

    difference = find_difference(_read(a).events, _read(b).events)
    if as_json:
        found = {} if difference is None else msgspec.to_builtins(difference)
        print_json({"identical": difference is None, **found})
    else:
        for line in ["decisions identical"] if difference is None else difference.lines():
            print_line(line)
    return 0 if difference is None else EXIT_FOUND


@app.command(
    cls=Command,
    epilog=examples(
        "nanovllm trace metrics trace.jsonl",
        "nanovllm trace metrics trace.jsonl --slo-ttft 0.2 --slo-tpot 0.05",
        "nanovllm trace metrics real.jsonl simulated.jsonl",
        "nanovllm trace metrics trace.jsonl --json",
    ),
)
@takes("slo", Slo, panel=SLO_PANEL, names=SLO_OPTIONS)
def metrics(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE", help="A trace file, or several: their figures then stand side by side."),
    ],
    as_json: AsJson = False,
    requests: Annotated[bool, typer.Option("--requests", help="With --json: a row for each request too.")] = False,
    *,
    slo: Slo,
) -> int:
    """Measure a run: latencies, throughput, cache hits, preemptions, use of the KV pool; and how many requests kept to
    limits, if some are given. Of two runs, tell how far the second differs."""
    from nanovllm.cli.trace_metrics import print_metrics_of

    return print_metrics_of(paths, slo, as_json=as_json, requests=requests)


@app.command(
    cls=Command,
    epilog=examples(
        "nanovllm trace plot trace.jsonl --kind timeline,kv -o run.png",
        "nanovllm trace plot trace.jsonl --kind blocks --steps 0:9 -o blocks.svg",
    ),
)
def plot(
    path: TracePath,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write, .png or .svg; else TRACE with .png at its end."),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND,...",
            help="What to draw, from top to bottom: timeline, blocks, kv, queues, tokens, latency, progress, queue, "
            "handover.",
        ),
    ] = "timeline",
    steps: Steps = None,
    by_time: Annotated[bool, typer.Option("--by-time", help="Seconds instead of steps.")] = False,
) -> None:
    """Draw a trace as a picture, PNG or SVG. This needs the extra `viz`."""
    from nanovllm.cli.trace_selection import parse_steps
    from nanovllm.trace.jsonl import read_trace
    from viz import figures

    chosen = None if steps is None else parse_steps(steps)
    trace = read_trace(path)
    output = output or _beside(path, ".png")
    refuse_overwriting(output, path)
    figures.plot(trace, kind, output, steps=chosen, by_time=by_time)
    _note_problem(trace)
    typer.echo(output)


@app.command(
    cls=Command,
    epilog=examples(
        "nanovllm trace html trace.jsonl -o run.html",
        "nanovllm trace html real.jsonl --compare simulated.jsonl -o both.html",
    ),
)
def html(
    path: TracePath,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; else TRACE with .html at its end.")
    ] = None,
    compare: Annotated[Path | None, typer.Option(metavar="TRACE", help="Another run, to stand beside it.")] = None,
) -> None:
    """Write a page that replays a run, or two side by side, in any browser: one file, no network."""
    from nanovllm.trace.jsonl import read_trace
    from viz.web import write_page

    trace = read_trace(path)
    other = None if compare is None else read_trace(compare)
    output = output or _beside(path, ".html")
    refuse_overwriting(output, path, compare)
    write_page(trace, output, other)
    _note_problem(trace)
    if other is not None:
        _note_problem(other)
    typer.echo(output)


@app.command(cls=Command, epilog=examples("nanovllm trace perfetto trace.jsonl -o trace.perfetto.json"))
def perfetto(
    path: TracePath,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; else TRACE with .perfetto.json at its end."),
    ] = None,
) -> None:
    """Write a trace as Perfetto and Chrome show it: open the file at https://ui.perfetto.dev."""
    from nanovllm.trace.perfetto import write_chrome_trace

    output = output or _beside(path, ".perfetto.json")
    refuse_overwriting(output, path)
    write_chrome_trace(_read(path).events, output, path)
    typer.echo(output)


def _print_violations(path: Path, violations: list[Violation], most: int | None) -> None:
    """Law by law: what it says, how often it is broken, and where; ``most``: so many of each."""
    from nanovllm.trace.state.laws import LAWS

    by_law: dict[str, list[Violation]] = {}
    for violation in violations:
        by_law.setdefault(violation.law, []).append(violation)
    for law, broken in by_law.items():
        print_line(f"{law}, broken {len(broken):,} ×: {LAWS[law]}")
        told = broken[:most]
        for violation in told:
            print_line(f"{path}:{violation.event + 1}: {violation.place}: {violation.message}")
        if num_left := len(broken) - len(told):
            print_line(f"… {num_left:,} more of {law}: --all prints them")


def _read(path: Path) -> Trace:
    """The trace; a note on standard error says if it is incomplete."""
    from nanovllm.trace.jsonl import read_trace

    trace = read_trace(path)
    if trace.problem is not None:
        print_note(trace.problem)
    return trace


def _note_problem(trace: Trace) -> None:
    """Say on standard error if a trace contradicts itself or is incomplete; a view shows it as far as it goes."""
    from nanovllm.errors import ContradictionError
    from nanovllm.trace.replay import Replay

    problem, replay = trace.problem, Replay(trace.path)
    try:
        for event in trace.events:
            replay.apply(event)
    except ContradictionError as error:
        problem = str(error)
    if problem is not None:
        print_note(problem)


def _beside(path: Path, ending: str) -> Path:
    """The trace's name with another ending."""
    name = path.name.removesuffix(".nvtrace").removesuffix(".gz").removesuffix(".jsonl")
    return path.with_name(name + ending)
