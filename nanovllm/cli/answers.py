"""The answers of a model, run and printed: all at the end, or each piece as it comes."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nanovllm.cli.console import print_error, print_json, print_text
from nanovllm.cli.live import showing
from nanovllm.errors import printable

if TYPE_CHECKING:
    from nanovllm.engine.request import Request
    from nanovllm.llm import LLM
    from nanovllm.llm.outputs import RequestMetrics, RequestOutput, StreamChunk
    from sim.workload import WorkloadRequest
    from viz.live import LiveView

HEADING_CHARACTERS = 72


class Answers:
    """Runs the requests of a workload and prints what came of them, in their order. ``view`` shows the run."""

    def __init__(self, workload: list[WorkloadRequest], as_json: bool, view: LiveView | None = None) -> None:
        self.num_finished = 0
        self.num_failed = 0
        self._workload = workload
        self._as_json = as_json
        self._view = view

    def run(self, llm: LLM, requests: list[Request]) -> bool:
        """Print every answer at the end. Returns whether a Ctrl-C ended the run; the texts so far are printed then."""
        from nanovllm.llm.progress import ThroughputBar

        view = self._view
        with showing(view), ThroughputBar(len(requests), show=view is None) as progress:
            outputs = llm.run_requests(requests, on_step=progress.count, on_interrupt="return")
            was_interrupted = len(outputs) < len(requests) or any(o.finish_reason == "aborted" for o in outputs)
            if was_interrupted and view is not None:
                view.leave_screen()
        by_id = {output.request_id: output for output in outputs}
        for index, request in enumerate(requests):
            output = by_id.get(request.request_id)
            if output is not None and self._has_succeeded(output):
                self._print(index, output)
        return was_interrupted

    def _has_succeeded(self, output: RequestOutput) -> bool:
        """Count it, and say so if the request could not run, or not to its end."""
        if output.error is not None:
            self.num_failed += 1
            print_error(str(output.error))
            return False
        self.num_finished += output.finish_reason != "aborted"
        return True

    def _print(self, index: int, output: RequestOutput) -> None:
        if self._as_json:
            print_json(
                {
                    "id": output.request_id,
                    "prompt": self._workload[index].text,
                    "text": output.text,
                    "token_ids": output.token_ids,
                    "finish_reason": output.finish_reason,
                    "metrics": metrics_to_dict(output.metrics),
                }
            )
            return
        self._print_heading(index)
        print_text(output.text.strip() + (" […]" if output.finish_reason == "aborted" else ""))

    def _print_heading(self, index: int) -> None:
        """Which prompt the text that follows belongs to, unless there is only one."""
        if len(self._workload) == 1:
            return
        request = self._workload[index]
        prompt = " ".join((request.text or f"({request.num_prompt_tokens} token ids)").split())
        if len(prompt) > HEADING_CHARACTERS:
            prompt = prompt[: HEADING_CHARACTERS - 1] + "…"
        if index:
            print_text("")
        print_text(f"{printable(str(request.id))}: {prompt}", bold=True)


class StreamedAnswers(Answers):
    """Prints text as it is generated. Answers grow side by side: without JSON, they are printed one after the other,
    so that one can read them."""

    def __init__(self, workload: list[WorkloadRequest], as_json: bool) -> None:
        super().__init__(workload, as_json)
        self._texts = [""] * len(workload)
        self._has_ended = [False] * len(workload)
        self._index = 0
        self._is_begun = False

    def run(self, llm: LLM, requests: list[Request]) -> bool:
        """See ``Answers``."""
        prompts = [request.prompt_token_ids for request in requests]
        try:
            for chunk in llm.stream(prompts, [request.sampling_params for request in requests]):
                succeeded = chunk.output is None or self._has_succeeded(chunk.output)
                if self._as_json and succeeded:
                    print_json(self._to_dict(chunk))
                elif not self._as_json:
                    self._push(chunk)
        except KeyboardInterrupt:
            if not self._as_json:
                print_text("")
            return True
        return False

    def _to_dict(self, chunk: StreamChunk) -> dict[str, Any]:
        piece = {"id": self._workload[chunk.index].id, "text": chunk.text, "token_ids": chunk.token_ids}
        if chunk.output is None:
            return piece
        return {
            **piece,
            "finish_reason": chunk.output.finish_reason,
            "metrics": metrics_to_dict(chunk.output.metrics),
        }

    def _push(self, chunk: StreamChunk) -> None:
        self._texts[chunk.index] += chunk.text
        self._has_ended[chunk.index] = chunk.output is not None
        while self._index < len(self._texts) and self._print_next():
            self._index += 1
            self._is_begun = False

    def _print_next(self) -> bool:
        """Print what is there of the answer whose turn it is. Returns whether it is complete."""
        text, has_ended = self._texts[self._index], self._has_ended[self._index]
        self._texts[self._index] = ""
        if not self._is_begun and (text or has_ended):
            self._print_heading(self._index)
            self._is_begun, text = True, text.lstrip()
        print_text(text, nl=has_ended)
        sys.stdout.flush()
        return has_ended


def metrics_to_dict(metrics: RequestMetrics) -> dict[str, float | None]:
    """Times and counts, and the latencies that follow from them."""
    latencies = ("queue_s", "ttft_s", "tpot_s", "e2e_s")
    return {**asdict(metrics), **{name: getattr(metrics, name) for name in latencies}}
