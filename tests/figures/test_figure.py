"""Figures as files: titled, in either theme, as SVG and PNG."""

import re
import struct
import xml.etree.ElementTree as ET
import zlib
from dataclasses import replace

import pytest

from imir_lens.errors import OptionError
from imir_lens.figures import raster, style
from imir_lens.figures.figure import Drawn, Figure

SVG = "{http://www.w3.org/2000/svg}"
BODY = '<rect class="fill r-beta" x="50" y="0" width="50" height="100"/>'
DRAWING = style.svg(100, 100, BODY, name="n", title="T", description="D", zoom=1.5)
FIGURE = Figure(DRAWING, "Halves <of> a square", "The right one, in nats, on 512 contexts.")


def pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height, and rows of RGBA, by the PNG specification."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, data, head = 8, b"", (0, 0)
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", body)
        data += body if kind == b"IDAT" else b""
        at += 12 + size
    width, height, depth, colour, *_ = head
    assert (depth, colour) == (8, 6)
    raw, stride, rows, previous = zlib.decompress(data), 4 * width, [], bytes(4 * width)
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for x in range(stride):
            left, up, corner = (line[x - 4] if x > 3 else 0), previous[x], (previous[x - 4] if x > 3 else 0)
            near = min((left, up, corner), key=lambda v: (abs(left + up - corner - v), (v == up) + 2 * (v == corner)))
            line[x] = (line[x] + (0, left, up, (left + up) // 2, near)[kind]) % 256
        rows.append(bytes(line))
        previous = bytes(line)
    return width, height, rows


def colour(value: str) -> tuple[int, ...]:
    return tuple(int(value[k : k + 2], 16) for k in (1, 3, 5))


def test_title_and_caption_stand_above_and_nothing_is_cut():
    root = ET.fromstring(FIGURE.svg().partition("\n")[2])
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert texts[0] == FIGURE.title and " ".join(texts) == f"{FIGURE.title} {FIGURE.caption}"
    (moved,) = root.findall(f"{SVG}g")
    x, y = map(float, re.match(r"translate\((\S+) (\S+)\)", moved.get("transform")).groups())
    width, height = map(float, root.get("viewBox").split()[2:])
    assert max(float(text.get("y")) for text in root.findall(f"{SVG}text")) < y
    assert width >= x + 100 and height >= y + 100
    assert float(root.get("width")) / width == pytest.approx(1.5)
    assert root.find(f"{SVG}title").text == "T" and root.find(f"{SVG}desc").text == "D"


def test_themes_are_one_or_both():
    light, dark, both = FIGURE.svg("light"), FIGURE.svg("dark"), FIGURE.svg()
    assert style.svg_css("light") in light and style.svg_css("dark") not in light
    assert style.svg_css("dark") in dark and style.svg_css("light") not in dark
    assert style.svg_css("light") in both and style.svg_css("dark") in both
    with pytest.raises(OptionError, match="theme 'blue': expected one of light, dark, auto"):
        FIGURE.svg("blue")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_png_shows_the_drawing_in_the_themes_colours(theme):
    width, height, rows = pixels(FIGURE.png(theme, scale=1))
    shown = ET.fromstring(FIGURE.svg(theme).partition("\n")[2])
    assert (width, height) == (round(float(shown.get("width"))), round(float(shown.get("height"))))
    middle = rows[height - 60]
    at = {tuple(middle[4 * x : 4 * x + 3]) for x in range(width)}
    assert colour(style.ROLE_COLOURS[theme]["beta"]) in at
    assert tuple(rows[0][:3]) == colour(style.THEMES[theme]["page"])
    # The title is written: there are pixels of the text's colour above the drawing.
    above = {tuple(row[4 * x : 4 * x + 3]) for row in rows[: height // 3] for x in range(width)}
    assert colour(style.THEMES[theme]["text"]) in above


def test_scale_multiplies_the_pixels(tmp_path):
    small, large = pixels(FIGURE.png(scale=1))[:2], pixels(FIGURE.save(tmp_path / "f.png", scale=2).read_bytes())[:2]
    assert large == (2 * small[0], 2 * small[1])


def test_the_ending_says_what_is_saved(tmp_path):
    assert FIGURE.save(tmp_path / "f.svg").read_text() == FIGURE.svg("auto")
    assert FIGURE.save(tmp_path / "d.svg", theme="dark").read_text() == FIGURE.svg("dark")
    for name, found in (("f.jpg", "'.jpg'"), ("f", "no ending")):
        with pytest.raises(OptionError, match=rf"saved as \.svg or \.png, found {found}"):
            FIGURE.save(tmp_path / name)
    with pytest.raises(OptionError, match=r"cannot write .*: No such file or directory"):
        FIGURE.save(tmp_path / "missing" / "f.svg")
    assert FIGURE.save(tmp_path / "u.SVG").read_text() == FIGURE.svg("auto")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.svg", "f.svg", "u.SVG"]


@pytest.mark.parametrize("scale", [0, -1, 1e6, float("nan")])
def test_a_scale_that_makes_no_picture_is_refused(scale):
    with pytest.raises(OptionError, match="expected above 0 and at most"):
        FIGURE.png(scale=scale)


def test_a_png_has_one_theme():
    with pytest.raises(OptionError, match="give 'light' or 'dark', found 'auto'"):
        FIGURE.png("auto")


def test_without_the_rasteriser_it_says_how_to_go_on(monkeypatch):
    monkeypatch.setattr(raster, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"pip install resvg-py, or save as \.svg"):
        FIGURE.png()


def test_without_fonts_no_picture_without_words():
    def blank(*, svg_string: str, **options: object) -> bytes:
        return b"the same"

    with pytest.raises(OptionError, match="needs a font"):
        raster._families(blank)


def test_fonts_are_named_where_the_system_has_no_generic_ones():
    def render(*, svg_string: str, **options: object) -> bytes:
        return b"drawn" if "DejaVu Sans" in svg_string else b""

    found = raster._families(render)
    assert found["sans_serif_family"] == "DejaVu Sans" and found["monospace_family"] == "DejaVu Sans Mono"


def test_a_notebook_gets_svg_and_a_terminal_words():
    assert ET.fromstring(FIGURE._repr_svg_()).tag == f"{SVG}svg"
    assert repr(FIGURE) == f"Figure: {FIGURE.title}. {FIGURE.caption}"


def test_in_a_page_it_shrinks_and_its_name_is_its_own():
    shown = [replace(FIGURE, title=title)._repr_html_() for title in ("one", "two")]
    svgs = [ET.fromstring(text) for text in shown]
    assert all(svg.get("style") == "max-width:100%;height:auto" for svg in svgs)
    names = [svg.get("aria-labelledby").split() for svg in svgs]
    assert [[child.get("id") for child in svg[:2]] for svg in svgs] == names
    assert len({name for pair in names for name in pair}) == 4


def test_a_wrong_name_is_answered_with_the_right_ones():
    class Square(Drawn):
        def figure_makers(self):
            return {"circuit": lambda: FIGURE}

    assert Square().figures == ("circuit",) and Square().figure("circuit") is FIGURE
    with pytest.raises(OptionError, match="no figure 'circiut' here; did you mean 'circuit'"):
        Square().figure("circiut")
