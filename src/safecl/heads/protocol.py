"""What every module of a method that has state of its own can do: drop a class, and merge with another model's."""

from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor, nn

from safecl.errors import SafeclError

SECOND_SHARE = 0.5  # of the second model's tuning in networks that both went on tuning; see benchmarks/merging.py


@runtime_checkable
class Editable(Protocol):
    """A module that answers for its own state, and for that of modules inside it that are not editable themselves."""

    by_difference: ClassVar[tuple[str, ...]]  # names of the state that ``merge`` reads from ``before``

    def drop_class(self, index: int) -> None:
        """Remove a class; those after it move up by one."""

    def merge(self, now: Any, before: Any, index: Tensor) -> None:
        """Take over what ``now`` has learned since it was ``before``; its class i is class ``index[i]`` here."""


class Trained:
    """State that only training makes: two cannot become one. It holds nothing of a single class, unless overridden."""

    by_difference: ClassVar[tuple[str, ...]] = ()

    def drop_class(self, index: int) -> None:
        """Nothing to remove."""

    def merge(self, now: Any, before: Any, index: Tensor) -> None:
        raise SafeclError(f"The models cannot be merged: a {type(self).__name__} is trained, and two do not add up.")


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
            raise SafeclError(
                f"{type(method).__name__} can neither forget a class nor be merged: nothing says what happens to "
                f"{', '.join(own)} then; give {type(module).__name__} the methods drop_class and merge."
            )
    return found
