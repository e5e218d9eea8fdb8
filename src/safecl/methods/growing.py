"""Lists of parameters or learners that get a new entry in a session: a state that is loaded makes room for its own."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from safecl.learner import Learner


class GrowingParameters(nn.ParameterList):
    """Parameters of one shape each; the latest alone is trained."""

    def __init__(self) -> None:
        super().__init__()

    def grow(self, values: Tensor) -> None:
        """Append ``values``, trainable, and freeze those before."""
        for parameter in self:
            parameter.requires_grad_(False)
        self.append(nn.Parameter(values))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        while (stored := state_dict.get(f"{prefix}{len(self)}")) is not None:
            self.grow(stored.new_zeros(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


class GrowingLearners(nn.ModuleList):
    """Learners; ``make(i)`` gives the i-th before it is trained."""

    def __init__(self, make: Callable[[int], Learner]) -> None:
        super().__init__()
        self.make = make

    def grow(self) -> Learner:
        """Append a learner, and freeze those before."""
        self.freeze()
        learner = self.make(len(self))
        self.append(learner)
        return learner

    def freeze(self) -> None:
        for learner in self:
            learner.freeze()  # type: ignore[operator]  # all of them are learners

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        while any(key.startswith(f"{prefix}{len(self)}.") for key in state_dict):
            self.grow()
        self.freeze()
        super()._load_from_state_dict(state_dict, prefix, *args)
