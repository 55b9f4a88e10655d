"""Training of captioners: `recipes` configure a run, `step` is one update, `loop` repeats it, `validate` scores."""

from kitt.lab.train.loop import Progress, TrainingBudget, train
from kitt.lab.train.recipes import PRESETS, Optimiser, Sizes, TrainConfig, ValidationSet, preset_of, recipe
from kitt.lab.train.runfolder import RunFolder
from kitt.lab.train.step import draw_batch, losses
from kitt.lab.train.validate import draw_validation, greedy, score

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
