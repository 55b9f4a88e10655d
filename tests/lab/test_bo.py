"""The benchmark of Bayesian optimisation."""

from pathlib import Path

import pytest

from kitt.errors import InvalidInputError
from kitt_lab.bench.bo import bo_cells, bo_grids
from kitt_lab.bench.runner import Plan, run


def test_optimisation_of_functions(tmp_path: Path) -> None:
    """Two methods from the same points: regret never grows, and the tables read the lines."""
    cells = bo_cells(["branin"], ["default", "kitt-mixture"], range(2), 3, [0.05])
    lines = run(cells, tmp_path / "bo.jsonl", Plan(jobs=0))
    assert [line["status"] for line in lines] == ["ok"] * 4, lines
    for line in lines:
        regret = line["result"]["regret"]
        assert len(regret) == 4
        assert regret == sorted(regret, reverse=True)
    first = [line["result"]["regret"][0] for line in lines]
    assert first[0] == first[1] != first[2] == first[3]
    regrets, ranks, seconds = bo_grids(lines)
    assert regrets.rows[0][0] == "branin with noise (2)"
    assert "±" in regrets.rows[0][2]
    assert sum(float(row[1].split()[0]) for row in ranks.rows) == pytest.approx(3.0)
    assert [row[0] for row in seconds.rows] == ["default", "kitt-mixture"]
    for name, value, message in (
        ("evaluations", 9, "one number of evaluations, got 3, 9: keep"),
        ("noise", 0.1, "one level of noise, beside none, got 0.05, 0.1: keep"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            bo_grids([*lines, {**lines[0], "key": {**lines[0]["key"], name: value}}])
    with pytest.raises(InvalidInputError, match="one level of noise"):
        bo_cells(["branin"], ["default"], [0], 3, [0.0, 0.05, 0.1])
    with pytest.raises(InvalidInputError, match="no function is called 'brain'"):
        bo_cells(["brain"], ["default"], [0], 3, [0.0])
