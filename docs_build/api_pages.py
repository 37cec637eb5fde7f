"""The API's pages, made when the site is built: every public name of every package, by the module that defines it."""

import inspect
from importlib import import_module
from typing import Any

from docs_build.markdown import table

# Packages with public names, and what to call their pages.
PACKAGES = {
    "imir_lens": "imir_lens",
    "imir_lens.tasks": "Tasks",
    "imir_lens.models": "Models",
    "imir_lens.training": "Training",
    "imir_lens.causal": "Causal structure",
    "imir_lens.dynamics": "Learning dynamics",
    "imir_lens.sweep": "Sweeps",
    "imir_lens.sources": "Other formats",
    "imir_lens.report": "Reports",
    "imir_lens.figures": "Figures",
}
# Packages that list no public names: what is public in these modules.
_MODULES = {
    "imir_lens.models": ("planting", "constructions", "block_constructions"),
    "imir_lens.figures": (
        "attention",
        "attribution",
        "circuit_graph",
        "coordinate_matrix",
        "emergence_chart",
        "figure",
        "head_map",
        "kernel_blocks",
        "parent_attention",
        "phase_map",
        "power_law_chart",
        "signed_map",
        "trajectory_chart",
    ),
}


def pages() -> dict[str, str]:
    """Return the pages by file name."""
    return {"index.md": _list(), **{f"{_file(package)}.md": _page(package) for package in PACKAGES}}


def public_names(package: str) -> dict[str, list[str]]:
    """Return the public names of a package, by the module that defines them."""
    found: dict[str, list[str]] = {}
    for short in _MODULES.get(package, ()):
        module = import_module(f"{package}.{short}")
        here = [name for name, value in vars(module).items() if _defined(name, value, module.__name__)]
        found[module.__name__] = sorted(here)
    holder = import_module(package)
    for name in getattr(holder, "__all__", ()):
        home = getattr(getattr(holder, name), "__module__", None) or ""
        names = found.setdefault(home if home.startswith("imir_lens") else package, [])
        if name not in names:
            names.append(name)
    return found


def _defined(name: str, value: Any, module: str) -> bool:
    ours = inspect.isfunction(value) or inspect.isclass(value)
    return not name.startswith("_") and ours and value.__module__ == module


def _file(package: str) -> str:
    return package.rpartition(".")[2]


def _list() -> str:
    holder = import_module("imir_lens")
    rows = []
    for module, names in public_names("imir_lens").items():
        for name in names:
            about = (inspect.getdoc(getattr(holder, name)) or "").split("\n")[0]
            rows.append([f"[`{name}`](imir_lens.md#{module}.{name})", about])
    others = [f"- [{title}]({_file(package)}.md): `{package}`" for package, title in PACKAGES.items()]
    return "\n".join(
        [
            "# API",
            "",
            "What `import imir_lens` offers; names are loaded on first use. Other packages have their own pages.",
            "",
            *table(["Name", "What it is"], sorted(rows)),
            "",
            "## Packages",
            "",
            *others[1:],
            "",
        ]
    )


def _page(package: str) -> str:
    about = (inspect.getdoc(import_module(package)) or "").split("\n\n")[0].replace("\n", " ")
    parts = [f"# {PACKAGES[package]}", f"`{package}`: {about}"]
    shared = {f"{home}.{name}" for home, names in public_names("imir_lens").items() for name in names}
    there = shared if package != "imir_lens" else set()  # an entry has one place; links from elsewhere lead to it
    elsewhere = []
    for module, names in public_names(package).items():
        here = [name for name in names if f"{module}.{name}" not in there]
        elsewhere += [f"[`{name}`](imir_lens.md#{module}.{name})" for name in names if name not in here]
        if here:
            options = f"    options:\n      members: [{', '.join(here)}]\n      show_root_heading: false"
            parts.append(f"## {module}\n\n::: {module}\n{options}")
    if elsewhere:
        parts.insert(2, f"Also {', '.join(elsewhere)}, which `import imir_lens` offers as well.")
    return "\n\n".join(parts) + "\n"
