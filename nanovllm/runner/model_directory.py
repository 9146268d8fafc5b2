"""Where a model's files are, and what else than weights they say."""

from __future__ import annotations

import json
from pathlib import Path

from nanovllm.checks import MAX_TOKEN_ID, is_whole_number
from nanovllm.errors import ModelError
from nanovllm.limited_reading import read_whole
from nanovllm.runner.builtin_models import BUILTIN_MODELS, build_builtin_model
from nanovllm.runner.weights import weight_files

_HUB_FILES = ("*.json", "*.safetensors", "tokenizer.model", "*.jinja")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def resolve_model(name_or_path: str) -> Path:
    """The directory of a model: a path, the name of a built-in model (made on first use), or a name on the Hugging
    Face Hub (downloaded on first use).

    Raises ``ModelError`` for anything else, and for a directory without config or weights.
    """
    path = Path(name_or_path).expanduser()
    if not name_or_path or not path.is_dir():
        in_package_index = name_or_path in BUILTIN_MODELS
        path = build_builtin_model(name_or_path) if in_package_index else _download(name_or_path)
    if not (path / "config.json").is_file():
        raise ModelError(f"{path / 'config.json'}: does not exist, but a model directory needs it")
    weight_files(path)
    return path


def find_tokenizer(directory: Path) -> Path:
    """The file that holds a model's vocabulary. Raises ``ModelError`` if there is none."""
    for name in _TOKENIZER_FILES:
        if (directory / name).is_file():
            return directory / name
    raise ModelError(f"{directory}: there is no tokenizer: one of {', '.join(_TOKENIZER_FILES)} is needed")


def read_eos_token_ids(directory: Path) -> frozenset[int]:
    """The ids that end a text: those of generation_config.json or, if it names none, of config.json."""
    for name in ("generation_config.json", "config.json"):
        path = directory / name
        if not path.is_file():
            continue
        try:
            value = json.loads(read_whole(path).decode()).get("eos_token_id")
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, AttributeError, RecursionError) as error:
            raise ModelError(f"{path}: is not a JSON object ({error})") from None
        if value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        if not all(is_whole_number(token, 0, MAX_TOKEN_ID) for token in ids):
            raise ModelError(f"{path}: eos_token_id={value!r} is not allowed: a token id or several are needed")
        return frozenset(ids)
    return frozenset()


def _download(name: str) -> Path:
    allowed = (
        f"a directory, a name on the Hugging Face Hub such as Qwen/Qwen3-0.6B, or one of {', '.join(BUILTIN_MODELS)}"
    )
    # Only "owner/model" can be on the Hub; all else is a mistyped path or name.
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or name.endswith("/"):
        raise ModelError(f"model {name!r} does not exist: {allowed}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=list(_HUB_FILES)))
    except HFValidationError as error:
        raise ModelError(f"model {name!r} does not exist: {allowed} ({error})") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"model {name!r} is no directory and could not be fetched from the Hugging Face Hub ({reason}): {allowed}"
        ) from None
