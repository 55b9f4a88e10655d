"""Odd tables: finite predictions, or an error where nothing varies; odd files: captions, or an error that says what came."""

import json
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from kitt import KITTRegressor, explain
from kitt.app.cli import main as cli
from kitt.errors import InvalidInputError, KittError

FAST = {"k": 1, "random_state": 0, "fit_options": {"draws": 8, "starts": 1, "max_iterations": 10}}
FUZZ = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)

INPUTS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "constant": lambda rng, n: np.full(n, rng.normal()),
    "nearly constant": lambda rng, n: 1.0 + 1e-15 * rng.integers(0, 3, n),
    "one outlier": lambda rng, n: np.r_[1e12, np.zeros(n - 1)],
    "integers": lambda rng, n: rng.integers(-3, 4, n),
    "large integers": lambda rng, n: rng.integers(-(2**62), 2**62, n),
    "booleans": lambda rng, n: rng.integers(0, 2, n).astype(bool),
    "huge": lambda rng, n: 1e200 * rng.normal(size=n),
    "tiny": lambda rng, n: 1e-200 * rng.normal(size=n),
    "subnormal": lambda rng, n: 5e-324 * rng.integers(0, 5, n),
    "offset": lambda rng, n: 1e15 + rng.normal(size=n),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n) ** 3,
    "levels": lambda rng, n: rng.choice([0.0, 1.0, 10.0], n),
    "line": lambda rng, n: np.arange(n) * 1.0,
    "largest floats": lambda rng, n: rng.choice([-1, 1], n) * np.finfo(float).max,
}


def make(
    seed: int, n: int, kinds: list[str], target: str, collinear: bool, repeated: bool
) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({f"{kind} {i}": INPUTS[kind](rng, n) for i, kind in enumerate(kinds)})
    y = np.asarray(INPUTS[target](rng, n))
    if collinear:
        X["twice"] = X.iloc[:, 0].astype(float) / 2
    if repeated:
        half = n // 2
        X.iloc[half : 2 * half] = X.iloc[:half].to_numpy()
    return X, y


kinds = st.sampled_from(sorted(INPUTS))
tables = st.builds(
    make,
    seed=st.integers(0, 10_000),
    n=st.sampled_from([8, 9, 10, 17, 40]),
    kinds=st.lists(kinds, min_size=1, max_size=4),
    target=kinds,
    collinear=st.booleans(),
    repeated=st.booleans(),
)


def reason_to_refuse(X: pd.DataFrame, y: np.ndarray) -> str:
    """What the error must say, or nothing for a table that must be fitted."""
    if len(np.unique(y)) == 1:
        return "expected a target 'y' that varies"
    return "" if (X.nunique() > 1).any() else "expected at least one input column that varies"


def check_regressor(X: pd.DataFrame, y: np.ndarray, deadline: float | None = None) -> None:
    """Whatever comes: predictions that are finite, unless the target or all inputs are constant; and an explanation."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning, module=r"kitt\..*")
        regressor = KITTRegressor(**FAST)
        if reason := reason_to_refuse(X, y):
            with pytest.raises(InvalidInputError, match=reason):
                regressor.fit(X, y)
            return
        regressor.fit(X, y)
        assert explain(regressor.model_, deadline=deadline).text
        mean, std = regressor.predict(X[::-1], return_std=True)
        for values in (mean, std, regressor.predict(X, quantiles=(0.05, 0.95))[1]):
            assert np.isfinite(values).all()


@FUZZ
@given(tables)
@example(make(0, 9, ["normal"], "normal", False, False))
@example(make(1, 30, ["normal"], "levels", False, True))
@example(make(2, 20, ["huge", "tiny", "offset"], "huge", True, False))
@example(make(3, 20, ["huge", "tiny", "offset"], "tiny", True, True))
@example(make(4, 20, ["largest floats", "subnormal"], "largest floats", False, False))
@example(make(5, 20, ["subnormal"], "subnormal", False, False))
@example(make(6, 20, ["booleans", "integers", "large integers"], "booleans", False, False))
@example(make(7, 20, ["constant"], "normal", False, False))
@example(make(8, 20, ["normal"], "constant", False, False))
@example(make(9, 20, ["nearly constant", "one outlier"], "one outlier", True, True))
@example(make(10, 12, ["normal"] * 200, "normal", True, False))
@example(make(11, 40, ["heavy tails"], "heavy tails", True, True))
@example(make(12, 20, ["line"], "offset", False, False))
def test_the_regressor_survives_odd_tables(table: tuple[pd.DataFrame, np.ndarray]) -> None:
    check_regressor(*table)


def test_every_kind_of_target_alone() -> None:
    for i, kind in enumerate(sorted(INPUTS)):
        check_regressor(*make(i, 12, ["normal", "line"], kind, False, False), deadline=1e-3)


@pytest.mark.parametrize("far", [1e6, 1e25, 1e100, 1e308])
def test_new_rows_far_away(far: float) -> None:
    X, y = make(0, 20, ["normal", "line"], "normal", False, False)
    regressor = KITTRegressor(**FAST).fit(X, y)
    try:
        mean, std = regressor.predict(X * 0 + [far, -far], return_std=True)
    except KittError as error:
        message = str(error)
    else:
        message = "nothing can be said" if np.isfinite(mean).all() and np.isfinite(std).all() else "not finite"
    assert "nothing can be said" in message


cells = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.integers().map(str),
    st.sampled_from(["", "?", "NA", "true", "no", "2020-01-01", "1,5", '"', "ä", "a b", "-", "1e400", "0x10", "\t"]),
    st.text(max_size=5),
)
texts = st.one_of(
    st.lists(st.lists(cells, min_size=2, max_size=3).map(",".join), min_size=1, max_size=12).map("\n".join),
    st.binary(max_size=60),
    st.builds(lambda table: table[0].assign(y=table[1]).to_csv(index=False), tables),
)


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["kitt", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out = capsys.readouterr()
    return int(end.value.code or 0), out.out, out.err


@FUZZ
@given(content=texts)
@example(content="")
@example(content="a,b\n" + "1,2\n" * 9)
@example(content="a,y\n" + "".join(f"{i},{i % 3}\n" for i in range(12)))
def test_suggest_survives_odd_files(content, tmp_path_factory, monkeypatch, capsys) -> None:
    path = tmp_path_factory.mktemp("odd") / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    code, out, _ = run(monkeypatch, capsys, "suggest", str(path), "--json")
    record = json.loads(out)
    if code == 0:
        assert len(record["captions"]) == 3
        assert all(0 <= caption["probability"] <= 1 for caption in record["captions"])
    else:
        assert code == 2
        assert record["error"].startswith("expected ")  # what was expected, what came, and what to do
        assert "; got " in record["error"]


@settings(FUZZ, max_examples=4)
@given(table=tables)
@example(table=make(2, 20, ["huge", "tiny", "offset"], "huge", True, False))
@example(table=make(6, 20, ["booleans", "integers", "levels"], "levels", False, True))
def test_fit_and_predict_survive_odd_files(table, tmp_path_factory, monkeypatch, capsys) -> None:
    folder = tmp_path_factory.mktemp("odd")
    table[0].assign(y=table[1]).to_csv(folder / "t.csv", index=False)
    paths = str(folder / "t.csv"), str(folder / "m.json")
    code, _, err = run(
        monkeypatch,
        capsys,
        "fit",
        paths[0],
        "-t",
        "y",
        "-o",
        paths[1],
        "-k",
        "1",
        "--effort",
        "quick",
    )
    assert code == (2 if reason_to_refuse(*table) else 0)
    if code:
        assert f"error: {reason_to_refuse(*table)}" in err
        return
    code, out, _ = run(monkeypatch, capsys, "predict", paths[1], paths[0])
    assert code == 0
    numbers = np.array([line.split(",") for line in out.splitlines()[1:]], dtype=float)
    assert numbers.shape == (len(table[0]), 4)
    assert np.isfinite(numbers).all()
