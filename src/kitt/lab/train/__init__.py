"""Learning to caption: `recipes` say what a run is, `step` learns, `loop` repeats, `validate` judges."""

from kitt.lab.train.loop import Progress, TrainingBudget, train, use_threads
from kitt.lab.train.recipes import PRESETS, Optimiser, Sizes, TrainConfig, ValidationSet, recipe
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
    "recipe",
    "score",
    "train",
    "use_threads",
]
