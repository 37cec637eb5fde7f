"""Cells that tests run in other processes; each call leaves a line in the cell's folder."""

import os
import signal
import time
from pathlib import Path

import numpy as np


def square(settings, folder):
    note(folder)
    if settings["x"] == settings.get("bad"):
        raise ValueError(f"x is\n{settings['x']}")
    return {"square": settings["x"] ** 2, "list": [1, 2], "array": np.arange(2), "process": os.getpid()}


def deadly(settings, folder):
    """Ends its own process by SIGKILL as often as `deaths` says."""
    note(folder)
    if calls(folder) <= settings["deaths"]:
        time.sleep(settings.get("after", 0))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(settings.get("lasts", 0))
    return {"calls": calls(folder)}


def patient(settings, folder):
    """Waits until the file `go` is there."""
    note(folder)
    (folder / "process").write_text(str(os.getpid()))
    while settings["wait"] and not Path(settings["go"]).exists():
        time.sleep(0.02)
    return {"x": settings["x"]}


def unprintable(settings, folder):
    return {"value": object()}


def killed_while_training(settings, folder):
    """Trains and analyses, but the first time the process is killed at step 14, between two saved states."""

    def stop(step, row):
        if step == 14 and calls(folder) == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    note(folder)
    return watched(settings, folder, stop)


def slow_training(settings, folder):
    """Trains, with a tenth of a second a step after the fiftieth."""
    from imir_lens.sweep.settings import resolve

    return watched(resolve(settings), folder, lambda step, row: time.sleep(0.1 * (step > 50)))


def watched(settings, folder, progress):
    from imir_lens.sweep import experiment

    train = experiment.train
    experiment.train = lambda *args, **options: train(*args, progress=progress, **options)
    try:
        return experiment.run_cell(settings, folder)
    finally:
        experiment.train = train


def note(folder):
    with (folder / ".calls").open("a") as file:
        file.write(f"{os.getpid()}\n")


def calls(folder):
    file = folder / ".calls"
    return len(file.read_text().splitlines()) if file.exists() else 0
