"""The network: its symmetries (the paper's Propositions 1 and 2), its captions, its config."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from kitt.errors import InvalidInputError
from kitt.network.network import (
    Captioner,
    CaptionerConfig,
    ClassifierHead,
    Decoder,
    PaperConfig,
    attention,
    build,
)
from kitt_lab.train.validate import teacher_forcing

CONFIG = PaperConfig(words=7, width=16, heads=4, blocks=3, decoder_width=24, decoder_heads=3, decoder_blocks=3)
START, STOP, PAD = CONFIG.start, CONFIG.stop, CONFIG.pad
PROMPT = torch.tensor([[START, 3, 5]])
SHAPES = [(1, 1), (1, 3), (9, 1), (12, 4), (30, 2)]  # (N, D)


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture(params=["probabilities", "encodings"])
def net(request: pytest.FixtureRequest) -> Captioner:
    net = build(CONFIG)
    net.classifier = ClassifierHead(CONFIG.width, CONFIG.words, request.param)
    return net.double().eval()


def table(N: int, D: int) -> tuple[Tensor, Tensor]:
    return torch.randn(1, N, D, dtype=torch.float64), torch.randn(1, N, dtype=torch.float64)


def outputs(net: Captioner, X: Tensor, y: Tensor, prompt: Tensor = PROMPT) -> tuple[Tensor, Tensor, Tensor]:
    encodings = net.encode(X, y)
    return encodings, net.classify(encodings), net.decode(encodings, prompt)


def close(actual: Tensor, expected: Tensor) -> None:
    assert_close(actual, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("N", "D"), SHAPES)
def test_shapes_for_any_number_of_points_and_dimensions(net: Captioner, N: int, D: int) -> None:
    encodings, log_p, logits = outputs(net, *table(N, D))
    assert encodings.shape == (1, D, CONFIG.width)
    assert log_p.shape == (1, CONFIG.words)
    assert logits.shape == (1, 3, CONFIG.words + 1)
    close(log_p.exp().sum(-1), torch.ones(1, dtype=torch.float64))


@pytest.mark.parametrize(("N", "D"), SHAPES)
def test_order_of_points_does_not_matter(net: Captioner, N: int, D: int) -> None:
    """Proposition 1."""
    X, y = table(N, D)
    order = torch.randperm(N)
    for shuffled, plain in zip(outputs(net, X[:, order], y[:, order]), outputs(net, X, y), strict=True):
        close(shuffled, plain)


@pytest.mark.parametrize(("N", "D"), SHAPES)
def test_order_of_dimensions_moves_only_the_encodings(net: Captioner, N: int, D: int) -> None:
    """Proposition 2, and what follows from it for the two heads."""
    X, y = table(N, D)
    order = torch.randperm(D)
    encodings, log_p, logits = outputs(net, X, y)
    shuffled = outputs(net, X[..., order], y)
    for actual, expected in zip(shuffled, (encodings[:, order], log_p, logits), strict=True):
        close(actual, expected)


def test_the_network_does_look_at_points_and_dimensions(net: Captioner) -> None:
    X, y = table(12, 4)
    plain = outputs(net, X, y)
    for changed in (outputs(net, X, y.flip(1)), outputs(net, X[..., :3], y)):
        for actual, expected in zip(changed[1:], plain[1:], strict=True):
            assert (actual - expected).abs().max() > 1e-6


def test_a_batch_equals_one_by_one(net: Captioner) -> None:
    tables = [table(12, 4) for _ in range(3)]
    X, y = (torch.cat(parts) for parts in zip(*tables, strict=True))
    together = outputs(net, X, y, PROMPT.expand(3, -1))
    for b, one in enumerate(tables):
        for actual, expected in zip(together, outputs(net, *one), strict=True):
            close(actual[b], expected[0])


def test_classifier_averages_the_probabilities_of_the_dimensions() -> None:
    head, encodings = ClassifierHead(16, 7).double(), torch.randn(2, 3, 16, dtype=torch.float64)
    expected = head.logits(encodings).softmax(-1).mean(1)
    close(head(encodings).exp(), expected)


def test_decoder_attends_to_dimensions_and_not_to_their_mean(net: Captioner) -> None:
    encodings = torch.randn(1, 4, CONFIG.width, dtype=torch.float64)
    mean = encodings.mean(1, keepdim=True)
    assert (net.decode(encodings, PROMPT) - net.decode(mean, PROMPT)).abs().max() > 1e-6


def test_later_tokens_do_not_change_earlier_logits(net: Captioner) -> None:
    encodings = torch.randn(1, 4, CONFIG.width, dtype=torch.float64)
    logits = net.decode(encodings, torch.tensor([[START, 3, 5]]))
    for t, other in [(1, [START, 6, 0]), (2, [START, 3, PAD]), (1, [START, PAD, PAD])]:
        changed = net.decode(encodings, torch.tensor([other]))
        close(changed[:, :t], logits[:, :t])
        assert (changed[:, t:] - logits[:, t:]).abs().amax(-1).min() > 1e-6


def test_one_pass_equals_step_by_step(net: Captioner) -> None:
    encodings = torch.randn(2, 4, CONFIG.width, dtype=torch.float64)
    prompt = torch.tensor([[START, 3, 5], [START, 2, PAD]])
    logits = net.decode(encodings, prompt)
    for t in range(3):
        close(net.decode(encodings, prompt[:, : t + 1])[:, -1], logits[:, t])


@pytest.mark.parametrize("blocks", [1, 2, 6])
def test_when_the_order_of_the_prompt_matters(blocks: int) -> None:
    """The words before the last are a set only in a decoder of one block; which word is last always matters."""
    decoder = Decoder(7, 16, width=24, heads=3, blocks=blocks, dropout=0.1).double().eval()
    prompts = torch.tensor([[START, 3, 5, 2], [START, 5, 3, 2], [START, 3, 2, 5]])
    encodings = torch.randn(1, 4, 16, dtype=torch.float64).expand(3, -1, -1)
    following = decoder(encodings, prompts)[:, -1]
    earlier_words, last_word = (following[1:] - following[0]).abs().amax(-1)
    assert last_word > 1e-6
    assert earlier_words < 1e-10 if blocks == 1 else earlier_words > 1e-6


def test_teacher_forcing() -> None:
    captions = torch.tensor([[1, PAD, PAD], [4, 2, PAD], [6, 0, 3], [PAD, PAD, PAD]])
    prompt, target = teacher_forcing(captions, CONFIG)
    assert prompt.tolist() == [[START, 1, PAD], [START, 4, 2], [START, 6, 0], [START, PAD, PAD]]
    assert target.tolist() == [[1, STOP, PAD], [4, 2, STOP], [6, 0, 3], [STOP, PAD, PAD]]
    assert [part.tolist() for part in teacher_forcing(torch.tensor([[1]]), CONFIG)] == [[[START, 1]], [[1, STOP]]]
    with pytest.raises(InvalidInputError, match="at most 3 words"):
        teacher_forcing(torch.tensor([[1, 2, 3, 4]]), CONFIG)


def test_gradient_reaches_every_parameter(net: Captioner) -> None:
    X, y = torch.randn(5, 12, 4, dtype=torch.float64), torch.randn(5, 12, dtype=torch.float64)
    captions = torch.randint(CONFIG.words, (5, 3))
    prompt, target = teacher_forcing(captions, CONFIG)
    _, log_p, logits = outputs(net.train(), X, y, prompt)
    caption_loss = cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
    (caption_loss - log_p.gather(1, captions[:, :1]).mean()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
    for name, parameter in net.named_parameters():
        if "query_key_value" in name or "key_value" in name:  # each of the fused maps
            for part in parameter.grad.split(parameter.shape[0] // (3 if "query" in name else 2)):
                assert part.any(), name


def test_dropout_only_while_training(net: Captioner) -> None:
    X, y = table(12, 4)
    assert torch.equal(net.encode(X, y), net.encode(X, y))
    net.train()
    assert not torch.equal(net.encode(X, y), net.encode(X, y))


def test_number_of_parameters() -> None:
    """By arithmetic: 256 + 12 (4 * 128^2 + 3 * 128) + 2 (128^2 + 128) + 34 * 129, "0.83 M with the head"."""
    net = build(PaperConfig())
    assert sum(p.numel() for part in (net.encoder, net.classifier) for p in part.parameters()) == 828_706


def test_token_ids() -> None:
    config = PaperConfig(words=34)
    assert (config.stop, config.start, config.pad) == (34, 35, 36)


def test_config_round_trip() -> None:
    assert PaperConfig.from_dict(CONFIG.to_dict()) == CONFIG
    assert PaperConfig.from_dict({}) == PaperConfig()
    with pytest.raises(InvalidInputError, match="has no field depth; its fields are words"):
        PaperConfig.from_dict({"words": 3, "depth": 2})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"words": 0}, "words must be an integer of at least 1, not 0"),
        ({"blocks": 2.0}, "blocks must be an integer"),
        ({"heads": True}, "heads must be an integer"),
        ({"max_words": "3"}, "max_words must be an integer"),
        ({"dropout": 1.0}, r"dropout must be a number in \[0, 1\)"),
        ({"dropout": float("nan")}, "dropout must be a number"),
        ({"dropout": "a little"}, "dropout must be a number"),
        ({"width": 130}, "width must be a multiple of heads, not 130 with 4 heads"),
        ({"decoder_heads": 3}, "decoder_width must be a multiple of decoder_heads"),
    ],
)
def test_config_refuses(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        PaperConfig(**values)


def test_unknown_choices_are_errors() -> None:
    with pytest.raises(InvalidInputError, match="pool must be"):
        ClassifierHead(8, 3, pool="median")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="no network is known for a CaptionerConfig"):
        build(CaptionerConfig())


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_training_is_that_in_use(causal: bool) -> None:
    """Matrix products where there are gradients, the fused form elsewhere."""
    Q, K, V = (torch.randn(3, 5, 8, dtype=torch.float64) for _ in range(3))
    used = attention(Q, K, V, 2, causal=causal)
    trained = attention(Q.clone().requires_grad_(), K, V, 2, causal=causal)
    assert trained.requires_grad
    close(trained.detach(), used)
