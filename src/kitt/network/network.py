"""Every network, in tensors and integers only: attention, blocks, encoders, heads, decoder, and their frozen configs.

An encoder turns a data set into one encoding per input dimension, once. A classifier turns the encodings into
log-probabilities of the single words; a decoder turns them and a prompt into logits of the next word of a caption.

Shapes: B data sets, N points, D input dimensions, E embedding, H heads, V words, T caption length.
The data sets of a batch have the same size, of at least a point and a dimension.
Token ids: words are 0..V-1, then STOP = V, START = V + 1, PAD = V + 2. The decoder predicts words and STOP.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from kitt.errors import InvalidInputError
from kitt.network.features import Tables, describe, prepare, probe


def dense(inputs: int, outputs: int, *, maps: int = 1, bias: bool = True) -> nn.Linear:
    """A dense layer that starts as in the paper's code (Glorot weights, zero bias); `maps` of them fused into one."""
    layer = nn.Linear(inputs, maps * outputs, bias=bias)
    for weight in layer.weight.chunk(maps):
        nn.init.xavier_uniform_(weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def layer_norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=1e-6)  # the paper's code


def attention(Q: Tensor, K: Tensor, V: Tensor, heads: int, *, causal: bool = False) -> Tensor:
    """softmax(QK'/sqrt(E/H))V in each head: Q (B, M, E), K and V (B, L, E) -> (B, M, E)."""
    Q, K, V = (Z.unflatten(-1, (heads, -1)).transpose(1, 2) for Z in (Q, K, V))  # (B, M, E) -> (B, H, M, E/H)
    # The fused form needs little memory, but in training on a CPU its gradient takes longer than the rest of a step.
    attend = _attend if Q.requires_grad else F.scaled_dot_product_attention
    return attend(Q, K, V, is_causal=causal).transpose(1, 2).flatten(2)  # (B, H, M, E/H) -> (B, M, E)


def _attend(Q: Tensor, K: Tensor, V: Tensor, is_causal: bool) -> Tensor:
    """Attention like `scaled_dot_product_attention`, by matrix products: (B, H, M, E/H) -> (B, H, M, E/H)."""
    scores = (Q * Q.shape[-1] ** -0.5) @ K.mT  # (B, H, M, L)
    if is_causal:
        scores = scores.masked_fill(scores.new_ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1).to(V) @ V


class SelfAttention(nn.Module):
    """Multihead(Z, Z, Z) with bias-free maps. The map of the joined heads is left to the user of this layer."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query_key_value = dense(width, width, maps=3, bias=False)

    def forward(self, Z: Tensor) -> Tensor:
        Q, K, V = self.query_key_value(Z).chunk(3, dim=-1)  # (B, M, 3E) -> 3 x (B, M, E)
        return attention(Q, K, V, self.heads, causal=self.causal)


class CrossAttention(nn.Module):
    """Multihead(Z, C, C) with bias-free maps; Z and C may differ in width."""

    def __init__(self, width: int, context_width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = dense(width, width, bias=False)
        self.key_value = dense(context_width, width, maps=2, bias=False)

    def forward(self, Z: Tensor, C: Tensor) -> Tensor:
        K, V = self.key_value(C).chunk(2, dim=-1)  # (B, L, 2E) -> 2 x (B, L, E)
        return attention(self.query(Z), K, V, self.heads)


class SetAttentionBlock(nn.Module):
    """SAB(Z) = LayerNorm(Z + Dropout(rFF(Multihead(Z, Z, Z)))), rFF a dense ReLU layer (paper, Model Architecture).

    The paper's code also applies dropout to the attention weights; its text does not, and without it a step takes half
    the time.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.feed_forward = dense(width, width)
        self.dropout = nn.Dropout(dropout)
        self.norm = layer_norm(width)

    def forward(self, Z: Tensor) -> Tensor:
        return self.norm(Z + self.dropout(F.relu(self.feed_forward(self.attention(Z)))))


class PaperEncoder(nn.Module):
    """DIM_ENC(SEQ_ENC(X, y)) of the paper: invariant to the order of points, equivariant to the order of dimensions."""

    def __init__(self, width: int, heads: int, blocks: int, dropout: float) -> None:
        super().__init__()
        self.embed = dense(2, width, bias=False)
        self.point_blocks = nn.ModuleList(SetAttentionBlock(width, heads, dropout) for _ in range(blocks))
        self.dimension_blocks = nn.ModuleList(SetAttentionBlock(width, heads, dropout) for _ in range(blocks))
        self.out = nn.Sequential(dense(width, width), nn.ReLU(), dense(width, width), nn.ReLU())

    def forward(self, X: Tensor, y: Tensor) -> Tensor:
        """X (B, N, D), y (B, N) -> encodings (B, D, E)."""
        G = self.encode_points(X, y)
        for block in self.dimension_blocks:
            G = block(G)
        return self.out(G)

    def encode_points(self, X: Tensor, y: Tensor) -> Tensor:
        """SEQ_ENC = MP(SAB x 6(rFF(x_d, y))), each dimension by itself -> (B, D, E)."""
        B, N, D = X.shape
        pairs = torch.stack([X.transpose(1, 2), y[:, None].expand(B, D, N)], dim=-1)  # (B, D, N, 2)
        Z = self.embed(pairs.flatten(0, 1))  # (B, D, N, 2) -> (B·D, N, 2) -> (B·D, N, E)
        for block in self.point_blocks:
            Z = block(Z)
        return Z.mean(1).unflatten(0, (B, D))  # (B·D, E) -> (B, D, E)


class Block(nn.Module):
    """A pre-norm transformer block over a set: attention, then a feed-forward part, each added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_attention, self.norm_dense = layer_norm(width), layer_norm(width)
        self.attention = SelfAttention(width, heads)
        self.join = dense(width, width)
        self.dense = nn.Sequential(dense(width, 2 * width), nn.GELU(), dense(2 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, Z: Tensor) -> Tensor:
        Z = Z + self.dropout(self.join(self.attention(self.norm_attention(Z))))
        return Z + self.dropout(self.dense(self.norm_dense(Z)))


class Normaliser(nn.Module):
    """Normalises statistics by means and deviations measured once on the prior; batch norm would mix tables of all sizes."""

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def measure(self, values: Tensor) -> None:
        values = values.reshape(-1, values.shape[-1])
        self.mean.copy_(values.mean(0))
        self.scale.copy_(values.std(0).clamp_min(1e-3))

    def forward(self, values: Tensor) -> Tensor:
        return ((values - self.mean) / self.scale).clamp(-6, 6)


@dataclass(frozen=True)
class StemOutput:
    """The output of the stem for a batch of tables."""

    encodings: Tensor  # (B, D, E)
    roughness: Tensor  # (B, D) log of each column's inverse lengthscale
    noise: Tensor  # (B,) log of the share of noise in the variance
    strangeness: Tensor  # (B,) mean square of the normalised statistics: about one for draws from the prior


class StemEncoder(nn.Module):
    """Encodes statistics of the table instead of its points, together with the fit of a few Gaussian processes.

    1. `features.describe` -> blocks over columns (one extra token stands for the whole table).
    2. From these, an estimate of each column's roughness and of the noise; `features.probe` evaluates a few Gaussian
       processes with that metric.
    3. The result of the probes is added to the tokens -> blocks over columns -> encodings.
    The estimates are trained by a loss of their own (`guess`), because no gradient goes through the probes.
    """

    def __init__(self, width: int, heads: int, blocks: int, probe_blocks: int, dropout: float) -> None:
        super().__init__()
        sizes = _statistics_sizes()
        self.normalise = nn.ModuleList(Normaliser(size) for size in sizes)
        self.embed = nn.ModuleList(
            nn.Sequential(dense(size, 2 * width), nn.GELU(), dense(2 * width, width)) for size in sizes
        )
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(blocks))
        self.probe_blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(probe_blocks))
        self.roughness, self.noise = dense(width, 1), dense(width, 1)
        self.out = layer_norm(width)

    def forward(self, X: Tensor, y: Tensor) -> Tensor:
        """X (B, N, D), y (B, N) -> encodings (B, D, E)."""
        return self.read(X, y).encodings

    def read(self, X: Tensor, y: Tensor) -> StemOutput:
        with torch.no_grad():
            table = prepare(X, y)
            column, whole = (
                normalise(part) for normalise, part in zip(self.normalise[:2], describe(table), strict=True)
            )
            strangeness = 0.5 * (column.mean(1).square().mean(-1) + whole.square().mean(-1))
        Z = self._tokens(0, column, whole)  # (B, 1 + D, E)
        for block in self.blocks:
            Z = block(Z)
        roughness, noise = self.guess(Z)
        # In single precision the result could depend on the number of threads, which does no harm in training.
        seen = table if self.training else table.double()
        evidence = (part.to(X) for part in probe(seen, *(g.detach().exp().to(seen.X) for g in (roughness, noise))))
        Z = Z + self._tokens(2, *(normalise(p) for normalise, p in zip(self.normalise[2:], evidence, strict=True)))
        for block in self.probe_blocks:
            Z = block(Z)
        return StemOutput(self.out(Z[:, 1:]), roughness, noise, strangeness)

    def _tokens(self, first: int, column: Tensor, whole: Tensor) -> Tensor:
        columns = self.embed[first](column)
        table = self.embed[first + 1](whole).unsqueeze(1)
        return torch.cat([table, columns + table], 1)

    def guess(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        return (
            self.roughness(Z[:, 1:]).squeeze(-1).clamp(-4, 4),
            self.noise(Z[:, 0]).squeeze(-1).sub(2).clamp(-9, 1),
        )

    def measure(self, tables: list[Tables]) -> None:
        """Set the normalisers from tables of the prior."""
        with torch.no_grad():
            seen: list[list[Tensor]] = [[] for _ in self.normalise]
            for t in tables:
                B, _, D = t.X.shape
                parts = (*describe(t), *probe(t, t.X.new_ones(B, D), t.X.new_full((B,), 0.05)))
                for values, part in zip(seen, parts, strict=True):
                    values.append(part.reshape(-1, part.shape[-1]))
            for normaliser, values in zip(self.normalise, seen, strict=True):
                normaliser.measure(torch.cat(values))  # type: ignore[operator]


def _statistics_sizes() -> tuple[int, ...]:
    """How many numbers `describe` and `probe` give for a column and for a table."""
    t = prepare(torch.zeros(1, 2, 1), torch.zeros(1, 2))
    return tuple(part.shape[-1] for part in (*describe(t), *probe(t, torch.ones(1, 1), torch.ones(1))))


class ClassifierHead(nn.Module):
    """Encodings (B, D, E), of any encoder -> log-probabilities of the words (B, V). Two ways to pool over dimensions:

    "probabilities": dense and softmax in each dimension, then the plain average of the D distributions. The paper says
    "dense and softmax"; this is what its code does (log-softmax, then log-sum-exp over dimensions), and so its numbers.
    "encodings": mean and maximum of the encodings, then a small network and one softmax.
    """

    def __init__(self, width: int, words: int, pool: Literal["probabilities", "encodings"] = "probabilities") -> None:
        super().__init__()
        if pool not in ("probabilities", "encodings"):
            raise InvalidInputError(f"pool must be 'probabilities' or 'encodings', not {pool!r}")
        self.pool = pool
        self.logits: nn.Module
        if pool == "probabilities":
            self.logits = dense(width, words)
        else:
            self.logits = nn.Sequential(dense(2 * width, width), nn.ReLU(), dense(width, words))

    def forward(self, encodings: Tensor) -> Tensor:
        if self.pool == "encodings":
            pooled = torch.cat([encodings.mean(1), encodings.amax(1)], dim=-1)  # (B, 2E)
            return self.logits(pooled).log_softmax(-1)
        log_p = self.logits(encodings).log_softmax(-1)  # (B, D, V)
        return log_p.logsumexp(1) - math.log(log_p.shape[1])


class DecoderBlock(nn.Module):
    """Vaswani et al. 2017, fig. 1, right: look-ahead-masked attention, attention to the encodings, feed-forward."""

    def __init__(self, width: int, encoding_width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.prompt_attention = SelfAttention(width, heads, causal=True)
        self.prompt_out = dense(width, width)
        self.prompt_norm = layer_norm(width)
        self.encoding_attention = CrossAttention(width, encoding_width, heads)
        self.encoding_out = dense(width, width)
        self.encoding_norm = layer_norm(width)
        self.feed_forward = nn.Sequential(dense(width, 4 * width), nn.ReLU(), dense(4 * width, width))
        self.feed_forward_norm = layer_norm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, Z: Tensor, encodings: Tensor) -> Tensor:
        """Z (B, T, width), encodings (B, D, E) -> (B, T, width)."""
        Z = self.prompt_norm(Z + self.dropout(self.prompt_out(self.prompt_attention(Z))))
        Z = self.encoding_norm(Z + self.dropout(self.encoding_out(self.encoding_attention(Z, encodings))))
        return self.feed_forward_norm(Z + self.dropout(self.feed_forward(Z)))


class Decoder(nn.Module):
    """Logits of the next token at every position of a prompt, from one encoding per dimension, without positions.

    The paper's code averages the encodings before it attends to them; the paper, and this decoder, attend to them all.

    The order of the prompt does matter, though the paper says that only the set of earlier words does. The next word is
    read off at the last word of the prompt, so which one is last matters at any depth; and from the second block on the
    look-ahead mask has let each earlier word see only those before it, so their order matters too. The words before the
    last are a set only if there is a single block. (Captions are ordered anyway: by decreasing variance.)
    """

    def __init__(self, words: int, encoding_width: int, *, width: int, heads: int, blocks: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(words + 3, width, padding_idx=words + 2)  # words, STOP, START, PAD
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(DecoderBlock(width, encoding_width, heads, dropout) for _ in range(blocks))
        self.logits = dense(width, words + 1)  # words, STOP

    def forward(self, encodings: Tensor, prompt: Tensor) -> Tensor:
        """Encodings (B, D, E), prompt (B, T) int64 -> (B, T, V + 1). Logits at t see the prompt up to and including t.

        So all steps of a known caption take one pass, and PAD, which is allowed at the end only, influences no other logits.
        """
        Z = self.dropout(self.embed(prompt))  # (B, T) -> (B, T, width)
        for block in self.blocks:
            Z = block(Z, encodings)
        return self.logits(Z)


class Captioner(nn.Module):
    """An encoder, (X, y) -> encodings (B, D, E), run once per data set, and two heads that read it."""

    def __init__(self, encoder: nn.Module, classifier: ClassifierHead, decoder: Decoder) -> None:
        super().__init__()
        self.encoder, self.classifier, self.decoder = encoder, classifier, decoder

    def encode(self, X: Tensor, y: Tensor) -> Tensor:
        """X (B, N, D), y (B, N) -> encodings (B, D, E)."""
        return self.encoder(X, y)

    def classify(self, encodings: Tensor) -> Tensor:
        """Encodings (B, D, E) -> log-probabilities of the single words (B, V)."""
        return self.classifier(encodings)

    def decode(self, encodings: Tensor, prompt: Tensor) -> Tensor:
        """Encodings (B, D, E), prompt (B, T) -> logits of words and STOP (B, T, V + 1)."""
        return self.decoder(encodings, prompt)


@dataclass(frozen=True, kw_only=True)
class CaptionerConfig:
    """The fields of every captioner: the vocabulary, the size of the encoder, and the decoder."""

    words: int = 34
    max_words: int = 3
    dropout: float = 0.1
    decoder_width: int = 256
    decoder_heads: int = 8
    decoder_blocks: int = 6
    width: int = 128
    heads: int = 4
    blocks: int = 6

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int and (type(value) is not int or value < 1):
                raise InvalidInputError(f"{field.name} must be an integer of at least 1, not {value!r}")
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout < 1:
            raise InvalidInputError(f"dropout must be a number in [0, 1), not {self.dropout!r}")
        for part in ("decoder_", ""):
            width, heads = getattr(self, f"{part}width"), getattr(self, f"{part}heads")
            if width % heads:
                raise InvalidInputError(
                    f"{part}width must be a multiple of {part}heads, not {width} with {heads} heads"
                )

    @property
    def stop(self) -> int:
        return self.words

    @property
    def start(self) -> int:
        return self.words + 1

    @property
    def pad(self) -> int:
        return self.words + 2

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise InvalidInputError(
                f"{cls.__name__} has no field {', '.join(unknown)}; its fields are {', '.join(known)}"
            )
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class PaperConfig(CaptionerConfig):
    """The paper's network, with `blocks` over points and as many over dimensions.

    Its code has width 128 for the classifier, and for the decoder 256 with 8 heads, of which weights take 14 MB; ours has
    the classifier's width.
    """

    decoder_width: int = 128


@dataclass(frozen=True, kw_only=True)
class StemConfig(CaptionerConfig):
    """The network with the stem of statistics, which the bundled checkpoint "default" uses."""

    dropout: float = 0.0
    decoder_width: int = 128
    decoder_heads: int = 4
    decoder_blocks: int = 3
    blocks: int = 3
    probe_blocks: int = 3


CONFIGS: dict[str, type[CaptionerConfig]] = {"paper": PaperConfig, "stem": StemConfig}


def build(config: CaptionerConfig) -> Captioner:
    """The network of a config, with fresh weights from torch's global generator."""
    encoder: nn.Module
    match config:
        case PaperConfig():
            encoder = PaperEncoder(config.width, config.heads, config.blocks, config.dropout)
            classifier = ClassifierHead(config.width, config.words)
        case StemConfig():
            encoder = StemEncoder(config.width, config.heads, config.blocks, config.probe_blocks, config.dropout)
            classifier = ClassifierHead(config.width, config.words, pool="encodings")
        case _:
            raise InvalidInputError(f"no network is known for a {type(config).__name__}; try PaperConfig()")
    decoder = Decoder(
        config.words,
        config.width,
        width=config.decoder_width,
        heads=config.decoder_heads,
        blocks=config.decoder_blocks,
        dropout=config.dropout,
    )
    return Captioner(encoder, classifier, decoder)
