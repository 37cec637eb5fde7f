"""Two reports beside each other: what is matched, what is said, and what is refused."""

import copy
import json
import math

import pytest
from calling import RECALL, contents
from sample_report import KINDS, sample_report

import imir_lens
from imir_lens.ids import CoordinateId
from imir_lens.report import Report, ReportError
from imir_lens.report.comparison_build import compare
from imir_lens.report.comparison_document import Comparison
from imir_lens.roles import Unit
from imir_lens.shapes import circuit_shape, shape_jaccard

ALPHA, BETA = "L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same"
GAMMA, AUXILIARY = "readout/via:L1H0/same", "L1H0/score/q:res/k:res/same"
FILES = {"comparison.html", "comparison.json", "comparison.md", "figures/circuits.svg", "figures/coordinates.svg"}


def report(kind: str = "recall", source: str = "", **units: float) -> dict:
    """A sample report of another file; `units` are new values of roles, of the listed coordinate as well."""
    data = sample_report(kind)
    data["model"]["source"] = source or f"{kind}.pt"
    data["model"]["sha256"] = None
    for row in [*data["circuit"]["units"], *data["coordinates"]]:
        if row["role"] in units and row.get("in_circuit", True):
            row["value"] = units[row["role"]]
    return data


def compared(first: dict, second: dict) -> Comparison:
    return compare(Report(first), Report(second))


def rows(found: Comparison) -> dict[str, dict]:
    return {(row["first"] or row["second"])["id"]: row for row in found.units}


def renamed(data: dict, old: str, new: str) -> dict:
    return json.loads(json.dumps(data).replace(old, new))


def test_units_of_one_id_are_matched_with_their_differences():
    found = compared(report(), report(source="later.pt", gamma=12.1, alpha=6.5))
    assert [row["match"] for row in found.units] == ["id"] * 4
    assert [row["role"] for row in found.units] == ["alpha", "beta", "gamma", "auxiliary"]
    differences = {name: row["difference"] for name, row in rows(found).items()}
    assert differences == pytest.approx({ALPHA: 6.5 - 6.71, BETA: 0, GAMMA: 12.1 - 18.59, AUXILIARY: 0})
    assert found.jaccard == {"id": 1, "shape": 1}
    assert found.headline == (
        "Both do recall in context, with the same circuit; recall.pt copies more strongly (gamma 18.6 against 12.1)."
    )


def test_one_job_in_another_head_is_matched_by_role_and_shape():
    first, second = report(), renamed(report(source="other.pt"), "L1H0", "L1H1")
    for data in (first, second):
        data["model"]["n_heads"] = 2
    found = compared(first, second)
    assert {name: row["match"] for name, row in rows(found).items()} == {
        ALPHA: "id",
        BETA: "shape",
        GAMMA: "shape",
        AUXILIARY: "shape",
    }
    assert rows(found)[BETA]["second"]["id"] == "L1H1/score/q:res/k:L0H0/same"
    assert found.jaccard == {"id": pytest.approx(1 / 7), "shape": 1}
    assert "with the same circuit in other heads" in found.headline
    assert "the same job in another head" in found._repr_markdown_()


def test_a_unit_of_one_circuit_has_the_value_that_its_coordinate_has_in_the_other():
    second = report(source="other.pt")
    second["circuit"]["units"] = [unit for unit in second["circuit"]["units"] if unit["id"] != AUXILIARY]
    second["circuit"]["roles"] = [role for role in second["circuit"]["roles"] if role["role"] != "auxiliary"]
    listed = next(c for c in second["coordinates"] if c["id"] == AUXILIARY)
    listed |= {"in_circuit": False, "value": -0.5}
    row = rows(compared(report(), second))[AUXILIARY]
    assert row["match"] == "first"
    assert row["second"] == {"id": AUXILIARY, "in_circuit": False, "value": -0.5}
    assert row["difference"] == pytest.approx(-0.5 + 2.04)
    second["coordinates"].remove(listed)
    found = compared(report(), second)
    assert rows(found)[AUXILIARY]["second"] is None
    assert rows(found)[AUXILIARY]["difference"] is None
    assert found.headline.startswith("Both do recall in context, with the same circuit but for auxiliary directions")
    assert "that report does not know it" in found._repr_markdown_()


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_every_unit_of_both_circuits_stands_in_one_row(first, second):
    one, two = report(first), report(second, source="other.pt")
    found = compared(one, two)
    for side, data in (("first", one), ("second", two)):
        there = [row[side]["id"] for row in found.units if row[side] and row[side]["in_circuit"]]
        assert sorted(there) == sorted(unit["id"] for unit in data["circuit"]["units"])
    parsed = [
        [Unit(CoordinateId.parse(u["id"]), 0, u["role"], u["value"]) for u in data["circuit"]["units"]]
        for data in (one, two)
    ]
    index = shape_jaccard(*map(circuit_shape, parsed))
    assert found.jaccard["shape"] == (index if found.units else None)
    if found.data["by_id"]:
        shared = len({u["id"] for u in one["circuit"]["units"]} & {u["id"] for u in two["circuit"]["units"]})
        assert sum(row["match"] == "id" for row in found.units) == shared
    elif found.units:
        matched = sum(row["match"] == "shape" for row in found.units)
        assert index == matched / len(found.units)
    assert len(found.headline) < 220


HEADLINES = {
    "another mechanism": (
        ("memory", "recall"),
        "memory.pt does recall from memory; recall.pt does it in context: "
        "alpha, beta and gamma are only in recall.pt; delta is only in memory.pt.",
    ),
    "one more role": (
        ("recall", "mixed"),
        "recall.pt does recall in context; mixed.pt does it both in context and from memory: "
        "delta is only in mixed.pt.",
    ),
    "found in the second": (
        ("not_detected", "recall"),
        "in not_detected.pt no mechanism was detected; recall.pt does recall in context, with alpha, beta and gamma.",
    ),
    "found in the first": (
        ("recall", "not_detected"),
        "recall.pt does recall in context, with alpha, beta and gamma; in not_detected.pt no mechanism was detected.",
    ),
    "found in neither": (
        ("not_detected", "not_detected"),
        "No mechanism was detected in one.pt, nor in two.pt.",
    ),
}


@pytest.mark.parametrize("name", HEADLINES)
def test_the_headline_says_what_differs(name):
    (one, two), said = HEADLINES[name]
    sources = ("one.pt", "two.pt") if one == two else ("", "")
    headline = compared(report(one, sources[0]), report(two, sources[1])).headline
    assert headline.casefold() == said.casefold()


def test_checkpoints_of_one_run_are_called_by_their_steps_and_what_came_is_new():
    found = compared(report("memory", "run/step_00000100.pt"), report("mixed", "run/step_00001800.pt"))
    assert found.headline == (
        "Step 100 does recall from memory; step 1,800 does it both in context and from memory: "
        "alpha, beta and gamma are new."
    )
    back = compared(report("mixed", "run/step_00001800.pt"), report("memory", "run/step_00000100.pt"))
    assert "are only in step 1,800" in back.headline
    apart = compared(report("memory", "a/step_100.pt"), report("mixed", "b/step_100.pt"))
    assert apart.headline.startswith("a/step_100.pt does recall")


def test_small_differences_are_not_put_into_words():
    found = compared(report(), report(source="other.pt", gamma=18.59 * 0.92))
    assert found.headline == (
        "Both do recall in context, with the same circuit; no named value differs by 10% or more."
    )


def test_a_report_compared_with_itself_says_so():
    data = report()
    again = copy.deepcopy(data)
    again["circuit"]["seconds"] += 1
    again["created_with"]["torch"] = "another"
    found = compared(data, again)
    assert found.headline == "Both reports are the same: a report compared with itself."
    assert {row["difference"] for row in found.units} == {0}
    again["circuit"]["units"][0]["value"] += 1e-9
    assert not compared(data, again).data["same_report"]


CAVEATS = {
    "task": (lambda d: d["task"].update(name="hop"), "The tasks differ: recall in A, hop in B."),
    "knobs": (lambda d: d["task"]["knobs"].update(pairs=4), "knobs differ: pairs 8 in A, 4 in B."),
    "layers": (lambda d: d["model"].update(n_layers=3), "The models differ: layers 2 in A, 3 in B. An id does not"),
    "width": (lambda d: d["model"].update(d_model=64), "d_model 128 in A, 64 in B. Ids name the same things"),
    "contexts": (lambda d: d["evaluation"].update(contexts=64), "test contexts 512 in A, 64 in B."),
    "test seed": (lambda d: d["evaluation"].update(test_seed=3), "their seed 1 in A, 3 in B"),
    "seed": (lambda d: d.update(seed=7), "The searches differ: seed 0 in A, 7 in B."),
    "budget": (lambda d: d["circuit"].update(budget=0.1), "loss budget 0.01 in A, 0.1 in B"),
    "ablation": (lambda d: d.update(ablation="means"), "removed in different ways"),
    "versions": (lambda d: d["created_with"].update(torch="1"), "torch 2.13.0 in A, 1 in B"),
    "nothing found": (lambda d: d["verdict"].update(mechanism="not_detected"), "Not detected in B is not the same"),
    "one checkpoint": (lambda d: d["verdict"].update(text="again"), "Both reports are of one checkpoint"),
}


@pytest.mark.parametrize("name", CAVEATS)
def test_what_does_not_compare_is_said(name):
    edit, said = CAVEATS[name]
    first = sample_report("recall")
    second = sample_report("recall")
    if name != "one checkpoint":
        first["model"]["sha256"] = second["model"]["sha256"] = None
    edit(second)
    found = compared(first, second)
    assert said in " ".join(found.caveats)
    assert len(found.caveats) == 1
    assert said in found._repr_html_().replace("&#39;", "'")
    assert said in repr(found)


@pytest.mark.parametrize("name", ["task", "layers"])
def test_where_ids_do_not_correspond_units_are_matched_by_shape_only(name):
    second = report(source="other.pt", gamma=9.0)
    CAVEATS[name][0](second)
    found = compared(report(), second)
    assert [row["match"] for row in found.units] == ["shape"] * 4
    assert found.jaccard == {"id": None, "shape": 1}
    assert found.data["coordinates"]["source"] == "none"
    assert found.figures == ("circuits",)
    assert "circuits of one shape" in found.headline


def test_a_coordinate_that_a_report_does_not_list_is_unknown_not_zero():
    first, second = report(), report(source="other.pt")
    gone = second["coordinates"].pop()
    first["coordinates"] = [c for c in first["coordinates"] if c["id"] != ALPHA]
    found = compared(first, second).data["coordinates"]
    assert found["source"] == "listed"
    assert "no coordinates.safetensors beside report A" in found["reason"]
    assert found["left_out"] == {"first": 1, "second": 1}
    assert found["cosine"] is None
    assert len(found["points"]) == 38
    assert not {gone["id"], ALPHA} & {point["id"] for point in found["points"]}
    assert {point["circuits"] for point in found["points"]} == {"both", "neither"}
    words = compared(first, second)._repr_markdown_()
    assert "39 of 286 in A, 39 of 286 in B" in words
    assert "1 in A only and 1 in B only are left out" in words


def in_agreement(coordinates: imir_lens.Coordinates, source: str) -> Report:
    """A report whose units have the values of these coordinates."""
    data = report(source=source)
    data["coordinates"] = [row for row in data["coordinates"] if row["in_circuit"]]
    for row in [*data["circuit"]["units"], *data["coordinates"]]:
        row["value"] = coordinates[row["id"]]
    return Report(data, coordinates)


@pytest.fixture(scope="module")
def coordinates():
    model = imir_lens.open_model(RECALL)
    return imir_lens.ImirProjector.for_task(imir_lens.make_task("recall")).fit(model.weights).coordinates_


def test_with_the_files_at_hand_all_coordinates_are_compared(coordinates, tmp_path):
    changed = coordinates.only(list(map(str, coordinates)))
    changed.values[changed.space.place(GAMMA)] = 3.0
    places = [in_agreement(c, f"{n}.pt").save(tmp_path / n) for n, c in (("a", coordinates), ("b", changed))]
    found = compare(*places).data["coordinates"]
    assert (found["source"], found["reason"]) == ("all", "")
    one, two = (
        {str(name): each[name] for name in coordinates} for each in (coordinates, changed)
    )  # by another road: the named values
    dot = math.fsum(one[name] * two[name] for name in one)
    norms = [math.sqrt(math.fsum(v * v for v in each.values())) for each in (one, two)]
    assert found["cosine"] == pytest.approx(dot / norms[0] / norms[1], rel=1e-6)
    assert {p["id"]: (p["first"], p["second"]) for p in found["points"]}[GAMMA] == (one[GAMMA], 3.0)
    zeros = sum(one[name] == two[name] == 0 for name in one)
    assert len(found["points"]) == len(one) - zeros
    assert found["left_out"] == {"first": zeros, "second": zeros}


def test_coordinates_of_another_report_or_damaged_ones_are_not_used(coordinates, tmp_path):
    place = in_agreement(coordinates, "a.pt").save(tmp_path / "a")
    other = in_agreement(coordinates * 2.0, "b.pt")
    other.coordinates = coordinates
    found = compare(place, other).data["coordinates"]
    assert (found["source"], found["reason"]) == (
        "listed",
        "the coordinates beside report B are those of another report",
    )
    (place / "coordinates.safetensors").write_bytes(b"none")
    assert "is not a coordinates file" in compare(place, place).data["coordinates"]["reason"]


def test_it_is_saved_loaded_and_rebuilt_as_it_was(tmp_path):
    found = compared(report(), report("mixed"))
    place = found.save(tmp_path / "out")
    before = contents(place)
    assert set(before) == FILES
    assert Comparison.load(place).data == found.data
    assert compared(report(), report("mixed")).data == found.data
    for name in FILES - {"comparison.json"}:
        (place / name).unlink()
    assert Comparison.rebuild(place).headline == found.headline
    assert contents(place) == before


def test_a_comparison_that_does_not_follow_its_schema_is_refused():
    data = compared(report(), report("mixed")).data
    for edit, said in (
        (lambda d: d["units"][0].update(match="maybe"), "units"),
        (lambda d: d["first"]["verdict"].update(mechanism="magic"), "report.first: report.verdict.mechanism"),
        (lambda d: d["units"][0].update(first=None, second=None), "expected a unit of the first circuit"),
        (lambda d: d["coordinates"]["points"][0].update(first=math.inf), "finite"),
    ):
        spoilt = copy.deepcopy(data)
        edit(spoilt)
        with pytest.raises(ReportError, match=said):
            Comparison.check(spoilt)


def test_two_of_them_in_a_notebook_do_not_share_element_ids():
    cards = [compared(report(), report(kind, source="b.pt"))._repr_html_() for kind in ("mixed", "memory")]
    found = [{part.partition('"')[0] for part in card.split(' id="')[1:]} for card in cards]
    assert found[0]
    assert not found[0] & found[1]
