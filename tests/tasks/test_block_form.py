from imir_lens.ids import CoordinateId
from imir_lens.tasks import Copy, Hop, Inversion, Ngram, Retrieval, make_task, task_names
from imir_lens.tasks.block_form import BlockForm, Link, linked_parts


def test_the_form_gives_the_reference_circuits():
    alpha, beta = "L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same"
    matched = "L1H0/score/q:res/k:res/same"
    not_here = "L1H0/score/q:res/k:res/offset+0"
    assert Inversion().reference_circuit == (alpha, matched, "readout/via:L0H0.L1H0/same", not_here)
    conjunction = (
        alpha,
        "L0H1/score/q:res/k:res/offset+2",
        beta,
        "L1H0/score/q:L0H0/k:L0H1/same",
        "readout/via:L1H0/same",
    )
    assert Retrieval().reference_circuit == conjunction
    assert Ngram().reference_circuit == conjunction
    assert Ngram(n=2).reference_circuit == Copy().reference_circuit == (alpha, beta, "readout/via:L1H0/same", matched)
    assert len(Ngram(n=5).reference_circuit) == 2 * 4 + 1
    assert Copy(gap=2).reference_circuit == ("L0H0/score/q:res/k:res/offset+9", "readout/via:L0H0/same")
    assert Inversion(burstiness=0.5, f_r=0.5, pairs=7).reference_circuit[-1] == "readout/via:res/assoc-reverse"
    # nothing has to be brought: what is matched is read out
    form = BlockForm(("word",), (Link(0, 0),), answer=0)
    assert linked_parts(form).ids == ("L1H0/score/q:res/k:res/same", "readout/via:L1H0/same")
    for name in task_names():
        ids = make_task(name).reference_circuit
        assert [str(CoordinateId.parse(text)) for text in ids] == list(ids)


def test_a_form_says_what_has_to_be_brought_where():
    retrieval = Retrieval().form
    assert (retrieval.width, retrieval.given, retrieval.meeting, retrieval.offsets) == (3, 2, 2, (1, 2))
    inversion = Inversion().form
    assert (inversion.width, inversion.given, inversion.meeting, inversion.offsets) == (2, 1, 1, (1,))
    assert Hop(hops=3, chains=1).form.steps == 3
    assert Ngram(n=5).form.offsets == (1, 2, 3, 4)
    # asked between two linked slots: everything meets at the last of them, and the answer is brought there too
    middle = BlockForm(("a", "b", "c"), (Link(1, 0), Link(0, 2)), answer=1)
    assert linked_parts(middle).ids == (
        "L0H0/score/q:res/k:res/offset+1",
        "L0H1/score/q:res/k:res/offset+2",
        "L1H0/score/q:res/k:res/same",
        "L1H0/score/q:L0H0/k:L0H1/same",
        "readout/via:L0H0.L1H0/same",
    )


def test_parts_of_a_circuit_can_be_moved():
    parts = linked_parts(Hop(hops=2).form, heads={"alpha_1": "L0H1", "beta_2": "L3H0"})
    assert parts.alphas == {1: "L0H1/score/q:res/k:res/offset+1"}
    assert parts.matches == ("L1H0/score/q:res/k:L0H1/same", "L3H0/score/q:L1H0/k:L0H1/same")
    assert (parts.readout, parts.finders) == ("readout/via:L3H0/same", ("L1H0", "L3H0"))
