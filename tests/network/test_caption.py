"""Captioning with a small untrained network: what must hold whatever the weights are."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kitt.errors import CheckpointError, InvalidInputError
from kitt.network.advice import AdviceConfig, AdviceHead, to_tensors
from kitt.network.caption import HEADS, caption
from kitt.network.checkpoint import Checkpoint, LoadedModel
from kitt.network.network import PaperConfig, StemConfig, build
from kitt.network.ranking import RANKINGS, rank, ranked
from kitt.network.search import SEARCHES, merge_orders
from kitt.network.subsets import MIN_ROWS, READINGS, subsets
from kitt_lab.simulate import DEFAULT_DATA, simulate

SMALL = {"decoder_width": 16, "decoder_heads": 2, "decoder_blocks": 2, "width": 16, "heads": 2, "blocks": 1}


def loaded(config, **extra) -> LoadedModel:
    torch.manual_seed(0)
    model = build(config).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False).mul_(3.0)  # opinionated: far from uniform
    generator = torch.Generator().manual_seed(1)
    head = AdviceHead(AdviceConfig(2 * config.width + 34 + 8, 34, 16, 20)).requires_grad_(False)
    head.out.weight.copy_(torch.randn(head.out.weight.shape, generator=generator))
    head.residuals.copy_(0.1 * torch.randn(20, 34, generator=generator))
    return LoadedModel(model, Checkpoint(name="test", config=config, extra=extra), to_tensors(head))


STEM = loaded(StemConfig(**SMALL, probe_blocks=1), strangeness_limit=2.0, temperature=1.5)
PAPER = loaded(PaperConfig(**SMALL))


def table(n=40, d=3, seed=0):
    batch = simulate(DEFAULT_DATA, 1, n, d, torch.Generator().manual_seed(seed))
    return batch.X[0].double().numpy() * 7 + 3, batch.y[0].double().numpy() * 100 - 5


@pytest.mark.parametrize("model", [STEM, PAPER], ids=["stem", "paper"])
@pytest.mark.parametrize("search", SEARCHES)
def test_captions_are_distinct_sums_of_at_most_three_distinct_words(model, search):
    said = caption(*table(), k=8, network=model, search=search, ranking="probability")
    sums = [frozenset(c.expression.words) for c in said.ranked]
    assert len(set(sums)) == len(sums)
    assert all(1 <= len(s) <= 3 for s in sums)
    probabilities = [c.probability for c in said.ranked]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 < sum(probabilities) <= 1 + 1e-9
    assert math.isclose(sum(said.words), 1, abs_tol=1e-6)


def test_beam_finds_captions_at_least_as_probable_as_sampling():
    best = {
        search: caption(*table(), k=1, network=STEM, search=search, ranking="probability").ranked[0].probability
        for search in SEARCHES
    }
    assert best["beam"] >= best["sample"] - 1e-6  # decoders compute in single precision, in batches of different sizes
    assert best["beam"] >= best["greedy"] - 1e-6


@pytest.mark.parametrize("model", [STEM, PAPER], ids=["stem", "paper"])
@pytest.mark.parametrize("n", [40, 900])
def test_order_of_rows_and_columns_does_not_matter(model, n):
    X, y = table(n)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(n), rng.permutation(3)
    a = caption(X, y, network=model)
    b = caption(X[rows][:, columns], y[rows], network=model)
    assert [str(c.expression) for c in a.ranked] == [str(c.expression) for c in b.ranked]
    assert np.allclose(a.words, b.words, atol=1e-4)


def test_units_do_not_matter():
    X, y = table()
    assert np.allclose(
        caption(X, y, network=STEM).words, caption(X * 1e6 - 4, y * 1e-6 + 8, network=STEM).words, atol=1e-4
    )


def test_deterministic_for_a_seed():
    X, y = table(600, 4, 2)
    first, second, other = (caption(X, y, network=STEM, search="sample", random_state=seed) for seed in (3, 3, 4))
    assert first == second
    assert first != other


@pytest.mark.parametrize("reading", ["quick", "careful"])
def test_large_tables_cost_what_small_ones_do(reading):
    config = READINGS[reading]
    for d in (1, 8, 20, 200):
        rows = config.rows(d)
        assert MIN_ROWS <= rows <= config.max_rows
        assert rows == MIN_ROWS or rows**2 * (d + 6) <= config.work
    X, y = table(2000)
    chosen = subsets(X, y, 0, config)
    assert len(chosen) == config.subsets
    assert all(len(set(i.tolist())) == config.rows(3) for i in chosen)
    assert caption(X, y, network=STEM, reading=reading).rows_seen == len(np.unique(chosen))


def test_a_careful_reading_sees_every_row_of_a_table_that_a_quick_one_samples():
    X, y = table(500)
    assert caption(X, y, network=STEM, reading="careful").rows_seen == 500
    assert caption(X, y, network=STEM, reading="all").rows_seen == 500
    assert caption(X, y, network=STEM).rows_seen < 500


def test_two_orders_of_a_sum_are_one_caption():
    merged = merge_orders({(1, 2): math.log(0.2), (2, 1): math.log(0.3), (5,): math.log(0.1), (6,): -math.inf})
    assert set(merged) == {frozenset({1, 2}), frozenset({5})}
    order, probability = merged[frozenset({1, 2})]
    assert order == (2, 1)
    assert math.isclose(probability, 0.5)


def test_chosen_captions_cover_each_other():
    """Two kinds of table, each with a word that is right for it; the second choice covers what the first does not."""
    scenarios = torch.full((10, 34), 1.0)
    scenarios[:, 3] = 0.4  # never good, never bad
    scenarios[:6, 5] = scenarios[6:, 7] = 0.0
    scenarios[:6, 7] = scenarios[6:, 5] = 2.0
    chosen = rank(scenarios, torch.full((34,), 1 / 34), torch.zeros(34), 4)
    assert chosen[0] == 3
    assert set(chosen[1:3]) == {5, 7}
    assert chosen[3] == 0, "the most probable caption, which comes first, is always among them"


def test_of_captions_that_lose_alike_the_most_probable_comes_first():
    scenarios, belief = torch.tensor([[0.5, 0.0105, 0.01, 0.3]]).double(), torch.tensor([0.4, 0.3, 0.2, 0.1])
    assert rank(scenarios, belief, torch.full((4,), 0.001), 1) == [1]
    assert rank(scenarios, belief, torch.zeros(4), 1) == [2]


def test_noise_loses_less_the_more_it_is_believed():
    scenarios = torch.tensor([[0.1, 0.04]]).double()
    for signals, first in (([frozenset(), frozenset({1})], 0), ([frozenset({2}), frozenset({1})], 1)):
        assert ranked(scenarios, signals, [0.7, 0.3], 2)[0][0] == first


def test_of_captions_that_differ_in_noise_alone_the_most_probable_is_ranked():
    scenarios = torch.tensor([[0.1, 0.1, 0.1, 0.3]]).double()
    signals = [frozenset({1}), frozenset(), frozenset(), frozenset({0})]
    order, losses = ranked(scenarios, signals, [0.35, 0.3, 0.2, 0.15], 4)
    assert order == [1, 0, 3, 2], "noise has half of the probability, and its second caption comes last"
    torch.testing.assert_close(losses, torch.tensor([0.1, 0.05, 0.05, 0.3]).double())


def test_captions_that_differ_in_noise_alone_have_the_same_expected_loss():
    losses: dict[frozenset, set] = {}
    for c in caption(*table(), k=200, ranking="probability"):
        losses.setdefault(frozenset(c.expression.signal), set()).add(round(c.expected_loss, 9))
    shared = {signal: values for signal, values in losses.items() if signal}
    assert len(shared) > 10
    assert all(len(values) == 1 for values in shared.values())


@pytest.mark.parametrize("columns", [1, 4, 8])
def test_noise_is_mostly_called_noise(columns):
    """At least nine of ten here; docs/notebook/training.md has the share of more tables."""
    rng = np.random.default_rng(columns)
    tables = [(rng.normal(size=(n, columns)), rng.normal(size=n)) for n in rng.integers(50, 500, 20)]
    assert sum(not caption(X, y).best.expression.signal for X, y in tables) >= 18


def test_the_most_probable_caption_is_always_shown():
    for seed in range(5):
        likeliest = caption(*table(seed=seed), k=1, network=STEM, ranking="probability").best
        assert likeliest in caption(*table(seed=seed), k=3, network=STEM).ranked


def test_a_checkpoint_without_advice_ranks_by_probability():
    plain = LoadedModel(STEM.model, STEM.facts, {})
    said = caption(*table(), k=3, network=plain)
    assert [c.probability for c in said] == sorted((c.probability for c in said), reverse=True)
    assert all(c.expected_loss is None for c in said)


def test_rankings_differ_and_both_heads_answer():
    X, y = table()
    for head in HEADS:
        for ranking in RANKINGS:
            said = caption(X, y, k=4, network=STEM, head=head, ranking=ranking)
            assert len(said.ranked) == 4
            assert all(c.expected_loss is not None for c in said.ranked)
    words = caption(X, y, k=34, network=STEM, head="classifier", ranking="probability")
    assert sorted(c.expression.words[0].index for c in words.ranked) == list(range(34))


def test_temperature_and_strangeness():
    X, y = table()
    warm = LoadedModel(STEM.model, replace(STEM.facts, extra={"temperature": 100.0}), {})
    assert max(caption(X, y, network=warm).words) < max(caption(X, y, network=STEM).words)
    assert caption(X, y, network=warm).strangeness is None
    assert caption(X, y, network=STEM).strangeness > 0
    assert caption(X, y, network=PAPER).strangeness is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"k": 0}, InvalidInputError, "at least 1"),
        ({"head": "tail"}, InvalidInputError, "head must be one of"),
        ({"search": "depth"}, InvalidInputError, "search must be one of"),
        ({"ranking": "taste"}, InvalidInputError, "ranking must be one of"),
        ({"network": "no-such-model"}, CheckpointError, "no-such-model"),
        ({"network": Path("no-such-model")}, CheckpointError, "no-such-model"),
        ({"random_state": 2**70}, InvalidInputError, "the seed must be a whole number"),
    ],
)
def test_bad_options_are_explained(options, error, message):
    with pytest.raises(error, match=message):
        caption(*table(), **({"network": STEM} | options))


@pytest.mark.parametrize("shape", [(10, 0), (0, 3), (10,)])
def test_bad_shapes_are_explained(shape):
    with pytest.raises(InvalidInputError, match="expected finite numbers"):
        caption(np.zeros((9, 2)), np.full(9, np.nan))
    with pytest.raises(InvalidInputError, match="whole number of at least 1, got 2"):
        caption(np.zeros((9, 2)), np.zeros(9), k=2.5)
    with pytest.raises(InvalidInputError, match="expected X of shape"):
        caption(np.zeros(shape), np.zeros(shape[0]), network=STEM)


def test_what_has_no_kernel_is_refused_unless_it_is_asked_for() -> None:
    X, y = table()
    for rows, target, message in (
        (X[:7], y[:7], "at least 8 rows; got 7"),
        (X, 0 * y + 3, "varies; got 3.0 in every row"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            caption(rows, target, network=STEM)
        assert len(caption(rows, target, network=STEM, check=False)) == 3


def test_captions_depend_neither_on_units_nor_on_signs() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(50, 10, (900, 3))
    y = 0.1 * X[:, 0] + np.sin(X[:, 1]) + rng.normal(size=900)
    ours = [set(indices.tolist()) for indices in subsets(X, y, 0)]
    for other_X, other_y in (((X - 32) / 1.8, y), (X, -y), (X[:, ::-1], 7 * y + 3), (-X, y)):
        assert [set(indices.tolist()) for indices in subsets(other_X, other_y, 0)] == ours
    assert [c.expression for c in caption(X, y)] == [c.expression for c in caption((X - 32) / 1.8, 7 * y + 3)]


def test_copies_of_rows_do_not_crowd_out_others() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 21, (2000, 1)).astype(float), rng.integers(1, 6, 2000).astype(float)
    seen, _ = subsets(x, y, 0)
    assert len({(x[i, 0], y[i]) for i in seen}) > 90  # of 105 pairs
