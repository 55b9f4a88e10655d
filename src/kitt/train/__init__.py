"""Learning to caption: `recipes` say what a run is, `step` learns, `loop` repeats, `validate` judges."""

from kitt.train.loop import Budget, Progress, train, use_threads
from kitt.train.recipes import PRESETS, Optimiser, Sizes, TrainConfig, ValidationSet, recipe
from kitt.train.runfolder import RunFolder
from kitt.train.step import draw_batch, losses
from kitt.train.validate import draw_validation, greedy, score

__all__ = [
    "PRESETS",
    "Budget",
    "Optimiser",
    "Progress",
    "RunFolder",
    "Sizes",
    "TrainConfig",
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
