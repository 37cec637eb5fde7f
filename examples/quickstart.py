"""From a checkpoint to its report: in one call, then step by step."""

import torch

import imir_lens

report = imir_lens.analyze("tests/data/recall_2l.pt", "recall")  # a path, or a live model
report.save("report", force=True)  # report.html, report.md, report.json, figures, coordinates

model, task = imir_lens.open_model("tests/data/recall_2l.pt"), imir_lens.make_task("recall")
projector = imir_lens.ImirProjector.for_task(task).fit(model.weights)
batch = task.sample(256, torch.Generator().manual_seed(0))
circuit = imir_lens.detect(projector.coordinates_, batch)
without_alpha = imir_lens.ablate(model, projector.coordinates_, ["L0H0/score/q:res/k:res/offset+1"], batch)
print(report, circuit, (without_alpha.argmax(-1) == batch.targets).float().mean(), sep="\n")
