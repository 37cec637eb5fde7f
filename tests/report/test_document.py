import json
import os
import stat

import pytest
from sample_report import KINDS, sample_report

from imir_lens.errors import OptionError
from imir_lens.report import Report, ReportError
from imir_lens.report import document as document_module
from imir_lens.report.json_files import report_json
from imir_lens.report.storage import check_output

FILES = ["figures/attention.svg", "figures/attribution.svg", "figures/circuit.svg"]
FILES += ["report.html", "report.json", "report.md"]


class Coordinates:
    """Stands for the coordinates of a model."""

    def __init__(self, content: bytes = b"numbers") -> None:
        self.content = content

    def save(self, path) -> None:
        path.write_bytes(self.content)


def contents(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def test_save_writes_every_file_and_nothing_else(tmp_path):
    place = Report(sample_report(), Coordinates()).save(tmp_path / "a" / "report")
    assert place == tmp_path / "a" / "report"
    assert sorted(contents(place)) == sorted([*FILES, "coordinates.safetensors"])
    assert os.listdir(tmp_path / "a") == ["report"]
    mode = stat.S_IMODE(place.stat().st_mode)
    (tmp_path / "plain").mkdir()
    assert mode == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.parametrize("kind", KINDS)
def test_load_returns_what_was_saved(kind, tmp_path):
    place = Report(sample_report(kind)).save(tmp_path / kind)
    assert Report.load(place).data == sample_report(kind)
    assert Report.load(place / "report.json").data == sample_report(kind)
    assert (place / "figures" / "attention.svg").exists() == (kind != "not_detected")


def test_report_json_keeps_order_and_floats_and_is_stable():
    report = sample_report()
    report["evaluation"]["model"]["loss"] = 0.1 + 0.2
    text = report_json(report)
    assert text == report_json(report)
    assert list(json.loads(text)) == list(report)
    assert json.loads(text)["evaluation"]["model"]["loss"] == 0.1 + 0.2
    lines = text.splitlines()
    assert sum(line.startswith('  {"tokens":') for line in lines) == len(report["examples"])
    assert len(lines) < 1200


def test_a_number_that_json_lacks_is_refused(tmp_path):
    report = sample_report()
    report["heads"][0]["match"] = float("nan")
    with pytest.raises(ReportError, match=r"report\.heads"):
        report_json(report)
    with pytest.raises(ReportError, match=r"report\.heads\[0\]\.match is nan"):
        Report(report).save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_existing_report_is_kept_without_force(tmp_path):
    place = Report(sample_report("recall")).save(tmp_path / "out")
    before = contents(place)
    with pytest.raises(OptionError, match=r"out' exists; pass --force to overwrite \(in Python: force=True\)"):
        Report(sample_report("memory")).save(place)
    with pytest.raises(OptionError, match="--force"):
        check_output(place, force=False)
    assert contents(place) == before


def test_an_empty_directory_is_used_without_force(tmp_path):
    (tmp_path / "out").mkdir()
    assert sorted(contents(Report(sample_report()).save(tmp_path / "out"))) == FILES


def test_force_replaces_the_report_and_leaves_other_files_alone(tmp_path):
    place = Report(sample_report("recall"), Coordinates()).save(tmp_path / "out")
    (place / "notes.txt").write_text("mine")
    (place / "figures" / "mine.svg").write_text("mine")
    Report(sample_report("not_detected")).save(place, force=True)
    after = contents(place)
    assert after["notes.txt"] == after["figures/mine.svg"] == b"mine"
    assert json.loads(after["report.json"])["verdict"]["mechanism"] == "not_detected"
    # What the new report does not have is not left over from the old one.
    assert "coordinates.safetensors" not in after
    assert "figures/attention.svg" not in after
    assert not [name for name in os.listdir(place) if name.startswith(".")]


@pytest.mark.parametrize("step", ["render_html", "replace", "coordinates"])
def test_a_failure_leaves_the_old_report_whole(step, tmp_path, monkeypatch):
    place = Report(sample_report("recall"), Coordinates(b"old")).save(tmp_path / "out")
    before = contents(place)
    new = Report(sample_report("memory"), Coordinates(b"new"))
    if step == "render_html":
        monkeypatch.setattr(document_module, "render_html", lambda data: 1 / 0)
    elif step == "coordinates":
        new.coordinates.save = lambda path: 1 / 0
    else:
        real, calls = os.replace, []

        def replace(source, target):
            calls.append(target)
            if len(calls) == 10:
                raise ZeroDivisionError
            real(source, target)

        monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(ZeroDivisionError):
        new.save(place, force=True)
    assert contents(place) == before
    assert sorted(os.listdir(tmp_path)) == ["out"]


def test_a_failure_leaves_no_half_written_new_report(tmp_path, monkeypatch):
    monkeypatch.setattr(document_module, "render_markdown", lambda data: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Report(sample_report()).save(tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="file' is a file"):
        Report(sample_report()).save(tmp_path / "file")
    with pytest.raises(OptionError, match=r"cannot (read|write to) .*file/below'.*choose another directory") as error:
        Report(sample_report()).save(tmp_path / "file" / "below")
    assert "\n" not in str(error.value)


def test_the_early_check_makes_the_place_and_leaves_nothing_behind(tmp_path, monkeypatch):
    made = []
    real = os.mkdir
    monkeypatch.setattr(os, "mkdir", lambda path, *mode: made.append(os.fspath(path)) or real(path, *mode))
    (tmp_path / "there").mkdir()
    for place in ("a/b/report", "c/../d", "there", "there/below"):
        made.clear()
        check_output(tmp_path / place, force=False)
        assert os.path.dirname(made[-1]) == str(tmp_path / place)  # a directory inside the place itself
        assert os.listdir(tmp_path) == ["there"]
        assert os.listdir(tmp_path / "there") == []


def test_links_and_empty_names_are_no_places(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for place in ("link", "link/below"):
        with pytest.raises(OptionError, match="link' is a link to nothing; choose another directory"):
            check_output(tmp_path / place, force=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="path of the output directory is empty"):
        Report(sample_report()).save("")
    assert os.listdir(tmp_path) == ["link"]
    (tmp_path / "nothing").mkdir()
    Report(sample_report()).save(tmp_path / "link")  # the control: a link to a directory is one
    assert sorted(contents(tmp_path / "nothing")) == FILES


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OptionError, match="Permission denied"):
        Report(sample_report()).save(tmp_path / "out")


def test_a_full_disk_is_an_option_error(tmp_path, monkeypatch):
    def mkdtemp(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", mkdtemp)
    with pytest.raises(OptionError, match="No space left on device"):
        Report(sample_report()).save(tmp_path / "out")


@pytest.mark.parametrize("kind", KINDS)
def test_rebuild_gives_the_same_files(kind, tmp_path):
    place = Report(sample_report(kind), Coordinates()).save(tmp_path / "out")
    before = contents(place)
    (place / "report.html").write_text("spoilt")
    (place / "report.md").unlink()
    assert Report.rebuild(place).verdict["mechanism"] == sample_report(kind)["verdict"]["mechanism"]
    assert contents(place) == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read .*report.json"),
        (b"{", "is not JSON: .* at line 1, column 2"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[]", "expected an object, found list"),
        (b"[" * 100_000, "is not"),
        (b'{"schema": "imir-lens/report/1"}', "'created_with' is a required property"),
        (b'{"a": NaN}', "holds NaN"),
    ],
)
def test_a_bad_report_json_is_one_clear_line(content, said, tmp_path):
    if content is not None:
        (tmp_path / "report.json").write_bytes(content)
    before = contents(tmp_path)
    with pytest.raises(ReportError, match=said) as error:
        Report.rebuild(tmp_path)
    assert "\n" not in str(error.value)
    assert contents(tmp_path) == before


def test_loaded_coordinates_travel_to_the_next_place(tmp_path):
    place = Report(sample_report(), Coordinates(b"12")).save(tmp_path / "one")
    loaded = Report.load(place)
    loaded.save(place, force=True)
    loaded.save(tmp_path / "two")
    assert (place / "coordinates.safetensors").read_bytes() == b"12"
    assert (tmp_path / "two" / "coordinates.safetensors").read_bytes() == b"12"


def test_broken_unicode_survives_the_round_trip(tmp_path):
    report = sample_report()
    report["examples"][0]["tokens"][0] = "\ud800"
    place = Report(report).save(tmp_path / "out")
    assert Report.load(place).data["examples"][0]["tokens"][0] == "\ud800"


def test_a_report_speaks_for_itself():
    report = Report(sample_report())
    assert report.verdict["mechanism"] == "in_context"
    assert [unit["role"] for unit in report.units] == ["beta", "gamma", "alpha", "auxiliary"]
    assert "L1H0/score/q:res/k:L0H0/same" in repr(report)
    assert report.verdict["text"] in repr(report)
    assert "<svg" in report._repr_html_()
    assert report._repr_markdown_().startswith("# Circuit report")
