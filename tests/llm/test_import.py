"""``import nanovllm`` is for everyone, also for those who only simulate."""

from __future__ import annotations

import subprocess
import sys

import pytest

import nanovllm


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import sys, nanovllm; print(*{'torch', 'transformers', 'numpy', 'msgspec'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_the_entry_point_itself_needs_no_torch() -> None:
    script = "import sys; from nanovllm import LLM; print(*{'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_public_names_can_be_found() -> None:
    assert set(nanovllm.__all__) <= set(dir(nanovllm))
    assert all(getattr(nanovllm, name) is not None for name in nanovllm.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'nanovllm' has no attribute 'LLMEngine'"):
        _ = nanovllm.LLMEngine
