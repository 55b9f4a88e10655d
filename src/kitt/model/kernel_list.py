"""The kernels of a model, which print as a table of weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kitt.kernels.fitted_kernel import FittedKernel
from kitt.kernels.grammar import Expression
from kitt.model.stored import KernelEntry


class KernelList(tuple[FittedKernel, ...]):
    """The fitted kernels of a model, in the order of its entries; as text a table, the largest weight first."""

    names: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, entries: Sequence[KernelEntry], weights: Iterable[float]) -> KernelList:
        made = cls(entry.kernel for entry in entries)
        made.names = tuple(kernel_name(e.kernel.expression, e.is_plain, not e.warp.is_identity) for e in entries)
        made.weights = tuple(weights)
        return made

    def __str__(self) -> str:
        rows = sorted(zip(self.weights, self.names, self, strict=True), key=lambda row: -row[0])
        width = max(len(name) for name in ("kernel", *self.names))
        lines = [f"weight  {'kernel':{width}}  parameters"]
        return "\n".join([*lines, *(f"{w:6.1%}  {name:{width}}  {kernel.kernel.size:10}" for w, name, kernel in rows)])

    __repr__ = __str__


def kernel_name(expression: Expression, is_plain: bool, is_transformed: bool) -> str:
    """What distinguishes a fitted kernel from others with the same words."""
    return f"{expression}{' (plain)' * is_plain}{' of the transformed target' * is_transformed}"
