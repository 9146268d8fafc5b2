"""Runs a notebook in a fresh kernel of this Python, and says what of its outputs must be the same every time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from ipykernel.kernelspec import make_ipkernel_cmd
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets import default

DIRECTORY = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(DIRECTORY.glob("*.ipynb"))
MEASURED = "measured"
"""Tag of cells whose outputs depend on the machine, the moment or the model's arithmetic."""

_LIVE_ONLY = "application/vnd.jupyter.widget-view+json"
"""Of a widget, useless without its kernel: the picture beside it is kept."""
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class _ThisPython(KernelSpecManager):
    """Whatever kernels are installed where, the notebook runs in the Python that runs this."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(argv=[*make_ipkernel_cmd(), "--log-level=ERROR"], **_METADATA["kernelspec"])


class _KernelManager(AsyncKernelManager):
    @default("kernel_spec_manager")
    def _this_python(self) -> KernelSpecManager:
        return _ThisPython()


def read(path: Path) -> NotebookNode:
    """The notebook as it is stored."""
    return nbformat.read(path, as_version=4)


def execute(path: Path) -> NotebookNode:
    """A copy of the notebook with fresh outputs, ready to be stored. An error in a cell is raised."""
    notebook = read(path)
    client = NotebookClient(
        notebook,
        kernel_manager_class=_KernelManager,
        timeout=300,
        resources={"metadata": {"path": str(path.parent)}},
        store_widget_state=False,
        coalesce_streams=True,
    )
    with tempfile.TemporaryDirectory() as profile:  # nobody's own start-up files
        client.execute(env={**os.environ, "IPYTHONDIR": profile, "OMP_NUM_THREADS": "1"})
    return _tidied(notebook)


def _tidied(notebook: NotebookNode) -> NotebookNode:
    """Without what differs from run to run or needs a living kernel."""
    notebook.metadata = nbformat.from_dict(_METADATA)
    for cell in code_cells(notebook):
        cell.metadata.pop("execution", None)
        for output in cell.outputs:
            output.get("data", {}).pop(_LIVE_ONLY, None)
    return notebook


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that are run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Source and text output of each cell whose output is the same every time."""
    return [
        (cell.source, "".join(map(_text, cell.outputs)))
        for cell in code_cells(notebook)
        if MEASURED not in cell.metadata.get("tags", ())
    ]


def _text(output: NotebookNode) -> str:
    return output.text if output.output_type == "stream" else output.get("data", {}).get("text/plain", "")
