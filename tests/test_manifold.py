"""The parameter-space projection: dimensions, exactness on planted models, and agreement with brute force."""

import pytest
import torch
from hand_built import HandBuilt, all_kinds, induction, memory
from torch import Tensor

from imir_lens.errors import OptionError, TaskError
from imir_lens.ids import CoordinateId
from imir_lens.manifold import Manifold, manifold_dimension
from imir_lens.models.blueprint import shift_matrix
from imir_lens.models.constructions import induction_circuit, memory_circuit
from imir_lens.models.disentangled import DisentangledConfig, DisentangledTransformer
from imir_lens.tasks import make_task

SMALL = make_task("recall", vocab=7, pairs=1, length=5, f_r=0.0)
STREAMS = {
    "concat": {},
    "centred": {"embedding": "centred"},
    "add, apart": {"stream": "add"},
    "add, dense": {"stream": "add", "d_model": 16},
}


def _random(task=SMALL, *, n_layers: int = 2, n_heads: int = 1, seed: int = 0, **options) -> DisentangledTransformer:
    shape = {"d_vocab": task.d_vocab, "n_ctx": task.n_positions, "n_layers": n_layers, "n_heads": n_heads}
    config = DisentangledConfig(**shape, init_std=1.0, **options)
    return DisentangledTransformer(config, generator=torch.Generator().manual_seed(seed))


def _manifold(task=SMALL, *, n_layers: int = 2, n_heads: int = 1, **options) -> Manifold:
    return Manifold(task.relations, n_layers=n_layers, n_heads=n_heads, **options)


def _basis_matrix(model: DisentangledTransformer, name: CoordinateId, task=SMALL) -> Tensor:
    """One basis matrix, written out: the whole product for a head or the readout."""
    layer = name.head.layer if name.is_score else model.cfg.n_layers
    source = "tok" if name.offset is None else "pos"
    if name.offset is None:
        relation = task.relations.matrix(name.relation).double()
    else:
        relation = shift_matrix(task.n_positions, name.offset).double()
    place = dict(zip(model.paths(layer), model.contents(layer, source).double(), strict=True))
    left = place[name.query if name.is_score else name.key].T @ relation
    return left @ place[name.key] if name.is_score else left


def _explicit(model: DisentangledTransformer, manifold: Manifold, task=SMALL) -> dict[str, tuple[Tensor, Tensor]]:
    """Per part, coefficients and kept matrix by a dense least-squares solve over basis matrices."""
    found = {}
    names = [CoordinateId.parse(text) for text in manifold.ids]
    for part in [str(head) for head in dict.fromkeys(n.head for n in names if n.head)] + ["readout"]:
        mine = [n for n in names if str(n.head or "readout") == part]
        if part == "readout":
            target = model.unembed.W_U
        else:
            target = model.attention(mine[0].head.layer).W_KQ[mine[0].head.index]
        columns = torch.stack([_basis_matrix(model, n, task).flatten() for n in mine], dim=1)
        solved = torch.linalg.lstsq(columns, target.detach().double().flatten(), driver="gelsd").solution
        found[part] = (solved, (columns @ solved).reshape(target.shape))
    return found


def test_dimensions_are_those_of_the_paper():
    assert manifold_dimension(2, 1) == 28
    assert manifold_dimension(2, 1, token_relations=1) == 3 + 12 + 4 == 19
    assert manifold_dimension(3, 1) == 100
    assert manifold_dimension(5, 1) == 1428
    assert manifold_dimension(0, 1) == 2
    assert manifold_dimension(1, 3, token_relations=1, offsets=5) == 3 * 6 + 4


@pytest.mark.parametrize(("n_layers", "n_heads"), [(0, 1), (2, 1), (1, 3), (3, 2), (5, 1)])
def test_ids_name_every_direction_once(n_layers, n_heads):
    manifold = _manifold(n_layers=n_layers, n_heads=n_heads)
    assert len(set(manifold.ids)) == manifold.dimension == manifold_dimension(n_layers, n_heads)
    assert all(str(CoordinateId.parse(text)) == text for text in manifold.ids)


def test_the_basis_is_independent_at_the_papers_sizes():
    task = make_task("recall", vocab=9, pairs=2, length=6, f_r=0.0)
    for n_layers, dimension in ((2, 28), (3, 100), (5, 1428)):
        found = _manifold(task, n_layers=n_layers).project(_random(task, n_layers=n_layers))
        assert found.total.dimension == dimension == len(found.coefficients)


@pytest.mark.parametrize("stream", ["concat", "add"])
@pytest.mark.parametrize("name", ["induction", "memory", "mixed", "hop2", "hop3"])
def test_planted_models_are_wholly_on_it_with_the_planted_coefficients(name, stream):
    built = all_kinds()[name]
    names = [n for n in built.task.relations.names if n in built.task.relations.matchings or n == "rare>rare"]
    manifold = _manifold(
        built.task, n_layers=built.n_layers, n_heads=built.n_heads, token_relations=names, offsets=(-1, 0, 1)
    )
    found = manifold.project(built.disentangled(stream=stream))
    assert found.total.on > 100
    assert found.total.off < 1e-10 * found.total.on
    assert found.total.fraction == pytest.approx(1.0)
    for text, value in found.coefficients.items():
        assert value == pytest.approx(built.circuit.get(text, 0.0), abs=1e-4)
    assert set(built.circuit) <= set(found.coefficients)


def test_what_lies_outside_is_seen_where_it_is():
    built = induction()
    model = built.disentangled()
    with torch.no_grad():
        model.attention(1).W_KQ[0, 3, 5] += 2.0
    parts = _manifold(built.task, token_relations=("same",)).project(model).parts
    assert parts["L1H0"].off == pytest.approx(4.0, rel=1e-5)
    assert parts["L0H0"].off + parts["readout"].off < 1e-8
    # A shift that is not in P is outside too.
    assert _manifold(built.task, token_relations=("same",), offsets=(0, 2)).project(model).parts["L0H0"].fraction == 0


@pytest.mark.parametrize("options", STREAMS.values(), ids=STREAMS)
def test_random_weights_are_on_it_by_chance_only(options):
    task = make_task("recall", vocab=17, pairs=2, length=8, f_r=0.0)
    options = {**options, "d_model": 30} if "d_model" in options else options
    total = Manifold(task.relations, n_layers=3, n_heads=1).project(_random(task, n_layers=3, **options)).total
    expected = total.dimension / total.entries
    assert expected < 0.04
    # The share is a chi-square of `dimension` degrees of freedom: five standard deviations.
    assert total.fraction == pytest.approx(expected, rel=5 * (2 / total.dimension) ** 0.5)


@pytest.mark.parametrize("options", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize(("n_layers", "n_heads"), [(2, 1), (1, 2)])
def test_gram_path_equals_least_squares_on_the_written_out_basis(options, n_layers, n_heads):
    model = _random(n_layers=n_layers, n_heads=n_heads, **options)
    manifold = _manifold(n_layers=n_layers, n_heads=n_heads, token_relations=("same", "assoc", "word>word"))
    found = manifold.project(model)
    position = 0
    for part, (solved, kept) in _explicit(model, manifold).items():
        mine = list(found.coefficients.values())[position : position + len(solved)]
        position += len(solved)
        torch.testing.assert_close(torch.tensor(mine, dtype=torch.float64), solved, atol=1e-8, rtol=1e-6)
        assert found.parts[part].on == pytest.approx(kept.square().sum().item(), rel=1e-6)
    assert position == manifold.dimension == len(manifold.ids)
    assert list(found.coefficients) == manifold.ids


def test_overlapping_contents_need_the_gram_matrix():
    model, manifold = _random(**STREAMS["add, dense"]), _manifold()
    found = manifold.project(model)
    names = [CoordinateId.parse(text) for text in manifold.ids if text.startswith("L1H0")]
    basis = torch.stack([_basis_matrix(model, n).flatten() for n in names])
    gram = basis @ basis.T
    off_diagonal = gram - gram.diag().diag()
    assert off_diagonal.abs().max() > 0.5
    naive = basis @ model.attention(1).W_KQ[0].detach().double().flatten() / gram.diag()
    solved = torch.tensor([found.coefficients[str(n)] for n in names], dtype=torch.float64)
    assert (naive - solved).abs().max() > 0.05
    # The residual is orthogonal to every basis matrix, which characterises the projection.
    kept = found.weights["blocks.1.attn.W_KQ"][0].double()
    residual = model.attention(1).W_KQ[0].detach().double() - kept
    assert (basis @ residual.flatten()).abs().max() < 1e-5 < residual.abs().max()


@pytest.mark.parametrize("options", STREAMS.values(), ids=STREAMS)
def test_projecting_twice_changes_nothing(options):
    model, manifold = _random(**options), _manifold()
    once = manifold.project(model)
    twice = manifold.project(model, weights=once.weights)
    assert once.total.fraction < 0.5
    assert twice.total.off < 1e-10 * twice.total.on
    for name in once.coefficients:
        assert twice.coefficients[name] == pytest.approx(once.coefficients[name], abs=1e-5)
    for name, kept in once.weights.items():
        torch.testing.assert_close(twice.weights[name], kept, atol=1e-5, rtol=1e-5)


def test_projection_is_linear():
    first, second, manifold = _random(seed=1), _random(seed=2), _manifold()
    values = {
        name: (p.detach(), dict(second.named_parameters())[name].detach()) for name, p in first.named_parameters()
    }
    mixed = manifold.project(first, weights={name: 2 * a - 3 * b for name, (a, b) in values.items()}).coefficients
    left, right = manifold.project(first).coefficients, manifold.project(second).coefficients
    for name, value in mixed.items():
        assert value == pytest.approx(2 * left[name] - 3 * right[name], abs=1e-5)
    assert max(map(abs, mixed.values())) > 0.5


def test_coefficients_rebuild_the_kept_weights():
    model, manifold = _random(n_heads=2), _manifold(n_heads=2)
    found = manifold.project(model)
    for layer in range(2):
        for head in range(2):
            names = [CoordinateId.parse(t) for t in manifold.ids if t.startswith(f"L{layer}H{head}/")]
            rebuilt = sum(found.coefficients[str(n)] * _basis_matrix(model, n) for n in names)
            kept = found.weights[f"blocks.{layer}.attn.W_KQ"][head]
            torch.testing.assert_close(rebuilt.float(), kept, atol=1e-5, rtol=1e-5)


def test_a_relation_that_others_contain_leaves_the_projection_as_it_is():
    task = make_task("recall", vocab=3, pairs=1, length=5, f_r=0.0)  # one couple, so same and assoc are all word pairs
    names = ("same", "assoc", "word>word")
    same, assoc, words = (task.relations.matrix(name).int() for name in names)
    assert torch.equal(same + assoc, words)
    model = _random(task, n_layers=1)
    few, more = (_manifold(task, n_layers=1, token_relations=part).project(model) for part in (names[:2], names))
    assert len(more.coefficients) == len(few.coefficients) + 3
    assert more.total.dimension == few.total.dimension == len(few.coefficients)
    assert more.total.on == pytest.approx(few.total.on)
    for name, kept in few.weights.items():
        torch.testing.assert_close(more.weights[name], kept)


def test_a_constant_query_is_all_query_classes_at_once():
    task = induction().task
    circuit = {"L0H0/score/q:const/k:res/word": 3.0, "readout/via:const/word": 2.0}
    model = HandBuilt(task, circuit, 1).disentangled()
    found = _manifold(task, n_layers=1, token_relations=("filler>word", "word>word")).project(model)
    assert found.total.off < 1e-10 * found.total.on
    for query in ("filler", "word"):
        assert found.coefficients[f"L0H0/score/q:res/k:res/{query}>word"] == pytest.approx(3.0)
        assert found.coefficients[f"readout/via:res/{query}>word"] == pytest.approx(2.0)


def test_zero_weights_have_no_energy():
    model = memory().disentangled()
    total = _manifold(memory().task, n_layers=1).project(model, weights={n: 0 * p for n, p in model.named_parameters()})
    assert (total.total.on, total.total.off, total.total.fraction) == (0, 0, 0)


def test_by_default_all_matchings_of_the_task_are_taken():
    recall, hop = make_task("recall", f_r=0.0).relations, make_task("hop").relations
    assert Manifold(recall, n_layers=2, n_heads=1).token_relations == ("same", "assoc")
    assert Manifold(hop, n_layers=2, n_heads=1).dimension == 19
    assert induction_circuit().keys() & set(_manifold(n_layers=2).ids) == induction_circuit().keys()
    assert memory_circuit().keys() <= set(_manifold(n_layers=0).ids)


def test_wrong_requests_are_refused():
    with pytest.raises(TaskError, match="'assoc'"):
        Manifold(make_task("hop").relations, n_layers=1, n_heads=1, token_relations=("assoc",))
    with pytest.raises(OptionError, match="twice"):
        _manifold(offsets=(1, 1))
    with pytest.raises(OptionError, match="n_layers=3, the model n_layers=2"):
        _manifold(n_layers=3).project(_random())
    with pytest.raises(OptionError, match=r"'unembed\.W_U'"):
        _manifold(n_layers=0).project(_random(n_layers=0), weights={})
