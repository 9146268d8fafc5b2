"""How Sphinx builds the documentation: offline, and with every warning an error (`make docs`)."""

from __future__ import annotations

import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from nanovllm import __version__
from nanovllm.cli.options import field_docs

if TYPE_CHECKING:
    from docutils.nodes import TextElement, reference as reference_node
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "Nano-vLLM Lab"
author = "the Nano-vLLM Lab contributors"
copyright = author  # noqa: A001 (Sphinx's name for it)
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "command_options",
    "example_run",
    "offline",
]
exclude_patterns = ["_build", "**/.ipynb_checkpoints", "notebooks/README.md"]
nitpicky = True
# Names of other projects: their documentation is elsewhere, and nothing is fetched when this one is built.
nitpick_ignore_regex = [("py:.*", r"(?!(nanovllm|sim|viz)\.).*")]

# ---- pages: Markdown and notebooks --------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the tests execute notebooks
nb_ipywidgets_js = {}  # the scripts that draw saved widgets would come from a network

# ---- the Python API, from docstrings ------------------------------------------------------------------------------

autodoc_mock_imports = ["gguf", "safetensors", "torch", "transformers"]
autodoc_member_order = "bysource"
autoclass_content = "both"
autodoc_type_aliases = {name: f"nanovllm.trace.events.{name}" for name in ("AnyEvent", "Emit", "RequestId")}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False

# ---- how it looks -------------------------------------------------------------------------------------------------

html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
toc_object_entries_show_parents = "hide"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", _shorten_signature)
    app.connect("autodoc-process-docstring", _drop_what_python_says)
    app.connect("missing-reference", _find_alias)


def _shorten_signature(
    _app: Sphinx, kind: str, _name: str, documented: object, _options: object, signature: str | None, result: str | None
) -> tuple[str, str | None] | None:
    """Leave out the fields of a dataclass that documents each of them below; call aliases of types by their name."""
    is_class_with_fields = kind == "class" and isinstance(documented, type) and is_dataclass(documented)
    if is_class_with_fields and len(field_docs(documented)) == len(fields(documented)):
        return "", None
    if signature is None:
        return None
    return re.sub(r"TypeAliasForwardRef\('(.+?)'\)", r"\1", signature), result


def _drop_what_python_says(
    _app: Sphinx, _kind: str, _name: str, _documented: object, _options: object, lines: list[str]
) -> None:
    """Named tuples come with sentences that say nothing."""
    lines[:] = [line for line in lines if not line.startswith(("Alias for field number", "Create new instance of"))]


def _find_alias(
    app: Sphinx, env: BuildEnvironment, reference: pending_xref, shown: TextElement
) -> reference_node | None:
    """Sphinx before 9 looks for the types of signatures among classes only; an alias is none."""
    if reference["reftarget"] not in autodoc_type_aliases.values():
        return None
    place = env, reference["refdoc"], app.builder
    return env.domains["py"].resolve_xref(*place, "data", reference["reftarget"], reference, shown)
