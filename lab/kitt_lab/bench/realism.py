"""How realistic simulated tables are: whether a classifier can distinguish them from real ones by `features.describe`.

For every table, some of its rows with the last column as target, and a simulated table of the same size. The classifier is
tested on tables that it has not seen: an area under the ROC curve (AUC) of 0.5 means that it cannot distinguish them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kitt.network.features import describe, prepare
from kitt.table.scaling import FloatArray
from kitt_lab.simulate import DEFAULT_DATA, SimulatorConfig, simulate, world_data
from kitt_lab.tasks import Task, data_of, read_table, table_names

ROWS = (50, 200)  # of a table, for the description
COLUMNS = 16
FOLDS = 5


def run_realism(folder: Path, seed: int = 0) -> list[dict[str, Any]]:
    """A row for each simulator: AUC of boosted trees and of a logistic regression."""
    tasks = [task for name in table_names(folder) if (task := _whole(folder, name, seed)) is not None]
    real = np.stack([_of_real(folder, task) for task in tasks])
    simulators = {
        "before: synthetic inputs, no nuisances": DEFAULT_DATA,
        "after, without tables": world_data(),
        "after, inputs of the tables": world_data(str(folder)),
    }
    rows = []
    for name, config in simulators.items():
        drawn = np.stack([_of_simulated(config, task, seed + i) for i, task in enumerate(tasks)])
        rows.append(
            {"simulator": name, "tables": len(tasks)} | {key: auc(real, drawn, key, seed) for key in _CLASSIFIERS}
        )
    return rows


def _whole(folder: Path, name: str, seed: int) -> Task | None:
    """The table with its last column as target: columns that vary, and at most so many rows."""
    values = read_table(str(folder), name)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(values))[: ROWS[1]]
    columns = [j for j in range(values.shape[1] - 1) if values[rows, j].std() > 0][:COLUMNS]
    if len(rows) < ROWS[0] or not columns or not values[rows, -1].std() > 0:
        return None
    return Task(name, values.shape[1] - 1, np.array(columns), rows, rows[:1])


def _of_real(folder: Path, task: Task) -> FloatArray:
    data = data_of(folder, task)
    return _pooled(torch.from_numpy(data.X)[None], torch.from_numpy(data.y)[None])


def _of_simulated(config: SimulatorConfig, task: Task, seed: int) -> FloatArray:
    generator = torch.Generator().manual_seed(seed)
    batch = simulate(config, 1, len(task.train), len(task.columns), generator)
    return _pooled(batch.X, batch.y)


def _pooled(X: Tensor, y: Tensor) -> FloatArray:
    """Mean and maximum over the columns, and the numbers of the whole table."""
    column, whole = describe(prepare(X.float(), y.float()))
    pooled = torch.cat([column.mean(1), column.amax(1), whole], 1)[0]
    return pooled.nan_to_num(0.0).clamp(-50, 50).double().numpy()


def _boosting(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=80, learning_rate=0.1, max_leaf_nodes=8, random_state=seed)


def _logistic(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500, random_state=seed))


_CLASSIFIERS: dict[str, Callable[[int], Any]] = {"boosted trees": _boosting, "logistic regression": _logistic}


def auc(real: FloatArray, drawn: FloatArray, classifier: str, seed: int = 0) -> float:
    """The AUC over five folds; a table and the simulated one of its size are in the same fold."""
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GroupKFold, cross_val_predict

    X = np.vstack([real, drawn])
    labels, groups = np.repeat([1, 0], [len(real), len(drawn)]), np.tile(np.arange(len(real)), 2)
    said = cross_val_predict(
        _CLASSIFIERS[classifier](seed), X, labels, groups=groups, cv=GroupKFold(FOLDS), method="predict_proba"
    )
    return float(roc_auc_score(labels, said[:, 1]))
