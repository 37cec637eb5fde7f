"""The docs site: built with every link and anchor checked, opening without a network, with every public name."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import imir_lens

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None,
    reason="the docs site needs pip install -e '.[docs]'",
)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
CONFIG = """\
site_name: small
theme: {name: material, font: false}
"""


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: what is not said is not counted by --strict either.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    site = tmp_path_factory.mktemp("docs") / "site"
    return build(ROOT, site), site


class Requests(HTMLParser):
    """What a browser loads by itself with a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        loads = "" if tag == "link" and given.get("rel") in ("canonical", "next", "prev") else "href"
        names = {"link": loads, "script": "src", "img": "src", "iframe": "src", "source": "src", "use": "href"}
        self.found.append(given.get(names.get(tag, ""), ""))
        self.found += re.findall(r"url\(([^)]*)\)", given.get("style", ""))


def external(address: str) -> bool:
    return address.strip("'\" ").startswith(("http:", "https:", "//"))


def test_the_site_is_built_without_a_warning(built):
    done, site = built
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    assert "Documentation built" in done.stderr
    assert len(list(site.rglob("*.html"))) > 40


def test_a_link_and_an_anchor_that_lead_nowhere_stop_the_build(tmp_path):
    ours = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    checks = re.search(r"^validation:\n(?:  .*\n)+", ours, re.MULTILINE)[0]
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text(CONFIG + checks)
    page = tmp_path / "docs" / "index.md"
    page.write_text("# Here\n\n[there](#here)\n")
    assert build(tmp_path, tmp_path / "site").returncode == 0
    for link in ("[there](#nowhere)", "[there](absent.md)", "[there](index.md#nowhere)"):
        page.write_text(f"# Here\n\n{link}\n")
        done = build(tmp_path, tmp_path / "site")
        assert done.returncode != 0, link
        assert "index.md" in done.stderr


def test_no_page_asks_the_network_for_anything(built):
    _, site = built
    pages = list(site.rglob("*.html"))
    asked = {address for page in pages for address in Requests(page.read_text(encoding="utf-8")).found}
    assert any(address.endswith(".css") for address in asked)
    assert [address for address in asked if external(address)] == []
    styles = [style.read_text(encoding="utf-8") for style in site.rglob("*.css")]
    loaded = [address for style in styles for address in re.findall(r"url\(([^)]*)\)|@import ([^;]*)", style)]
    assert [address for pair in loaded for address in pair if external(address)] == []


def test_a_request_would_be_noticed():
    page = '<link rel="stylesheet" href="https://fonts.example/a.css"><script src="//cdn.example/b.js"></script>'
    page += '<a href="https://einops.rocks">a link is none</a><img src="picture.png">'
    assert [external(address) for address in Requests(page).found if address] == [True, True, False]


def test_the_search_has_every_page_and_works_from_a_file(built):
    _, site = built
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    titles = {document["title"] for document in index["docs"]}
    assert {"recall", "Glossary", "imir_lens.pipeline"} <= titles
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index =")
    scripts = Requests((site / "index.html").read_text(encoding="utf-8")).found
    assert "assets/iframe-worker.js" in scripts
    assert 'location.protocol === "file:"' in (site / "assets" / "iframe-worker.js").read_text(encoding="utf-8")


@pytest.mark.skipif(BROWSER is None, reason="needs a chromium executable on PATH")
def test_a_search_without_network_or_server_finds_something(built, tmp_path):
    _, site = built
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", f"--user-data-dir={tmp_path}"]
    for word, finds in (("faithfulness", True), ("xylophone", False)):
        page = f"{(site / 'index.html').as_uri()}?q={word}"
        done = subprocess.run(
            [*command, "--virtual-time-budget=8000", "--dump-dom", page], capture_output=True, timeout=120
        )
        assert not re.search(rb"CONSOLE.*(Error|Uncaught)", done.stderr)
        assert (b"md-search-result__article" in done.stdout) is finds, word


def test_every_public_name_has_an_entry(built):
    _, site = built
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    entries = {identity.rpartition(".")[2] for identity in re.findall(r'<h[2-4] id="(imir_lens[\w.]+)"', pages)}
    assert set(imir_lens.__all__) <= entries
    assert "ImirLens" not in entries


def test_links_out_of_the_docs_lead_to_copies(built):
    _, site = built
    shown = (site / "howto" / "checkpoint.html").read_text(encoding="utf-8")
    assert 'href="../repository/index.html"' in shown
    assert (site / "repository" / "index.html").is_file()
    assert 'href="../limits.html"' in (site / "repository" / "index.html").read_text(encoding="utf-8")
