"""What one kernel of a model is a part of, in sentences for whoever is handed that kernel alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kitt.model.document import Model

_WHOLE = 0.995  # of the weight, from which on a kernel is the whole model


def partial_share(model: Model, k: int) -> str:
    """Which share of a model a kernel has; nothing if it is all of it."""
    if model.weights[k] >= _WHOLE:
        return ""
    return (
        f"{model.kernels[k].expression} has {model.weights[k]:.0%} of the weight in a model of {len(model.kernels)} "
        "kernels: its predictions are not those of the whole model, which to_botorch() and the model file hand over"
    )


def export_notes(model: Model, k: int) -> tuple[str, ...]:
    """What stands at the top of an exported kernel."""
    notes = []
    if share := partial_share(model, k):
        notes.append(f"{share}.")
    warp = model.warps[k]
    if not warp.is_identity:
        notes.append(
            f"It was fitted to a transform of the standardised target: z = (T((u - {warp.shift!r}) / {warp.unit!r}) - "
            f"{warp.mean!r}) / {warp.scale!r}, T the {warp.kind} transform of exponent {warp.exponent!r}. Apply it after "
            "standardise_target, and its inverse to what is predicted."
        )
    own = [c for c in model.components if c.model == k]
    if model.tail.weight or any(c.changing_noise or c.spread != 1.0 for c in own):
        notes.append(
            "Its mean is that of this kernel in KITT. Its variance has the kernel's own noise, which is constant but for "
            "the words White and Linear*White; KITT's noise model, spreads and tail, which act on predictive variances, "
            "stay behind."
        )
    return tuple(notes)
