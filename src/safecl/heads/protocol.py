"""What every module of a method that has state of its own can do: drop a class, join two, correct labels, merge."""

from typing import Any, ClassVar

from torch import Tensor, nn

from safecl.errors import NotCorrectable, SafeclError
from safecl.heads.tensors import put, take_shapes, without

SECOND_SHARE = 0.5  # of the second model's tuning in networks that both went on tuning; see benchmarks/merging.py


class Editable:
    """A module that answers for its own state, and for that of modules inside it that are not editable themselves.

    As it is: for state that is the same for every class, such as a tuning, or that follows from other state.
    """

    by_difference: ClassVar[tuple[str, ...]] = ()  # names of the state that ``merge`` reads from ``before``

    def drop_class(self, index: int) -> None:
        """Remove a class; those after it move up by one."""

    def join(self, one: int, other: int) -> None:
        """The pictures of class ``other`` become those of class ``one``; ``other`` is left with none."""

    def correct(self, features: Tensor | None, old: Tensor, new: Tensor) -> None:
        """Pictures with ``features`` (n, d) that were learned as classes ``old`` (n,) are ``new``; −1: not learned.

        ``features``: those that were learned, of the network that the module belongs to; None if that is no more.
        """

    def merge(self, now: Any, before: Any, index: Tensor) -> None:
        """Take over what ``now`` has learned since it was ``before``; its class i is class ``index[i]`` here."""


class PerClass(Editable, nn.Module):
    """State with a row per class in some tensors; how many classes there are is part of the state."""

    rows: ClassVar[tuple[str, ...]]  # the names of these tensors
    dim: ClassVar[int] = 0  # of the classes in them

    def drop_class(self, index: int) -> None:
        for name in self.rows:
            put(self, name, without(getattr(self, name), index, self.dim))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        take_shapes(self, state_dict, prefix, self.rows)
        super()._load_from_state_dict(state_dict, prefix, *args)


class Trained(Editable):
    """State that only training makes, from labels: it cannot be corrected, and two cannot become one."""

    def join(self, one: int, other: int) -> None:
        raise refusal(self)

    def correct(self, features: Tensor | None, old: Tensor, new: Tensor) -> None:
        raise refusal(self)

    def merge(self, now: Any, before: Any, index: Tensor) -> None:
        raise SafeclError(f"The models cannot be merged: a {type(self).__name__} is trained, and two do not add up.")


def refusal(part: object) -> NotCorrectable:
    """The sentence on a module that is not made of sums over pictures."""
    return NotCorrectable(
        f"The labels of this model cannot be corrected: its {type(part).__name__} is trained on them, and not a sum "
        "over pictures from which one could be taken out; roll the session back (safecl rollback), or forget the class "
        "and teach it again."
    )


def editable_parts(method: nn.Module, handled: tuple[str, ...] = ()) -> dict[str, Editable]:
    """The editable modules of a method by name; state that neither they nor ``handled`` answer for is refused."""
    found: dict[str, Editable] = {}
    for name, module in method.named_modules():
        if module is not method and isinstance(module, Editable):
            found[name] = module
            continue
        kept = [*module._parameters, *(module._buffers.keys() - module._non_persistent_buffers_set)]
        own = [f"{name}.{key}" if name else key for key in kept if name or key not in handled]
        if own and not any(name.startswith(f"{part}.") for part in found):
            raise NotCorrectable(
                f"{type(method).__name__} can neither forget a class nor be merged: nothing says what happens to "
                f"{', '.join(own)} then; give {type(module).__name__} the methods of heads/protocol.py."
            )
    return found
