"""``nanovllm generate``: a real model answers prompts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nanovllm.cli.answers import Answers, StreamedAnswers
from nanovllm.cli.console import (
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
    print_note,
    refuse_overwriting,
    refuse_writing_twice,
    show_progress,
)
from nanovllm.cli.help import examples
from nanovllm.cli.live import Live, listeners, make_view
from nanovllm.cli.options import Profile, takes
from nanovllm.cli.prompts import read_prompts, text_encoder
from nanovllm.config import Config
from nanovllm.errors import UserError
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.files.packed import check_writable

if TYPE_CHECKING:
    from nanovllm.engine.request import Request
    from nanovllm.llm import LLM
    from nanovllm.trace.events import Emit
    from sim.workload import WorkloadRequest

EXAMPLES = examples(
    'nanovllm generate "What is the capital of France?" --temperature 0',
    "nanovllm generate --file prompts.txt --json --trace trace.jsonl",
    'nanovllm generate "Tell me a story." --stream --max-tokens 200',
)


@takes("sampling", SamplingParams, panel="Sampling", names={"seed": "request_seed"})
@takes("config", Config, panel="Engine", defaults={"model": "smollm2-135m"})
def generate(
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Prompts; none: one a line on standard input.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Prompts, one a line; or a workload file (.jsonl), whose lines have sampling fields of their own."
        ),
    ] = None,
    chat: Annotated[
        bool | None, typer.Option("--chat/--no-chat", help="Use the chat template; unless told, if the model has one.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="A system message, put before each prompt.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print text as it is generated.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Write the trace to this file.")] = None,
    profile: Profile = None,
    live: Live = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    *,
    config: Config,
    sampling: SamplingParams,
) -> int:
    """Answer prompts with a model, on a GPU or a CPU.

    A request that can never run gets an error line, the others run; the exit code is 2 then. Ctrl-C ends the run:
    what is finished is printed, the trace is closed.
    """
    refuse_overwriting(trace, file)
    refuse_overwriting(profile, file)
    refuse_writing_twice(trace, profile)
    if profile is not None:
        check_writable(profile)
    workload = read_prompts(prompts or [], file, sampling)
    if stream and any(request.arrival or request.arrival_step or request.after for request in workload):
        raise UserError(f"--stream wants requests that are all there at the start, but {file} tells of arrivals")
    if stream and live:
        raise UserError("--stream and --live both want the screen: choose one of them")
    view = make_view(live, as_json)
    with show_progress(), ExitStack() as resources, load_llm(config, listeners(trace, view, resources)) as llm:
        requests = _to_requests(workload, llm, text_encoder(llm.tokenizer, chat=chat, system=system))
        answers = StreamedAnswers(workload, as_json) if stream else Answers(workload, as_json, view)
        with nullcontext() if profile is None else llm.profile(profile):
            was_interrupted = answers.run(llm, requests)
    if was_interrupted:
        print_note(f"interrupted: {answers.num_finished} of {len(requests)} requests are finished")
        return EXIT_INTERRUPTED
    return EXIT_USER_ERROR if answers.num_failed else 0


def load_llm(config: Config, emits: list[Emit]) -> LLM:
    """The model with those options that differ from the defaults: it chooses some by itself. ``emits`` hear of its
    events."""
    from nanovllm.llm import LLM
    from nanovllm.trace.recorder import tee

    names = (field.name for field in fields(config) if getattr(config, field.name) != field.default)
    chosen = {name: getattr(config, name) for name in names}
    return LLM(trace=tee(*emits) if emits else None, **{"model": config.model, **chosen})


def _to_requests(workload: list[WorkloadRequest], llm: LLM, encode: Callable[[str], list[int]]) -> list[Request]:
    """As the simulator makes them: requests that tell only a length get the same token ids there and here."""
    from sim.token_ids import DEFAULT_VOCAB_SIZE
    from sim.workload import Prompts, to_requests

    vocab_size = min(DEFAULT_VOCAB_SIZE, llm.engine.vocab_size or DEFAULT_VOCAB_SIZE)
    prompts = Prompts(seed=llm.config.seed, vocab_size=vocab_size, tokenize=encode)
    return list(to_requests(workload, prompts))
