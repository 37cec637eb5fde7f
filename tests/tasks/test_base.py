import torch

from imir_lens.tasks import Hop, Recall


def test_part_of_a_batch_keeps_everything_aligned(generator):
    batch = Recall().sample(10, generator)
    part = batch[torch.tensor([7, 2])]
    assert len(part) == 2
    assert torch.equal(part.tokens[1], batch.tokens[2])
    assert torch.equal(part.targets[0], batch.targets[7])
    assert set(part.latent) == set(batch.latent)
    assert torch.equal(part.latent["starts"][1], batch.latent["starts"][2])
    assert len(batch[2:5]) == 3
    assert torch.equal(batch.to("cpu").latent["words"], batch.latent["words"])


def test_knobs_are_the_fields_and_rebuild_the_task():
    task = Hop(hops=3, chains=1)
    assert task.knobs == {"vocab": 64, "hops": 3, "chains": 1, "distractors": 2, "length": 24}
    assert Hop(**task.knobs) == task
    assert (task.d_vocab, task.n_positions) == (64, 24)
