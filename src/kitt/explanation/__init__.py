"""Explanations of fitted models: `decompose` computes the parts, `facts` holds them, `prose` writes the paragraph."""

from kitt.explanation.decompose import explain
from kitt.explanation.facts import Comparison, Effect, Explanation, Noise, Part

__all__ = ["Comparison", "Effect", "Explanation", "Noise", "Part", "explain"]
