"""What the examples import is described in the Python reference."""

from __future__ import annotations

import re

from tests.docs.examples import DOCS, PAGES, PYTHON, examples_of, imported_names

DIRECTIVE = re.compile(r"^\.\. auto(?:module|class|data|function):: ([\w.]+)$", re.MULTILINE)
DESCRIBED = {
    name for page in (DOCS / "reference" / "api").glob("*.md") for name in DIRECTIVE.findall(page.read_text("utf-8"))
}
HOMES = {"nanovllm.LLM": "nanovllm.llm.LLM", "nanovllm.SamplingParams": "nanovllm.sampling_params.SamplingParams"}
"""Where the names that ``nanovllm`` itself offers come from."""


def is_described(module: str, name: str) -> bool:
    """Whether a page tells of the module, of this name in it, or of the module that it is."""
    full_name = HOMES.get(f"{module}.{name}", f"{module}.{name}")
    return bool({full_name, full_name.rpartition(".")[0]} & DESCRIBED)


def test_what_the_examples_import_is_described() -> None:
    examples = [example for page in PAGES for example in examples_of(page) if example.language == PYTHON]
    imports = {pair for example in examples for pair in imported_names(example)}
    ours = {(module, name) for module, name in imports if module.split(".")[0] in ("nanovllm", "sim", "viz")}
    assert len(ours) > 30
    assert sorted(pair for pair in ours if not is_described(*pair)) == []
