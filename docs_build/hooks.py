"""What `mkdocs build` runs: the API's pages and sources, and links between pages and files of the repository."""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
SHOWN = "repository"  # where the site keeps the repository's own pages, and copies of the files that pages link to
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK = re.compile(r"(\]\()([^)#\s]+)")
_sources: list[tempfile.TemporaryDirectory] = []


@event_priority(100)
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give the API's pages one tree of sources: tasks/ is installed inside of imir_lens, and lies beside it."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))  # for docs_build itself, under the program `mkdocs`
    tree = tempfile.TemporaryDirectory()
    _sources.append(tree)
    package = Path(tree.name) / "imir_lens"
    package.mkdir()
    for entry in (ROOT / "imir_lens").iterdir():
        (package / entry.name).symlink_to(entry)
    (package / "tasks").symlink_to(ROOT / "tasks")
    handlers: Any = config.plugins["mkdocstrings"].config
    handlers["handlers"]["python"]["paths"] = [tree.name]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the API's pages, the repository's own, and copies of other files outside of docs/ that pages link to."""
    from docs_build import api_pages

    pages = [Path(str(file.abs_src_path)) for file in files.documentation_pages()] + [ROOT / name for name in PAGES]
    wanted = {target for page in pages for target in _outside(page, Path(config.docs_dir))}
    for target in sorted(wanted | set(PAGES)):
        files.append(File.generated(config, f"{SHOWN}/{target}", abs_src_path=str(ROOT / target)))
    for name, text in api_pages.pages().items():
        files.append(File.generated(config, f"api/{name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where the site has what they lead to in the repository."""
    if page.file.abs_src_path is None:
        return markdown
    source, docs = Path(page.file.abs_src_path), Path(config.docs_dir)
    up = "../" * page.file.src_uri.count("/")

    def moved(match: re.Match[str]) -> str:
        target = (source.parent / match[2]).resolve()
        if "://" in match[2] or not target.is_relative_to(ROOT) or not target.exists():
            return match[0]  # what leads nowhere is reported by mkdocs
        if target.is_relative_to(docs):
            return f"{match[1]}{up}{target.relative_to(docs).as_posix()}"
        return f"{match[1]}{up}{SHOWN}/{target.relative_to(ROOT).as_posix()}"

    return _LINK.sub(moved, markdown)


def on_shutdown() -> None:
    """Remove the tree of sources."""
    while _sources:
        _sources.pop().cleanup()


def _outside(page: Path, docs: Path) -> set[str]:
    """The files of the repository outside of docs/ that a page links to; a link to nothing is left to mkdocs."""
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    targets = [(page.parent / link).resolve() for _, link in links if "://" not in link]
    return {
        target.relative_to(ROOT).as_posix()
        for target in targets
        if target.is_file() and target.is_relative_to(ROOT) and not target.is_relative_to(docs)
    }
