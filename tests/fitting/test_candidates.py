"""What to fit: a pure function of captions, scores and effort; and what the fits make of it, with an invented network."""

import math
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import kitt
from kitt import pipeline
from kitt.clock import Clock
from kitt.errors import FitError, InvalidInputError, KittError
from kitt.fitting.candidates import (
    EFFORTS,
    MOST_WORDS,
    NO_SIGNAL,
    PLAIN,
    Candidate,
    candidates,
    longer,
    with_changing_noise,
)
from kitt.fitting.config import FitConfig
from kitt.fitting.fit import Fitter
from kitt.fitting.fits import (
    Fits,
    Fitters,
    Verified,
    choose,
    fit_each,
    residual,
    verify,
    verify_longer,
    with_left_out_folds,
)
from kitt.fitting.objective import Objective
from kitt.fitting.options import Options
from kitt.kernels.grammar import WORDS, Expression, parse
from kitt.network.caption import Caption
from kitt.table.dataset import Dataset
from kitt.table.table import Table

QUICK = {"starts": 1, "max_iterations": 15}
NORMAL = EFFORTS["normal"]
expressions = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True).map(lambda w: Expression(tuple(w)))
captions = st.lists(expressions, min_size=1, max_size=5, unique_by=lambda e: frozenset(e))
efforts = st.sampled_from(sorted(EFFORTS))


def named(chosen: tuple[Candidate, ...]) -> list[str]:
    return [str(c) for c in chosen if not c.is_plain]


# The function


@given(captions, st.lists(st.floats(-1e3, 1e3), max_size=5), efforts)
def test_whatever_was_said(said: list[Expression], values: list[float], effort: str) -> None:
    """No duplicates, always a model without signal, always a plain kernel, and the same list for the same question."""
    scores = dict(zip(said, values, strict=False))
    chosen = candidates(said, scores, EFFORTS[effort])
    assert len(set(chosen)) == len(chosen)
    assert [c for c in chosen if c.expression == NO_SIGNAL] == [Candidate(NO_SIGNAL)]
    assert [c.expression for c in chosen if c.is_plain] == list(PLAIN[: EFFORTS[effort].plain])
    assert not any(c.is_plain and c.warped for c in chosen)
    assert {c.expression for c in chosen if c.warped} <= {c.expression for c in chosen if not c.warped}
    assert candidates(said, scores, EFFORTS[effort]) == chosen


@given(captions, efforts)
def test_the_verified_best_goes_on(said: list[Expression], effort: str) -> None:
    best = said[-1]
    chosen = candidates(said, {e: float(e == best) for e in said}, EFFORTS[effort])
    assert not best.signal or chosen[0] == Candidate(best)


@given(captions, st.floats(-1e3, 1e3))
def test_what_was_not_compared_comes_behind(said: list[Expression], value: float) -> None:
    effort = replace(NORMAL, kept=len(said), changing_noise=False)
    order = [c.expression for c in candidates(said, {said[-1]: value}, effort) if not c.is_plain and not c.warped]
    expected = [e for e in (said[-1], *said[:-1]) if e.signal]
    assert order == [*expected, NO_SIGNAL]


def test_without_scores_the_network_is_believed() -> None:
    said = [parse("Matern12"), parse("RBF + Linear")]
    assert named(candidates(said, {}, EFFORTS["quick"])) == ["Matern12", "Matern12 of the transformed target", "White"]


def test_noise_that_changes_is_added_once() -> None:
    assert str(with_changing_noise(parse("Linear"))) == "Linear + Linear*White"
    assert with_changing_noise(parse("RBF + Linear*White")) == parse("RBF + Linear*White")
    chosen = named(candidates([parse("RBF + Linear*White")], {}, NORMAL))
    assert chosen == ["RBF + Linear*White", "RBF + Linear*White of the transformed target", "White"]


def test_noise_alone_leaves_the_plain_kernels() -> None:
    chosen = candidates([NO_SIGNAL, parse("RBF")], {NO_SIGNAL: 1.0, parse("RBF"): 0.0}, NORMAL)
    assert [(str(c), c.is_plain) for c in chosen] == [("RBF", True), ("Matern52", True), ("White", False)]


def test_noise_that_was_not_compared_does_not_replace_a_caption() -> None:
    chosen = named(candidates([NO_SIGNAL, parse("Matern12")], {}, EFFORTS["quick"]))
    assert chosen == ["Matern12", "Matern12 of the transformed target", "White"]


def test_a_plain_kernel_that_is_also_a_caption_is_fitted_with_both_priors() -> None:
    chosen = candidates([parse("RBF")], {}, EFFORTS["quick"])
    assert [c.prior for c in chosen if str(c) == "RBF"] == ["default", "botorch"]


@given(captions)
def test_the_more_effort_the_more_is_fitted(said: list[Expression]) -> None:
    """And nothing that less effort fits is left out."""
    lists = [set(candidates(said, {}, EFFORTS[name])) for name in ("quick", "normal", "thorough")]
    assert all(less <= more for less, more in pairwise(lists))
    assert len({(e.verified, e.growth, str(e.search)) for e in EFFORTS.values()}) == 3


@given(expressions, captions)
def test_longer_adds_one_new_word_to_the_signal(best: Expression, said: list[Expression]) -> None:
    proposals = longer(best, said)
    assert len(proposals) <= MOST_WORDS
    assert len({frozenset(e) for e in proposals}) == len(proposals)
    for e in proposals:
        (word,) = set(e) - set(best)
        assert not word.is_noise
        assert len(e) == len(best) + 1
        assert e.words[: len(best.signal)] == tuple(best.signal)  # which the search starts from
        assert any(word in other for other in said)


def test_longer_takes_words_in_the_order_of_the_network() -> None:
    said = [parse("Periodic + White"), parse("Linear + RBF"), parse("Periodic + Cosine")]
    candidates = longer(parse("RBF + Linear*White"), said)
    assert list(map(str, candidates)) == [f"RBF + {word} + Linear*White" for word in ("Periodic", "Linear", "Cosine")]
    assert longer(parse("RBF"), [parse("RBF"), NO_SIGNAL]) == []


# The fits

UNLIMITED = Clock.unlimited()


def table(n: int = 60, seed: int = 0, noise: float = 0.1) -> Table:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return Table.of(Dataset.from_arrays(X, X[:, 1] + np.sin(3 * X[:, 0]) + noise * rng.normal(size=n)))


def fits(data: Table, said: list[str], answer: str = "White", progress=lambda *_: None, **options) -> Fits:
    """What is fitted with a network that says `answer` to every further question."""
    return verified_and_fitted(data, said, answer, progress, **options)[1]


def verified_and_fitted(
    data: Table,
    said: list[str],
    answer: str = "White",
    progress=lambda *_: None,
    clock: Clock = UNLIMITED,
    **options,
) -> tuple[Verified, Fits]:
    captions = [Caption(parse(text), 0.1) for text in said]
    fitters = Fitters(data, Options(**{"fit_options": QUICK, **options}), clock)
    verified = verify(fitters, captions, progress)
    while residual(fitters, verified) is not None:
        verified = verify_longer(fitters, verified, [parse(answer)])
    fitted = fit_each(fitters, choose(fitters, captions, verified), progress)
    return verified, replace(fitted, gps=with_left_out_folds(fitters, fitted.gps, range(len(fitted.gps))))


def expressions_of(found: Fits) -> list[str]:
    return [" + ".join(sorted(map(str, gp.expression))) for gp in found.gps]


def test_a_later_caption_is_fitted_if_some_rows_speak_for_it() -> None:
    verified, candidates = verified_and_fitted(table(), ["Linear", "Matern12", "Linear + RBF"])
    assert verified.best == parse("Linear + RBF")
    assert expressions_of(candidates)[0] == "Linear + RBF"
    assert (
        expressions_of(candidates).count("Linear + Linear*White + RBF") == 1
    )  # changing noise is for the best one only


def test_all_that_was_compared_on_all_rows_is_a_candidate_and_of_a_larger_table_the_best() -> None:
    captions = ["Linear", "Matern12", "Linear + RBF"]
    assert set(captions) <= set(expressions_of(fits(table(80), captions)))
    assert not {"Linear", "Matern12"} & set(expressions_of(fits(table(320), captions)))


def test_quick_compares_nothing() -> None:
    verified, candidates = verified_and_fitted(table(), ["Linear", "RBF"], effort="quick")
    assert verified.scores == {}
    assert expressions_of(candidates) == ["Linear", "RBF", "White"]
    assert tuple(gp.fitted.is_plain for gp in candidates.gps) == (False, True, False)


def test_a_kernel_grows_by_the_word_that_the_rest_of_the_target_shows() -> None:
    assert "Linear + RBF" in expressions_of(fits(table(320), ["Linear"], answer="RBF"))
    assert "Linear + RBF" not in expressions_of(fits(table(320), ["Linear"], answer="RBF", growth=0))


def test_a_kernel_does_not_grow_where_that_gains_nothing_or_rows_are_few() -> None:
    assert not any("Matern12" in text for text in expressions_of(fits(table(320), ["RBF"], answer="Matern12")))
    assert "Linear + RBF" not in expressions_of(fits(table(100, noise=1.0), ["Linear"], answer="RBF"))
    assert "Linear + RBF" in expressions_of(fits(table(40), ["Linear"], answer="RBF", effort="thorough"))


def test_words_of_two_captions_make_a_sum() -> None:
    """The target is linear but for a wave of a tenth of its size. With few rows there are no sums."""

    def rows(count: int, noise: float) -> Table:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(count, 2))
        y = 3 * X[:, 0] + 0.3 * np.sin(2 * X[:, 1]) + noise * rng.normal(size=count)
        return Table.of(Dataset.from_arrays(X, y))

    assert "Linear + RBF" in expressions_of(fits(rows(320, 0.1), ["Linear", "RBF"]))
    assert "Linear + RBF" not in expressions_of(fits(rows(120, 0.1), ["Linear", "RBF"]))


def test_a_skewed_target_is_also_fitted_transformed() -> None:
    data = table()
    skewed = Table.of(Dataset.from_arrays(data.X.numpy(), np.exp(data.y.numpy())))
    candidates = fits(skewed, ["RBF"], effort="quick")
    assert [model.warp.kind for model in candidates.gps] == ["identity", "log", "identity", "identity"]
    assert all(model.warp.is_identity for model in fits(skewed, ["RBF"], effort="quick", warp=False).gps)
    assert all(model.warp.is_identity for model in fits(data, ["RBF"], effort="quick").gps)


def test_what_comes_after_the_deadline_is_reported() -> None:
    """The best caption and a plain kernel are fitted all the same."""
    _, candidates = verified_and_fitted(table(), ["Linear"], clock=Clock(0.0))
    assert [(str(gp.expression), gp.fitted.is_plain) for gp in candidates.gps] == [("Linear", False), ("RBF", True)]
    left_out = [str(failure.expression) for failure in candidates.failures]
    assert left_out == ["Linear + Linear*White", "Matern52", "White"]
    assert all("deadline" in str(failure) for failure in candidates.failures)


def test_a_failure_while_comparing_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The captions cannot be fitted; the plain kernels can."""
    begin = Objective.__init__

    def fails(self: Objective, expression: Expression, *rest) -> None:
        if any(str(word) == "Periodic" for word in expression):
            raise FitError("it is a test")
        begin(self, expression, *rest)

    monkeypatch.setattr(Objective, "__init__", fails)
    verified, candidates = verified_and_fitted(table(320), ["Periodic"])
    assert set(verified.scores.values()) == {-np.inf}
    assert expressions_of(candidates) == ["RBF", "Matern52", "White"]
    assert {str(failure.expression) for failure in candidates.failures} >= {"Periodic"}


def test_progress_never_goes_back() -> None:
    shares: list[float] = []
    fits(table(), ["Linear", "RBF"], progress=lambda what, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_network_that_names_nothing_new_ends_the_growth() -> None:
    fitters = Fitters(table(320), Options(fit_options=QUICK, growth=3), Clock.unlimited())
    verified = verify(fitters, [Caption(parse("RBF"), 0.5)], lambda *_: None)
    rest = residual(fitters, verified)
    assert rest is not None
    assert float(rest.y.var()) < 1  # it is asked about what the kernel leaves, not about the target
    assert residual(fitters, verify_longer(fitters, verified, [])) is None


def test_nothing_can_be_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Fitter, expression, start=None) -> None:
        raise FitError("it is a test")

    monkeypatch.setattr(Fitter, "fit", fails)
    with pytest.raises(KittError, match="no kernel could be fitted"):
        fits(table(20), ["RBF"])


def test_a_sum_in_another_order_is_not_tried_again() -> None:
    texts = expressions_of(fits(table(320), ["RBF", "Linear + RBF"], answer="Linear", effort="thorough"))
    assert len(texts) == len({*texts}) + sum(texts.count(text) - 1 for text in ("RBF", "Linear + RBF") if text in texts)
    assert texts.count("Linear + RBF") <= 2  # of the target as it is, and transformed


def test_left_out_folds_are_for_all_models_or_for_none() -> None:
    """So many columns need folds; when time is up, all weights come from leave-one-out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 8))
    data = Table.of(Dataset.from_arrays(X, X[:, 0] + 0.1 * rng.normal(size=30)))
    assert all(gp.training.left_out is not None for gp in fits(data, ["Linear"]).gps)
    late = Fitters(data, Options(fit_options=QUICK, effort="quick"), Clock(0.0))
    gps = fit_each(late, choose(late, [Caption(parse("Linear"), 0.1)], Verified()), lambda *_: None).gps
    assert all(gp.training.left_out is None for gp in with_left_out_folds(late, gps, range(len(gps))))


def test_few_rows_without_noise_are_weighted_by_folds() -> None:
    """Of the kernels, only those to which leave-one-out gave a weight are fitted again; with noise, none is."""
    X = np.random.default_rng(0).uniform(-2, 2, (40, 2))
    clear = pipeline.suggest_dataset(Dataset.from_arrays(X, np.sin(2 * X[:, 0]) + X[:, 1]), Options(fit_options=QUICK))
    assert clear.fitted is not None
    folded = [gp.training.left_out is not None for gp in clear.fitted.mixture.models]
    assert any(folded)
    assert not all(folded)
    assert all(folded[part.model] for part in clear.fitted.mixture.components)
    y = X[:, 0] + np.random.default_rng(1).normal(size=40)
    noisy = pipeline.suggest_dataset(Dataset.from_arrays(X, y), Options(fit_options=QUICK))
    assert noisy.fitted is not None
    assert all(gp.training.left_out is None for gp in noisy.fitted.mixture.models)


@pytest.mark.parametrize("growth", [-1, 1.5, "two"])
def test_growth_is_a_number_of_words(growth: object) -> None:
    with pytest.raises(InvalidInputError, match="whole number of at least 0, got"):
        Options.of(growth=growth)


def test_a_deadline_makes_the_rows_fewer_and_more_so_on_a_slow_machine() -> None:
    def rows(left: float, spent: float = 2.0, count: int = 3000) -> int:
        data = table(count)
        fitters = Fitters(data, Options(), Clock(math.inf, time.monotonic() - spent))
        fitters = fitters.in_time(kernels=6, compared=4, clock=Clock(left))
        places = torch.arange(count) if fitters.places is None else fitters.places
        assert fitters.table.y.equal(data.y[places])
        assert fitters.named.table.y.equal(data.y[places])
        return len(places)

    assert rows(math.inf) == rows(6000.0) == 3000
    assert 300 <= rows(1.0) < rows(5.0) < rows(30.0) < 3000
    assert rows(30.0, spent=20.0) < rows(30.0)
    assert rows(1.0, count=200) == 200
    assert rows(math.inf, count=3500) == FitConfig.subset_rows
    assert rows(5.0, count=3500) < FitConfig.subset_rows


def test_columns_have_the_names_of_the_table() -> None:
    rng = np.random.default_rng(0)
    data = Dataset.from_arrays(rng.normal(size=(30, 2)), rng.normal(size=30), ["age", "bmi"])
    assert str(kitt.fit("Linear(bmi)*RBF(age)", data, random_state=0).expression) == "Linear(x2)*RBF(x1)"
