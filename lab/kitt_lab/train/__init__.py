"""Training of captioners: `recipes` configure a run, `step` is one update, `loop` repeats it, `validate` scores."""

from kitt_lab.train.loop import Progress, TrainingBudget, train
from kitt_lab.train.recipes import PRESETS, Optimiser, Sizes, TrainConfig, ValidationSet, preset_of, recipe
from kitt_lab.train.runfolder import RunFolder
from kitt_lab.train.step import draw_batch, losses
from kitt_lab.train.validate import draw_validation, greedy, score

__all__ = [
    "PRESETS",
    "Optimiser",
    "Progress",
    "RunFolder",
    "Sizes",
    "TrainConfig",
    "TrainingBudget",
    "ValidationSet",
    "draw_batch",
    "draw_validation",
    "greedy",
    "losses",
    "preset_of",
    "recipe",
    "score",
    "train",
]
