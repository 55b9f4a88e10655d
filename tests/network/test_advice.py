"""The head that advises: features of a table, scenarios of the loss of any expression, and its way through a checkpoint."""

import torch
from torch.testing import assert_close

from kitt.network.advice import AdviceConfig, AdviceHead, advice_features, from_tensors, to_tensors

CONFIG = AdviceConfig(features=6, words=4, hidden=5, scenarios=7)


def a_head() -> AdviceHead:
    torch.manual_seed(0)
    head = AdviceHead(CONFIG).requires_grad_(False).eval()
    head.residuals.copy_(0.2 * torch.randn(7, 4))
    head.out.bias.fill_(0.4)
    head.pull.fill_(0.75)
    head.price.fill_(0.05)
    return head


def test_features_have_one_size_and_do_not_depend_on_the_order_of_columns() -> None:
    torch.manual_seed(0)
    for d in (1, 5):
        encodings, log_p, roughness = torch.randn(2, d, 8), torch.randn(4).log_softmax(0), torch.rand(d)
        features = advice_features(encodings, log_p, (50, d), roughness, 0.1)
        assert features.shape == (2 * 8 + 4 + 8,)
        assert features.isfinite().all()
        order = torch.randperm(d)
        assert_close(advice_features(encodings[:, order], log_p, (50, d), roughness[order], 0.1), features)


def test_features_are_finite_where_a_guess_is_zero() -> None:
    log_p = torch.tensor([0.0, -torch.inf, -torch.inf, -torch.inf])
    assert advice_features(torch.zeros(1, 2, 8), log_p, (1, 2), torch.zeros(2), 0.0).isfinite().all()


def test_losses_are_between_zero_and_the_cap_and_their_mean_is_the_expected_loss() -> None:
    head, features = a_head(), 3 * torch.randn(5, 6)
    scenarios = head.scenarios(features, torch.eye(4))
    assert scenarios.shape == (5, 7, 4)
    assert (scenarios >= 0).all()
    assert (scenarios <= 1).all()
    assert_close(head(features, torch.eye(4)), scenarios.mean(1))


def test_a_word_is_itself_and_a_sum_is_between_its_words_and_pays_for_each() -> None:
    head = a_head()
    roots = torch.tensor([0.1, 0.5, 0.2, 0.9])
    assert_close(head.combine(roots, torch.eye(4)), roots)
    pair, three = torch.tensor([[1.0, 1, 0, 0]]), torch.tensor([[1.0, 1, 0, 1]])
    assert_close(head.combine(roots, pair), torch.tensor([0.3 - 0.75 * 0.2 + 0.05]))
    assert_close(head.combine(roots, three), torch.tensor([0.5 - 0.75 * 0.4 + 0.10]))


def test_to_a_checkpoint_and_back() -> None:
    head, features = a_head(), torch.randn(3, 6)
    again = from_tensors({"costs": torch.zeros(2), **to_tensors(head)})
    assert again is not None
    assert_close(again(features, torch.eye(4)), head(features, torch.eye(4)))
    assert from_tensors({"costs": torch.zeros(2)}) is None
