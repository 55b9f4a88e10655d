"""Why a fitted model predicts what it predicts: `decompose` takes it apart, `facts` holds the parts, `prose` tells them."""

from kitt.explain.decompose import explain
from kitt.explain.facts import ACTIVE, Comparison, Effect, Explanation, Noise, Part

__all__ = ["ACTIVE", "Comparison", "Effect", "Explanation", "Noise", "Part", "explain"]
