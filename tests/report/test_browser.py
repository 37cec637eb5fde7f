"""The page in a real browser, without a network."""

import html
import re
import shutil
import subprocess

import pytest
from helpers_report import Page, hostile_report
from sample_report import sample_report

from imir_lens.report.html import render_html
from imir_lens.report.summary import subject

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs a chromium executable on PATH")


def _offline() -> list[str]:
    """The command that takes the network away, where the system allows it."""
    unshare = shutil.which("unshare")
    if unshare and subprocess.run([unshare, "-n", "true"], capture_output=True).returncode == 0:
        return [unshare, "-n"]
    return []


def dump(path, profile) -> str:
    command = [*_offline(), BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", f"--user-data-dir={profile}"]
    command += ["--window-size=1280,2000", "--virtual-time-budget=8000", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=120)
    console = done.stderr.decode("utf-8", "replace")
    assert "Content Security Policy" not in console
    assert not re.search(r"CONSOLE.*(Error|Uncaught)", console)
    return done.stdout.decode("utf-8")


@pytest.mark.parametrize("make", [sample_report, hostile_report])
def test_the_view_and_the_graph_are_drawn(make, tmp_path):
    path = tmp_path / "report.html"
    path.write_bytes(render_html(make()).encode())
    page = Page(dump(path, tmp_path / "profile"))

    # The open context: a thumbnail for each head and the large one; the closed one is drawn when it opens.
    canvases = [attributes for tag, attributes in page.elements if tag == "canvas"]
    assert len(canvases) == 3
    assert all(float(attributes["width"]) > 20 for attributes in canvases)
    assert "Head Selector" in page.text
    titles = [
        i for i, (tag, a) in enumerate(page.elements) if tag == "svg" and a["aria-labelledby"] == "circuit-t circuit-d"
    ]
    assert len(titles) == 1
    pills = sum("pill" in (a.get("class") or "") for _, a in page.elements)
    assert pills == (4 if make is sample_report else 3)


def test_hostile_strings_stay_text(tmp_path):
    path = tmp_path / "report.html"
    report = hostile_report()
    path.write_bytes(render_html(report).encode())
    dom = dump(path, tmp_path / "profile")
    title = html.unescape(re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1])
    assert title == f"Circuit report: {subject(report)} on {report['task']['name']}"
    assert "<script>alert" not in dom
    assert "<title>owned" not in dom
    assert Page(dom).count("img") == 0


def test_the_browser_would_have_run_a_script(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<title>before</title><script>document.title='owned'</script>")
    assert "<title>owned</title>" in dump(path, tmp_path / "profile")
