"""Run the example notebooks and write them as pages: `python -m examples.notebooks`, or `make examples`.

Each runs in a fresh kernel of this Python, in this folder, and the notebooks themselves are left as they are. The pages
need no network.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat import NotebookNode

HERE = Path(__file__).parent
NOTEBOOKS = sorted(HERE.glob("*.ipynb"))
PAGES = HERE.parent / "build" / "examples"

# What nbconvert fetches from the network, and these notebooks do not use.
_TEMPLATE = """{% extends 'index.html.j2' %}
{% block html_head_js_requirejs %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
"""


def execute(
    path: Path, *, timeout: int = 600, before: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> NotebookNode:
    """Run a notebook from a clean kernel.

    Args:
        path: the notebook; it runs in its own folder.
        timeout: seconds for one cell.
        before: a command that the kernel is started by, such as `("unshare", "-n")` to take the network away.
        environment: variables to set for the kernel.

    Returns:
        The notebook with its outputs; the file stays as it is.

    Raises:
        nbclient.exceptions.CellExecutionError: when a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="imir-lens-") as profile:
        # No kernels but this Python's own, nobody's start-up files, and no ports.
        manager = AsyncKernelManager(
            kernel_name="python3",
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
            transport="ipc",
            connection_file=f"{profile}/kernel.json",
        )
        manager.kernel_spec.argv[:0] = before
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=timeout,
            coalesce_streams=True,
            resources={"metadata": {"path": str(path.parent)}},
        )
        client.execute(cleanup_kc=True, env={**os.environ, "IPYTHONDIR": profile, **(environment or {})})
    return notebook


def page(notebook: NotebookNode, *, title: str, theme: Literal["light", "dark"] = "light") -> str:
    """Return a notebook with its outputs as an HTML page that needs no network.

    Args:
        notebook: as `execute` returns it.
        title: of the page.
        theme: of the page.
    """
    exporter = HTMLExporter(raw_template=_TEMPLATE, theme=theme)
    text, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run notebooks and write their pages; returns the exit code.

    Args:
        arguments: of the command line; default, those of this process.
    """
    parser = argparse.ArgumentParser(prog="python -m examples.notebooks", description="Run the example notebooks.")
    parser.add_argument("names", nargs="*", help="beginnings of names, such as 1 and 4; default, all")
    parser.add_argument("--out", type=Path, default=PAGES, help="where the pages go (default: build/examples)")
    chosen = parser.parse_args(arguments)
    found = [path for path in NOTEBOOKS if not chosen.names or path.name.startswith(tuple(chosen.names))]
    if not found:
        names = ", ".join(path.stem for path in NOTEBOOKS)
        print(f"no notebook begins with {' or '.join(chosen.names)}: there are {names}", file=sys.stderr)
        return 2
    chosen.out.mkdir(parents=True, exist_ok=True)
    for path in found:
        begin = time.perf_counter()
        notebook = execute(path)
        seconds = time.perf_counter() - begin
        place = chosen.out / f"{path.stem}.html"
        text = page(notebook, title=path.stem)
        docs = os.path.relpath(HERE.parent / "docs", chosen.out)
        place.write_text(text.replace('href="../docs/', f'href="{docs}/'), encoding="utf-8")
        print(f"{seconds:5.1f} s  {place}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
