"""What to fit beside the captions: a function of what is known, tried here without fitting anything, and once with."""

from dataclasses import replace

import numpy as np
import pytest

from kitt.fitting.fit import Fitter
from kitt.language.grammar import parse
from kitt.model.candidates import ADDED_WORDS, FAMILIES, SERIES, STEPS, Known
from kitt.model.fits import fit_candidates
from kitt.model.options import Options

combination, other_family, series, longer, changing_noise = STEPS
CAPTIONS = (parse("RBF + Linear"), parse("Matern12"))


def known(columns: int = 2, **evidence: float) -> Known:
    """After the captions were fitted; words with + between are written with _."""
    start = Known(CAPTIONS, columns)
    for name, value in evidence.items():
        start = start.after(parse(name.replace("_", " + ")), value)
    return start


def scored(state: Known, step, favourite: str, rest: float = -10.0) -> Known:
    """What the step wants compared, with one expression ahead of all others."""
    scores = {e: 0.0 if e.same_sum(parse(favourite)) else rest for e in step.compare(state)}
    return replace(state, scores=scores)


def test_the_first_two_captions_become_one_sum() -> None:
    assert list(map(str, combination.wanted(known(RBF_Linear=1.0, Matern12=0.0)))) == ["RBF + Linear + Matern12"]


def test_a_sum_that_was_tried_is_not_tried_again() -> None:
    state = known(RBF_Linear=1.0, Matern12=0.0).after(parse("Linear + Matern12 + RBF"), None)
    assert combination.wanted(state) == []


def test_another_family_must_be_ahead_of_every_kernel_that_was_fitted() -> None:
    state = known(RBF_Linear=1.0, RBF=0.0)
    assert set(other_family.compare(state)) == {*FAMILIES, parse("RBF + Linear"), parse("RBF")}
    assert other_family.wanted(scored(state, other_family, "RBF*Cosine")) == [parse("RBF*Cosine")]
    assert other_family.wanted(scored(state, other_family, "RBF + Linear")) == []


def test_trend_season_and_rest_are_for_a_single_column() -> None:
    assert series.wanted(known(columns=1, RBF=0.0)) == list(SERIES)
    assert series.wanted(known(columns=2, RBF=0.0)) == []


def test_the_best_kernel_is_extended_by_the_word_for_which_some_rows_speak() -> None:
    state = known(Matern12=5.0, RBF_Linear=7.0)
    tried = longer.compare(state)
    assert {e.words[-1] for e in tried} == set(ADDED_WORDS) - set(parse("RBF").words)
    (chosen,) = longer.wanted(scored(state, longer, "RBF + Linear + RBF*Cosine"))
    assert str(chosen) == "RBF + Linear + RBF*Cosine"


def test_noise_that_changes_is_added_to_the_best_kernel_once() -> None:
    assert list(map(str, changing_noise.wanted(known(RBF=1.0, Linear=2.0)))) == ["Linear + Linear*White"]
    noisy = Known((parse("Linear*White"),), 2).after(parse("Linear*White"), 1.0)
    assert changing_noise.wanted(noisy) == []


@pytest.mark.parametrize("step", STEPS[1:])
def test_nothing_grows_where_nothing_could_be_fitted(step) -> None:
    state = Known(CAPTIONS, 1).after(CAPTIONS[0], None).after(CAPTIONS[1], None)
    assert list(step.compare(state)) == []
    assert step.wanted(state) == []


def test_a_family_that_the_network_missed_is_found() -> None:
    """Waves in a tilted direction, which no word without Cosine can tell; the network is made to say Matern52 and Linear."""
    X = np.random.default_rng(0).uniform(-2, 2, (120, 3))
    table = Fitter((X, np.cos(X @ [3.0, 2.0, -2.0]))).table
    options = Options(plain=False, fit_options={"draws": 8, "starts": 1, "max_iterations": 10})
    fits = fit_candidates(table, [parse("Matern52"), parse("Linear")], options, lambda what, share: None)
    assert "RBF*Cosine" in [str(model.expression) for model in fits.models]
