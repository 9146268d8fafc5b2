"""``nanovllm workload``: make, convert and check workload files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nanovllm.cli.console import print_json, print_table, refuse_overwriting
from nanovllm.cli.help import Command, examples
from nanovllm.cli.metrics_table import duration
from nanovllm.cli.options import takes
from nanovllm.cli.workload_input import WorkloadInput
from nanovllm.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.workload import WorkloadRequest

app = typer.Typer(help="Make, convert and check workload files: what requests come, and when.")

LENGTHS = "512 (always), uniform:LOW,HIGH or lognormal:MEDIAN,SIGMA,LOW,HIGH (the last two may be left out)"
ARRIVALS = "at-once, poisson:RATE_PER_S, gamma:RATE_PER_S,CV or steps:NUM_REQUESTS,EVERY"

OutputPath = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; packed if it ends in .gz.")]
ArrivalsOption = Annotated[str, typer.Option(help=f"When they come: {ARRIVALS}.")]
SeedOption = Annotated[int, typer.Option(help="Source of everything drawn. Same options, same file.")]


@app.command(
    cls=Command,
    epilog=examples(
        "nanovllm workload make load.jsonl --num-requests 100 --arrivals poisson:4",
        "nanovllm workload make chat.jsonl --prompt-len lognormal:200,1 --num-prefixes 4 --prefix-len 512",
    ),
)
def make(
    output: OutputPath,
    num_requests: Annotated[int, typer.Option(help="How many requests.")] = 100,
    prompt_len: Annotated[str, typer.Option(help=f"Tokens of a prompt, a shared prefix not counted: {LENGTHS}.")] = (
        "uniform:100,1000"
    ),
    output_len: Annotated[str, typer.Option(help="Tokens of an answer: a length as for --prompt-len.")] = (
        "uniform:100,1000"
    ),
    arrivals: ArrivalsOption = "at-once",
    num_prefixes: Annotated[int, typer.Option(help="How many shared prefixes there are.")] = 0,
    prefix_len: Annotated[int, typer.Option(help="Tokens of a shared prefix.")] = 512,
    prefix_share: Annotated[float, typer.Option(help="Share of the requests that begin with one.")] = 1.0,
    max_tokens: Annotated[
        int | None, typer.Option(help="What the scheduler is told of every answer's length; else its real length.")
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Make independent requests of drawn lengths, which may share prefixes."""
    from sim.generators import SharedPrefixes, independent_requests, parse_arrivals, parse_length
    from sim.workload import write_workload

    prefixes = None
    if num_prefixes:
        prefixes = SharedPrefixes(num_prefixes=num_prefixes, prefix_len=prefix_len, share=prefix_share)
    requests = independent_requests(
        num_requests,
        prompt_len=parse_length("prompt_len", prompt_len),
        output_len=parse_length("output_len", output_len),
        arrivals=parse_arrivals("arrivals", arrivals),
        prefixes=prefixes,
        max_tokens=max_tokens,
        seed=seed,
    )
    write_workload(output, requests)


@app.command(
    cls=Command,
    epilog=examples(
        "nanovllm workload make-sessions talks.jsonl --num-sessions 20 --arrivals poisson:0.5 --mean-think-s 8"
    ),
)
def make_sessions(
    output: OutputPath,
    num_sessions: Annotated[int, typer.Option(help="How many conversations.")] = 20,
    num_turns: Annotated[str, typer.Option(help=f"Turns of a conversation: a number, or drawn: {LENGTHS}.")] = (
        "uniform:1,6"
    ),
    message_len: Annotated[str, typer.Option(help="Tokens that the user says in a turn: as --num-turns.")] = (
        "lognormal:60,0.8"
    ),
    answer_len: Annotated[str, typer.Option(help="Tokens of an answer: as --num-turns.")] = "lognormal:150,0.6",
    mean_think_s: Annotated[
        float, typer.Option(help="Mean seconds from the end of an answer to the next turn of the conversation.")
    ] = 10.0,
    system_len: Annotated[int, typer.Option(help="Tokens that every conversation begins with.")] = 0,
    max_prompt_len: Annotated[int | None, typer.Option(help="A conversation ends before a longer prompt.")] = None,
    arrivals: ArrivalsOption = "at-once",
    seed: SeedOption = 0,
) -> None:
    """Make conversations: each turn's prompt is all that was said before, and something new.

    It comes when the turn before has been answered, and some time to think has passed.
    """
    from sim.generators import Conversation, parse_arrivals, parse_length, sessions
    from sim.workload import write_workload

    conversation = Conversation(
        num_turns=parse_length("num_turns", num_turns),
        message_len=parse_length("message_len", message_len),
        answer_len=parse_length("answer_len", answer_len),
        mean_think_s=mean_think_s,
        system_len=system_len,
        max_prompt_len=max_prompt_len,
    )
    write_workload(
        output, sessions(num_sessions, conversation, arrivals=parse_arrivals("arrivals", arrivals), seed=seed)
    )


@app.command(
    cls=Command,
    epilog=examples(
        "nanovllm workload make-agents agents.jsonl --num-agents 10 --arrivals poisson:0.2",
        "nanovllm workload make-agents teams.jsonl --num-sub-agents 4 --system-len 3000 --sub-system-len 1500",
    ),
)
def make_agents(
    output: OutputPath,
    num_agents: Annotated[int, typer.Option(help="How many agents.")] = 10,
    num_calls: Annotated[
        str, typer.Option(help=f"Calls of the model by each agent: a number, or drawn: {LENGTHS}.")
    ] = ("uniform:3,10"),
    task_len: Annotated[str, typer.Option(help="Tokens of what it is asked: as --num-calls.")] = "lognormal:300,0.8",
    answer_len: Annotated[str, typer.Option(help="Tokens of an answer: as --num-calls.")] = "lognormal:120,0.6",
    tool_output_len: Annotated[str, typer.Option(help="Tokens that a tool gives: as --num-calls.")] = "lognormal:400,1",
    mean_tool_s: Annotated[float, typer.Option(help="Mean seconds that a tool takes.")] = 2.0,
    system_len: Annotated[int, typer.Option(help="Tokens that every agent begins with.")] = 2000,
    num_sub_agents: Annotated[
        int, typer.Option(help="Sub-agents to each agent, which work side by side after its first call.")
    ] = 0,
    sub_system_len: Annotated[int, typer.Option(help="Tokens that every sub-agent begins with.")] = 1000,
    max_prompt_len: Annotated[int | None, typer.Option(help="An agent ends before a longer prompt.")] = None,
    arrivals: ArrivalsOption = "at-once",
    seed: SeedOption = 0,
) -> None:
    """Make agents: each calls the model, a tool and the model again, with all that was said and given so far.

    A tool begins when the call has been answered, and the next call comes when the tool is done. Sub-agents loop as
    agents do, and what they say last is part of their agent's next prompt.
    """
    from sim.generators import SubAgents, ToolLoop, agents, parse_arrivals, parse_length
    from sim.workload import write_workload

    loop = ToolLoop(
        num_calls=parse_length("num_calls", num_calls),
        task_len=parse_length("task_len", task_len),
        answer_len=parse_length("answer_len", answer_len),
        tool_output_len=parse_length("tool_output_len", tool_output_len),
        mean_tool_s=mean_tool_s,
        system_len=system_len,
        max_prompt_len=max_prompt_len,
    )
    team = None
    if num_sub_agents:
        team = SubAgents(number=num_sub_agents, loop=replace(loop, system_len=sub_system_len))
    starts = parse_arrivals("arrivals", arrivals)
    write_workload(output, agents(num_agents, loop, sub_agents=team, arrivals=starts, seed=seed))


@app.command(
    cls=Command, epilog=examples("nanovllm workload convert AzureLLMInferenceTrace_conv.csv conv.jsonl --limit 1000")
)
@takes("reading", WorkloadInput, panel="Reading")
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A public trace, or a workload file.")],
    output: OutputPath,
    *,
    reading: WorkloadInput,
) -> None:
    """Convert a public trace (Azure, Mooncake, ShareGPT with token ids) into a workload file."""
    from sim.workload import write_workload

    refuse_overwriting(output, source)
    write_workload(output, reading.read(source, allow_text=True))


@app.command(cls=Command, epilog=examples("nanovllm workload check load.jsonl"))
@takes("reading", WorkloadInput, panel="Reading")
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A workload file, or a public trace.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    reading: WorkloadInput,
) -> None:
    """Read every line of a workload; say what is in it, or the first mistake and its line."""
    from rich.table import Table
    from rich.text import Text

    summary = Summary.of(reading.read(path, allow_text=True))
    if as_json:
        print_json(summary.to_dict())
        return
    table = Table("", "", title=Text(printable(str(path))), show_header=False)
    for name, value in summary.to_dict().items():
        table.add_row(name.removesuffix("_s").replace("_", " "), _told(value))
    print_table(table)


def _told(value: float | None) -> str:
    """A count, or a time in seconds."""
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else duration(value)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is in a workload. Texts have no length here: only a tokenizer could measure them."""

    num_requests: int
    num_follow_ups: int
    """Of them, those that wait for others to end."""
    num_prompt_tokens: int
    longest_prompt_tokens: int
    num_texts: int
    num_prefixes: int
    max_tokens: int
    num_output_tokens: int
    """What is generated unless an end-of-sequence token comes that the workload does not tell of."""
    last_arrival_s: float | None
    last_arrival_step: int | None

    @classmethod
    def of(cls, workload: Iterable[WorkloadRequest]) -> Summary:
        """Count one by one: a trace need not fit into memory."""
        num_requests = num_follow_ups = num_prompt_tokens = longest = num_texts = max_tokens = num_output_tokens = 0
        arrival_s, arrival_step = None, None
        prefixes = set()
        for request in workload:
            num_requests += 1
            num_follow_ups += bool(request.after)
            num_prompt_tokens += request.num_prompt_tokens or 0
            longest = max(longest, request.num_prompt_tokens or 0)
            num_texts += request.text is not None
            max_tokens += request.max_tokens
            num_output_tokens += request.output_len or request.max_tokens
            if not request.after:
                arrival_s, arrival_step = request.arrival, request.arrival_step
            prefixes.add(request.prefix)
        return cls(
            num_requests=num_requests,
            num_follow_ups=num_follow_ups,
            num_prompt_tokens=num_prompt_tokens,
            longest_prompt_tokens=longest,
            num_texts=num_texts,
            num_prefixes=len(prefixes - {None}),
            max_tokens=max_tokens,
            num_output_tokens=num_output_tokens,
            last_arrival_s=arrival_s if arrival_step is None else None,
            last_arrival_step=arrival_step,
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {field: getattr(self, field) for field in self.__dataclass_fields__}
