"""A list of parameters that gets a new entry in a session."""

from typing import Any

from torch import Tensor, nn

from safecl.heads.protocol import Trained


class GrowingParameters(Trained, nn.ParameterList):
    """The latest entry alone is trained. A state that is loaded makes room for its own entries."""

    def grow(self, values: Tensor) -> None:
        """Append ``values``, trainable, and freeze those before."""
        for parameter in self:
            parameter.requires_grad_(False)
        self.append(nn.Parameter(values))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        while (stored := state_dict.get(f"{prefix}{len(self)}")) is not None:
            self.grow(stored.new_zeros(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)
