"""Bayesian optimisation with BoTorch: `advisor` returns a model at every step, `points` are its tables."""

from kitt.botorch.advisor import AdvisorConfig, KernelAdvisor, Step
from kitt.botorch.default import default_model

__all__ = ["AdvisorConfig", "KernelAdvisor", "Step", "default_model"]
