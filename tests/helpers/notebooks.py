"""Execution of a notebook in a Jupyter kernel, as a user's browser or Colab executes it."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient


def execute(path: Path, folder: Path, replace: dict[str, str] | None = None) -> list[str]:
    """The texts that the cells print, after replacements in their code."""
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for old, new in (replace or {}).items():
        assert [cell for cell in cells if old in cell.source], f"no cell of {path.name} has {old!r}"
        for cell in cells:
            cell.source = cell.source.replace(old, new)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=900, resources=resources).execute()
    printed = [output.text for cell in cells for output in cell.outputs if "text" in output]
    print("".join(printed))
    return printed
