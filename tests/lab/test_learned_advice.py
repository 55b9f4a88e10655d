"""Advice learned from losses: stacking, examples, the regression, and measures of who advises best."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from typer.testing import CliRunner

from kitt.app.cli.main import app
from kitt.errors import InvalidInputError
from kitt.kernels.exact import normal_log_density
from kitt.kernels.grammar import WORDS
from kitt.network.checkpoint import load
from kitt_lab.advice import Ridge, cross_validate, learn_head, select
from kitt_lab.bench.advice import capture, capture_interval, compare, spearman, verify
from kitt_lab.bench.realism import auc
from kitt_lab.examples import DesignConfig, Examples, bic_of_words, expression_losses, read_examples, stacking_weights
from kitt_lab.losses import Record, files
from kitt_lab.tasks import Task

V = len(WORDS)


def some_examples(count: int = 120, signal: float = 1.0) -> Examples:
    """Tasks of thirty tables in which the first feature says whether the even or the odd words lose."""
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(count, 6 + V + 8, generator=rng)
    parity = torch.where(torch.arange(V) % 2 == 0, 1.0, -1.0)
    roots = (
        0.4 + 0.2 * signal * features[:, :1].tanh() * parity + 0.05 * torch.randn(count, V, generator=rng)
    ).clamp_min(0)
    words = roots.square()
    pair = torch.zeros(count, 1, V)
    pair[:, 0, [0, 1]] = 1
    loss = torch.cat([words, roots[:, :2].mean(1, keepdim=True).square()], 1)
    loss = loss - loss.amin(1, keepdim=True)
    multi_hot = torch.cat([torch.eye(V).expand(count, V, V), pair], 1)
    names = tuple(f"table{i % 30}" for i in range(count))
    return Examples(names, np.arange(count) % 3 == 0, features, multi_hot, loss, loss + 1.0, loss, loss[:, :V])


def a_record() -> Record:
    """Linear predicts well, RBF as well as the marginal distribution, with an outlier among the test rows."""
    rng = np.random.default_rng(0)
    y, test = rng.normal(size=60), rng.normal(size=40)
    test[0] = 9.0
    sums = ("Linear + RBF", "Linear + RBF + Linear*White", "Linear + Matern52")
    names = ("Linear", "Linear + Linear*White", "RBF", "Matern52", "White", *sums)
    quality = np.array([0.95, 0.9, 0.0, 0.1, 0.0, 0.95, 0.9, 0.95])[:, None]
    variance = np.broadcast_to(1 - quality**2 + 0.01, (8, 60))
    task = Task("t", 1, np.array([0]), np.arange(60), np.arange(60, 100))
    size = np.array([3.0, 5, 3, 3, 2, 6, 8, 6])
    evidence = np.array([-20.0, -18, -80, -78, -85, -19, -18, -19])
    return Record(0, task, names, quality * y, variance, quality * test, variance[:, :40], evidence, size, y, test)


# --- what an expression loses ---


def test_stacking_weights_maximise_the_likelihood() -> None:
    rng = np.random.default_rng(1)
    L = rng.normal(size=(1, 80, 3))
    config = DesignConfig(tail_weight=1e-9, min_relative_weight=0.0, iterations=5000)

    def cost(a: np.ndarray) -> float:
        w = np.exp(np.append(a, 0.0))
        return -np.log(np.exp(L[0]) @ (w / w.sum())).sum()

    best = minimize(cost, np.zeros(2)).fun
    w = stacking_weights(L, config)[0]
    assert np.isclose(w.sum(), 1)
    assert -np.log(np.exp(L[0]) @ w).sum() < best + 1e-3


def test_a_design_has_a_tail_and_no_missing_component() -> None:
    L = np.zeros((1, 50, 4))
    L[0, :, 1] = -np.inf
    L[0, :, 3] = -20.0
    w = stacking_weights(L, DesignConfig())[0]
    assert w[1] == 0
    assert np.isclose(w[3], 0.003)


def test_losses_of_expressions() -> None:
    expressions, nlpd, alone = expression_losses(a_record())
    by_name = dict(zip([tuple(e) for e in expressions], nlpd, strict=True))
    index = {str(word): word.index for word in WORDS}
    assert len(expressions) == V + 1  # a sum that was not fitted with changing noise is left out
    assert by_name[index["Linear"],] < by_name[index["White"],] - 0.3
    assert by_name[index["White"],] < 5  # the outlier costs what the tail makes of it, not forty nats
    assert np.isnan(by_name[index["Cosine"],])
    assert np.isfinite(by_name[index["Linear"], index["RBF"]])
    by_itself = dict(zip([tuple(e) for e in expressions], alone, strict=True))
    assert by_itself[index["White"],] == pytest.approx(-np.mean(normal_log_density(a_record().test_targets, 0.0, 1.01)))
    assert np.isnan(by_itself[index["Cosine"],])


def test_bic_is_that_with_changing_noise() -> None:
    bic, index = bic_of_words(a_record()), {str(word): word.index for word in WORDS}
    assert bic[index["Linear"]] == pytest.approx(36 + 5 * np.log(60))
    assert bic[index["White"]] == pytest.approx(170 + 2 * np.log(60))
    assert np.isinf(bic[index["RBF"]])


def test_verification_takes_the_best_bic() -> None:
    examples = some_examples(2)
    chosen = np.array([[[0, 1, 2], [5, 4, 3]]])
    for said, words, bic in zip(verify(chosen, examples)[0], chosen[0], examples.bic.numpy(), strict=True):
        assert said == words[bic[words].argmin()]


# --- learning ---


def test_what_can_be_learned_is_learned_and_left_out_tables_are_left_out() -> None:
    examples = some_examples()
    advice = cross_validate(examples)
    assert spearman(advice.expected, examples, np.ones(len(examples), dtype=bool)) > 0.5
    first = capture(advice.chosen.numpy()[None, :, :1], examples, np.ones(len(examples), dtype=bool))[0]
    fixed = capture(np.zeros((1, len(examples), 1), dtype=int), examples, np.ones(len(examples), dtype=bool))[0]
    assert first > fixed + 0.2
    own = np.array([name == "table7" for name in examples.tables])
    loss = torch.where(torch.from_numpy(own)[:, None], examples.loss.flip(1), examples.loss)
    other = cross_validate(replace(examples, loss=loss)).expected
    assert other[own].equal(advice.expected[own])  # what is said of a table does not depend on its own losses
    assert not other[~own].equal(advice.expected[~own])


def test_an_interval_of_capture_is_over_tables() -> None:
    examples, everything = some_examples(), np.ones(len(some_examples()), dtype=bool)
    chosen = cross_validate(examples).chosen.numpy()[None, :, :1]
    low, high = capture_interval(chosen, examples, everything)
    assert low < capture(chosen, examples, everything)[0] < high
    assert np.isnan(capture_interval(chosen, examples, ~everything)).all()


def test_tasks_of_one_table_teach_nothing() -> None:
    """Without another table there are no left-out residuals, which are the uncertainty."""
    examples = replace(some_examples(20), tables=("a",) * 20)
    with pytest.raises(InvalidInputError, match="at least two different tables, got 1"):
        learn_head(examples)
    two = learn_head(replace(examples, tables=("a", "b") * 10))
    assert two(examples.features, torch.eye(V)).mean() < 2 * examples.loss[:, :V].mean()


def test_noise_teaches_the_mean() -> None:
    examples = some_examples(signal=0.0)
    expected = learn_head(examples)(examples.features, torch.eye(V))
    assert expected.std(0).max() < 0.05


def test_learning_is_deterministic_and_leaves_the_global_generator_alone() -> None:
    examples = some_examples(60)
    state = torch.get_rng_state()
    one, two = learn_head(examples), learn_head(examples)
    assert torch.equal(torch.get_rng_state(), state)
    for key, value in one.state_dict().items():
        torch.testing.assert_close(value, two.state_dict()[key])  # sums may be rounded otherwise the second time


def test_a_sum_is_placed_between_its_words() -> None:
    head = learn_head(some_examples())
    assert abs(float(head.pull)) < 0.3  # the sums of these examples lose what their words lose on average
    assert abs(float(head.price)) < 0.1


def test_capture_counts_hindsight_and_what_is_lost_elsewhere() -> None:
    reference = next(word.index for word in WORDS if str(word) == "Matern32")
    examples = select(some_examples(4), np.array([True, True, False, False]))
    nlpd = torch.full((2, V + 1), 1.0)
    nlpd[0, 5], nlpd[0, 6] = 0.8, 1.3
    nlpd[1, 7] = 1.1
    examples = Examples(**{**vars(examples), "nlpd": nlpd})
    mask = np.ones(2, dtype=bool)
    assert capture(np.array([[[5], [7]]]), examples, mask) == pytest.approx((1.0, 0.1))
    assert capture(np.array([[[reference], [0]]]), examples, mask) == pytest.approx((0.0, 0.0))
    assert capture(np.array([[[6, 5], [0, 0]]]), examples, mask)[0] == pytest.approx(1.0)


# --- with the shipped network, on a small corpus ---


@pytest.mark.xdist_group("losses")
def test_from_a_corpus_to_a_checkpoint_with_a_head(tables: Path, corpus: Path, tmp_path: Path) -> None:
    loaded = load("default")
    examples = read_examples(corpus, tables, loaded)
    assert len(examples) == len(files(corpus))
    assert (examples.loss[:, :V] >= 0).all()
    again = read_examples(corpus, tables, loaded, lambda done, total: pytest.fail("all of it is known"))
    assert torch.equal(again.features, examples.features)
    assert next(row["advisor"] for row in compare(examples)) == "learned head"
    out = tmp_path / "advised.safetensors"
    next(corpus.glob(".examples-*.npz")).unlink()
    finish = ["finish", "default", "--out", str(out), "--losses", str(corpus), "--property-batches", "0"]
    told = ""
    for arguments in (["bench", "advice", str(corpus)], finish):
        result = CliRunner().invoke(app, [*arguments, "--data", str(tables)])
        assert result.exit_code == 0, result.output
        told += result.output
    assert f"{len(examples)}/{len(examples)}" in told, "a bar shows how many tasks were read"
    assert load(out).advice is not None
    assert load(out).facts.extra == load("default").facts.extra


def test_auc_of_what_can_and_what_cannot_be_told_apart() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(60, 5)), rng.normal(size=(60, 5))
    assert 0.3 < auc(a, b, "logistic regression") < 0.7
    assert auc(a, b + 3, "boosted trees") > 0.9


def test_a_task_of_twice_the_rows_counts_twice() -> None:
    generator = torch.Generator().manual_seed(0)
    A, Y = (torch.randn(30, size, generator=generator, dtype=torch.float64) for size in (4, 3))
    counts = torch.randint(1, 4, (30,), generator=generator)
    repeated = [x.repeat_interleave(counts, 0) for x in (A, Y)]
    often = Ridge.fit(*repeated, torch.ones(int(counts.sum()), dtype=torch.float64), (float(counts.double().mean()),))
    heavy = Ridge.fit(A, Y, 50.0 * counts.double(), (1.0,))
    torch.testing.assert_close(heavy(A), often(A))
    torch.testing.assert_close(heavy.mean, often.mean)
