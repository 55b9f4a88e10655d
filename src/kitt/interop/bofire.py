"""KITT in BoFire: a data model and its surrogate, registered with BoFire's mapper. BoFire must be installed.

specs = BotorchSurrogates(surrogates=[KITTSurrogate(inputs=domain.inputs, outputs=domain.outputs)])
strategy = strategies.map(SoboStrategy(domain=domain, surrogate_specs=specs))
"""

from __future__ import annotations

from typing import Any, Literal

from kitt.errors import MissingExtraError
from kitt.interop.botorch import KITTModel

try:
    from bofire.data_models.features.api import ContinuousOutput
    from bofire.data_models.surrogates.scaler import ScalerEnum
    from bofire.data_models.surrogates.trainable_botorch import TrainableBotorchSurrogate as DataModel
    from bofire.surrogates.botorch import TrainableBotorchSurrogate
    from bofire.surrogates.mapper import register
    from pydantic import field_validator
except ImportError as error:
    raise MissingExtraError("bofire[optimization]", None, "a surrogate for BoFire") from error


class KITTSurrogate(DataModel):
    """What to fit: the kernels of each output are chosen by KITT, which also tries transforms of the output itself."""

    type: Literal["KITTSurrogate"] = "KITTSurrogate"
    output_scaler: ScalerEnum = ScalerEnum.IDENTITY
    random_state: int = 0

    @field_validator("output_scaler")
    @classmethod
    def _not_scaled(cls, scaler: Any) -> Any:
        if scaler != ScalerEnum.IDENTITY:
            raise ValueError(
                "expected no output scaler, because KITT scales and transforms outputs itself: leave it out"
            )
        return scaler

    @classmethod
    def is_output_implemented(cls, my_type: Any) -> bool:
        """Whether outputs of a type can be modelled: numbers can."""
        return isinstance(my_type, type(ContinuousOutput))


@register(KITTSurrogate)
class KITTBotorchSurrogate(TrainableBotorchSurrogate):
    """The surrogate of the data model."""

    model: KITTModel | None = None
    training_specs: dict[str, Any] = {}  # noqa: RUF012 (as in BoFire's own surrogates)

    def __init__(self, data_model: KITTSurrogate, **kwargs: Any) -> None:
        self.random_state = data_model.random_state
        super().__init__(data_model=data_model, **kwargs)

    def _fit_botorch(self, tX: Any, tY: Any, input_transform: Any = None, *scalers: Any, **kwargs: Any) -> None:
        self.model = KITTModel(tX, tY, input_transform=input_transform, random_state=self.random_state).fit().eval()
