"""AHGP: its kernel, its network, its training and its checkpoints."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

from baseline_work import network, table
from kitt.app.cli.main import app
from kitt.errors import CheckpointError, InvalidInputError
from kitt.kernels.exact import log_marginal_likelihood
from kitt_lab.baselines import ahgp, method
from kitt_lab.baselines.exact import covariance_matrix
from kitt_lab.train import Progress, RunFolder


def test_ahgp_kernel_formula() -> None:
    random = np.random.default_rng(0)
    log_v, A, B = random.normal(size=(2, 10)), random.random((3, 2)), random.random((4, 2))
    w = random.dirichlet(np.ones(10), 2)
    expected = np.ones((3, 4))
    for i, j, d in product(range(3), range(4), range(2)):
        tau = A[i, d] - B[j, d]
        expected[i, j] *= sum(w[d, m] * math.exp(-2 * math.pi**2 * math.exp(log_v[d, m]) * tau**2) for m in range(10))
    np.testing.assert_allclose(ahgp.mixture_product(*map(torch.as_tensor, (log_v, w, A, B))), expected)


def test_ahgp_symmetries() -> None:
    net, random = network(), torch.Generator().manual_seed(0)
    X, y = torch.randn(2, 12, 4, generator=random), torch.randn(2, 12, generator=random)
    points, dims = torch.randperm(12, generator=random), torch.randperm(4, generator=random)
    with torch.no_grad():
        log_v, w = net(X, y)
        assert_close(net(X[:, points], y[:, points]), (log_v, w), rtol=1e-4, atol=1e-4)
        assert_close(net(X[:, :, dims], y), (log_v[:, dims], w[:, dims]), rtol=1e-4, atol=1e-4)
    assert_close(w.sum(-1), torch.ones(2, 4))
    assert (log_v.abs() <= 10).all()


def test_ahgp_loss_is_the_likelihood_of_the_kernel_it_sets() -> None:
    net, random = network(), torch.Generator().manual_seed(0)
    X, y = ahgp.simulate(2, 10, 3, random)
    log_v, w = net(X, y)
    for i in range(2):
        kernel = ahgp.MixtureProduct(log_v[i].detach(), w[i].detach())
        K = covariance_matrix(kernel, kernel.features(X[i].double()))
        expected = -log_marginal_likelihood(K, y[i].double()) / 10
        assert float(ahgp.loss(net, X, y)[i].detach()) == pytest.approx(expected.item(), rel=1e-4)


TINY: dict[str, Any] = {
    "settings": ahgp.Training(entries=200, warm_up=2, save_seconds=0),  # a state after every step
    "config": ahgp.NetworkConfig(width=8, heads=2, blocks=1),
}


def weights(path: Path) -> list[torch.Tensor]:
    return list(ahgp.load.__wrapped__(str(path)).parameters())


def test_ahgp_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def stop(now: Progress) -> None:
        if now.step == 2:
            raise KeyboardInterrupt

    whole = ahgp.train(tmp_path / "whole", **TINY, steps=3)
    with pytest.raises(KeyboardInterrupt):
        ahgp.train(tmp_path / "parts", **TINY, steps=3, progress=stop)
    with pytest.raises(InvalidInputError, match=r"holds a training run.*--resume"):
        ahgp.train(tmp_path / "parts", **TINY, steps=3)
    parts = ahgp.train(tmp_path / "parts", **TINY, resume=True, seed=7)
    assert all(map(torch.equal, weights(whole), weights(parts)))
    events = [event["event"] for event in RunFolder(tmp_path / "parts").events()]
    assert events == ["start", "resume", "eval", "end"]
    facts = ahgp.read_facts(str(parts))
    assert (facts["steps"], facts["parameters"]) == (3, sum(p.numel() for p in weights(parts)))
    assert facts["loss"] > 0
    method("ahgp", checkpoint=str(parts)).fit(table(20, 0), 0)


def test_ahgp_states_without_version_or_budget_are_read(tmp_path: Path) -> None:
    ahgp.train(tmp_path, **TINY, steps=1)
    state = RunFolder(tmp_path).load_state()
    torch.save({key: state[key] for key in state if key not in ("version", "torch", "budget")}, tmp_path / "state.pt")
    with pytest.raises(InvalidInputError, match="give hours or steps"):
        ahgp.train(tmp_path, **TINY, resume=True)
    assert ahgp.read_facts(str(ahgp.train(tmp_path, **TINY, resume=True, steps=2)))["steps"] == 2


def test_ahgp_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kitt(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    monkeypatch.setattr(ahgp, "NetworkConfig", lambda **_: TINY["config"])
    monkeypatch.setattr(ahgp, "Training", lambda: TINY["settings"])
    train = ["train", "--out", str(tmp_path)]
    assert "ahgp" in kitt("train", "--help")
    assert "1 steps" in kitt(*train, "--preset", "ahgp", "--steps", "1")
    assert "2 steps" in kitt(*train, "--resume", "--steps", "2")
    with pytest.raises(InvalidInputError, match="of the preset ahgp"):
        kitt(*train, "--resume", "--preset", "smoke", "--steps", "2")
    checkpoint = tmp_path / "ahgp.safetensors"
    assert ahgp.read_facts(str(checkpoint))["steps"] == 2


def test_a_bundled_ahgp_network_is_whole_and_small() -> None:
    if not ahgp.BUNDLED.exists():
        pytest.skip("none is bundled")
    assert ahgp.BUNDLED.stat().st_size < 8e6
    method("ahgp").fit(table(20, 0), 0)


def test_ahgp_checkpoints_are_checked(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="kitt train --preset ahgp"):
        method("ahgp", checkpoint=str(tmp_path / "none")).fit(table(20, 0), 0)
    (tmp_path / "bad").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="damaged"):
        method("ahgp", checkpoint=str(tmp_path / "bad")).fit(table(20, 0), 0)
