"""What every module of a method that has state of its own can do: drop a class, join two, correct
labels, merge.
"""

from typing import Any, ClassVar, Literal, TypeAlias

from torch import Tensor, nn

from safecl.errors import NotCorrectable, SafeclError
from safecl.heads.tensors import put, take_shapes, without

# of the second model's tuning in networks that both went on tuning; see benchmarks/merging.py
SECOND_SHARE = 0.5


Kind: TypeAlias = Literal["sum", "evidence", "derived", "trained"]
"""Sums over pictures; what is judged on pictures; what follows from others, or was decided once;
what was trained.
"""
Merge: TypeAlias = Literal["keep", "average", "refuse"]
"""What becomes of something trained: both models must have the same; two become one; neither."""


class Editable:
    """A module that answers for its own state, and for that of modules inside it that are not
    editable themselves.

    As it is: for state that is the same for every class, such as a tuning, or that follows from
    other state.
    """

    by_difference: ClassVar[
        tuple[str, ...]
    ] = ()  # names of the state that ``merge`` reads from ``before``
    kind: Kind = "derived"
    merges: Merge = "keep"

    def drop_class(self, index: int) -> None:
        """Remove a class; those after it move up by one."""

    def clear(self) -> None:
        """No picture was learned: only what is no sum over pictures stays."""

    def join(self, one: int, other: int) -> None:
        """The pictures of class ``other`` become those of class ``one``; ``other`` is left with
        none.
        """

    def correct(self, features: Tensor | None, old: Tensor, new: Tensor) -> None:
        """Pictures with ``features`` (n, d) that were learned as classes ``old`` (n,) are ``new``;
        −1: not learned.

        ``features``: those that were learned, of the network that the module belongs to; None if
        that is no more.
        """

    def merge(self, now: Any, before: Any, index: Tensor) -> None:
        """Take over what ``now`` has learned since it was ``before``; its class i is class
        ``index[i]`` here.
        """


class PerClass(Editable, nn.Module):
    """State with a row per class in some tensors; how many classes there are is part of the
    state.
    """

    rows: ClassVar[tuple[str, ...]]  # the names of these tensors
    dim: ClassVar[int] = 0  # of the classes in them
    shaped: ClassVar[tuple[str, ...]] = ()  # other tensors whose shape is part of the state

    def drop_class(self, index: int) -> None:
        for name in self.rows:
            put(self, name, without(getattr(self, name), index, self.dim))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        take_shapes(self, state_dict, prefix, (*self.rows, *self.shaped))
        super()._load_from_state_dict(state_dict, prefix, *args)


class Trained(Editable):
    """State that only training makes, from labels: it cannot be corrected, and two cannot become
    one.
    """

    kind: Kind = "trained"
    merges: Merge = "refuse"

    def join(self, one: int, other: int) -> None:
        raise refusal(self)

    def correct(self, features: Tensor | None, old: Tensor, new: Tensor) -> None:
        raise refusal(self)

    def merge(self, now: Any, before: Any, index: Tensor) -> None:
        raise SafeclError("merge.trained-part", part=type(self).__name__)


def refusal(part: object) -> NotCorrectable:
    """The sentence on a module that is not made of sums over pictures."""
    return NotCorrectable("correct.trained-part", part=type(part).__name__)


def editable_parts(method: nn.Module) -> dict[str, Editable]:
    """The editable modules of a method by name, and the method itself, of no name, if it is one;
    state that none of them answers for is refused.
    """
    found: dict[str, Editable] = {}
    for name, module in method.named_modules():
        if isinstance(module, Editable):
            found[name] = module
            continue
        kept = [*module._parameters, *(module._buffers.keys() - module._non_persistent_buffers_set)]
        own = [f"{name}.{key}" if name else key for key in kept]
        if own and not any(name.startswith(f"{part}.") for part in found):
            raise NotCorrectable(
                "correct.unknown-part",
                method=type(method).__name__,
                tensors=", ".join(own),
                module=type(module).__name__,
            )
    return found
