"""The tables of `kitt bench claims` are what they are called, and claims about them are counted as they should be."""

import numpy as np
import pytest

from kitt.explanation.repetitions import is_resolved
from kitt_lab.bench import claims


@pytest.mark.parametrize("table", range(12))
def test_periods_are_resolved_and_real(table: int) -> None:
    X, y, period = claims._periodic(np.random.default_rng(table), table)
    assert is_resolved(X[:, 0], period)
    assert 50 <= len(y) <= 500
    assert np.isfinite(y).all()


@pytest.mark.parametrize("table", range(10))
def test_noise_has_nothing_to_do_with_the_columns(table: int) -> None:
    X, y, period = claims._noise(np.random.default_rng(table), table)
    assert period is None
    assert np.abs(np.corrcoef(X.T, y)[-1, :-1]).max() < 4.5 / np.sqrt(len(y))
    assert len(np.unique(y)) == 2 or claims.TARGETS[table % 5] != "binary"


def test_claims_are_counted() -> None:
    def line(kind: str, explained: float, periods: list[float], true: float | None) -> dict:
        result = {"explained": explained, "periods": periods, "true": true}
        return {"key": {"kind": kind}, "status": "ok", "result": result}

    lines = [
        line("noise", 0.0, [], None),
        line("noise", 0.4, [3.0], None),
        line("periodic", 0.9, [12.3], 12.0),
        line("periodic", 0.9, [12.0, 5.0], 12.0),
        line("periodic", 0.9, [], 12.0),
        {"key": {"kind": "smooth"}, "status": "failed"},
    ]
    noise, periodic = claims.summary(lines)
    assert (noise["count"], noise["explain more than 10%"], noise["state another period"]) == (2, 1, 1)
    assert (periodic["state the true period"], periodic["state another period"]) == (2, 1)


def test_a_table_is_explained() -> None:
    """One table of noise in fifty seems to have a signal; that is the check's own rate."""
    judged = [claims.claim("noise", table) for table in (8, 16, 49)]
    assert sum((each["explained"], each["periods"]) == (0.0, []) for each in judged) >= 2
    assert sum(each["answer"] != "shown" for each in judged) >= 2


def test_properties_are_judged_in_hindsight(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from kitt.network.properties import Property
    from kitt_lab.bench import calibration

    said = SimpleNamespace(
        properties=[Property("smooth", "", 0.9), Property("repeats", "", 0.9), Property("rough", "", 0.5)]
    )
    monkeypatch.setattr(calibration, "caption", lambda *_, **__: said)
    monkeypatch.setattr(calibration, "load", lambda model: model)
    rows = SimpleNamespace(X=None, y=None)
    monkeypatch.setattr(calibration, "split", lambda *_: (rows, rows))
    key = {"bench": "capture", "what": "words", "table": "t", "split": 0, "rows": 200}
    line = {"key": key, "status": "ok", "result": {"nlpd": {"RBF": 1.0, "RBF*Periodic": 1.005, "Matern12": 2.0}}}
    judged = {r["property"]: r for r in calibration.hindsight([line], [SimpleNamespace(name="t")])}
    assert (judged["smooth"]["tables"], judged["smooth"]["in the best word"]) == (1, 1)
    assert (judged["repeats"]["in the best word"], judged["repeats"]["in one within 0.01 nats"]) == (0, 1)
    assert judged["rough"]["tables"] == 0
    assert "noise changes" not in judged
