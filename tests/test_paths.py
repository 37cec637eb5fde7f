"""Path tables: which paths enter a layer, what extends what, and cutting."""

import pytest
from brute_force import chains, label

from imir_lens.errors import CoordinateError
from imir_lens.ids import Head, Path
from imir_lens.paths import PathTable


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (2, 3), (3, 2), (5, 1)])
def test_a_full_table_holds_every_chain_once(n_layers, n_heads):
    table = PathTable.full(n_layers, n_heads)
    assert len(table) == (n_heads + 1) ** n_layers
    assert sorted(map(str, table.paths)) == sorted(map(label, chains(n_layers, n_heads)))


@pytest.mark.parametrize("table", [PathTable.full(3, 2), PathTable.full(4, 2, max_depth=2)])
def test_the_paths_entering_a_layer_come_first(table):
    for layer, count in enumerate(table.n_entering):
        below = {path for path in table.paths if all(head.layer < layer for head in path.heads)}
        assert set(table.paths[:count]) == below
    assert table.n_entering[0] == 1 and table.n_entering[-1] == len(table)


def test_entering_paths_grow_by_a_factor_each_layer():
    assert PathTable.full(4, 2).n_entering == (1, 3, 9, 27, 81)


def test_depth_limits_the_heads_of_a_path():
    table = PathTable.full(4, 2, max_depth=2)
    assert max(len(path.heads) for path in table.paths) == 2
    assert len(table) == 1 + 4 * 2 + 6 * 4  # none, one of 8 heads, two layers of the 4 and a head in each


def test_extensions_pair_a_path_with_itself_continued():
    table = PathTable.full(3, 2)
    for head in table.heads:
        pairs = table.extensions(head)
        assert len(pairs) == table.n_entering[head.layer]
        assert all(table.paths[before].then(head) == table.paths[after] for before, after in pairs)


def test_heads_are_listed_in_order():
    assert list(map(str, PathTable.full(2, 2).heads)) == ["L0H0", "L0H1", "L1H0", "L1H1"]


def test_cutting_keeps_prefixes_and_order():
    table = PathTable.full(3, 1)
    cut = table.restricted([Path.parse("L0H0.L1H0.L2H0"), Path.parse("L2H0")])
    assert list(map(str, cut.paths)) == ["res", "L0H0", "L0H0.L1H0", "L2H0", "L0H0.L1H0.L2H0"]
    assert cut.n_entering == (1, 2, 3, 5)
    assert [table.paths.index(path) for path in cut.paths] == sorted(table.paths.index(path) for path in cut.paths)
    assert len(table.restricted([])) == 1


def test_a_path_that_was_cut_is_named():
    table = PathTable.full(2, 1, max_depth=1)
    assert table.place(Path((Head(1, 0),))) == 2
    with pytest.raises(CoordinateError, match=r"L0H0\.L1H0 is not among the 3 kept paths"):
        table.place(Path.parse("L0H0.L1H0"))
