"""What a network is made of: the layers that it calls, and its residual blocks, seen from one
picture without values that goes through it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from safecl.backbone.families.family import shared_copy, without_values

ADDITIONS: frozenset[Callable[..., Any]] = frozenset(
    {
        torch.add,
        torch.Tensor.add,
        torch.Tensor.add_,
        torch.Tensor.__add__,
        torch.Tensor.__radd__,
        torch.Tensor.__iadd__,
    }
)


@dataclass(frozen=True)
class Place:
    """``width`` channels along the ``axis`` of what a module gives."""

    axis: int
    width: int


@dataclass
class Survey:
    """By name and in the order of the forward pass: linear, convolution and norm layers, and the
    innermost modules that add to what they are given.
    """

    layers: dict[str, Place] = field(default_factory=dict)
    blocks: dict[str, Place] = field(default_factory=dict)

    def inside(self, block: str) -> list[str]:
        """The layers of a block that no other block inside it has."""
        others = [name for name in self.blocks if name.startswith(f"{block}.")]
        return [
            name
            for name in self.layers
            if name.startswith(f"{block}.")
            and not any(name.startswith(f"{other}.") for other in others)
        ]


_surveys: WeakKeyDictionary[nn.Module, Survey] = WeakKeyDictionary()


def survey(network: nn.Module, size: int) -> Survey:
    """Of a network for pictures of side ``size``, as ``with_own_bias`` has it."""
    found = _surveys.get(network)
    if found is None:
        found = without_values(with_own_bias(shared_copy(network)), size, _ask)
        _surveys[network] = found
    return found


def with_own_bias(network: Any) -> Any:
    """The same, where the bias of a projection that its attention keeps (Eva, BEiT, Swin 2) is the
    layer's own: so it is called like any other layer.
    """
    for module in network.modules():
        parts = [getattr(module, name, None) for name in ("q_bias", "k_bias", "v_bias")]
        qkv = getattr(module, "qkv", None)
        if parts[0] is not None and isinstance(qkv, nn.Linear):
            joined = torch.cat([part.detach() for part in parts if part is not None])
            qkv.bias = nn.Parameter(joined, requires_grad=parts[0].requires_grad)
            module.q_bias = module.k_bias = module.v_bias = None
    return network


def _ask(network: Any, picture: Tensor) -> Survey:
    watch = _Watch(network)
    with watch:
        network.forward_head(network.forward_features(picture), pre_logits=True)
    watch.end()
    return watch.found


class _Watch(TorchFunctionMode):
    """Watches one forward pass: which modules are at work, on what, and what is added."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.found = Survey()
        self._names = {module: name for name, module in network.named_modules()}
        self._working: list[tuple[nn.Module, Tensor]] = []
        self._first: dict[nn.Module, tuple[int, int]] = {}  # what its first layer reads
        self._adding: set[nn.Module] = set()
        self._hooks = []
        for module in self._names:
            self._hooks.append(module.register_forward_pre_hook(self._before))
            self._hooks.append(module.register_forward_hook(self._after))

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        options: dict[str, Any] | None = None,
    ) -> Any:
        if function in ADDITIONS:
            for module, given in reversed(self._working):
                if any(each is given for each in args):
                    self._adding.add(module)
                    break
        return function(*args, **(options or {}))

    def _before(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        first = given[0] if given and isinstance(given[0], Tensor) else torch.empty(0)
        self._working.append((module, first))
        read = _reads(module)
        if read is not None:
            for other, _ in self._working:
                self._first.setdefault(other, read)

    def _after(self, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        _, first = self._working.pop()
        name = self._names[module]
        if not isinstance(output, Tensor):
            return
        axis = _axis(module)
        if axis is not None and any(_axis(other) is not None for other, _ in self._working):
            return  # a layer inside a layer
        width = _width(module)
        if axis is not None and output.ndim > 1 and output.shape[axis] == width:
            self.found.layers[name] = Place(axis, width)
        if module in self._adding and output.shape == first.shape and module in self._first:
            guess, width = self._first[module]
            axes = [each for each in (guess, -1, 1) if first.shape[each] == width]
            axis = axes[0] if axes else guess  # it may be given a part of the channels
            self.found.blocks[name] = Place(axis, first.shape[axis])


def _axis(module: nn.Module) -> int | None:
    """Along which its channels lie, of a layer."""
    if isinstance(module, nn.Linear):
        return -1
    if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.GroupNorm):
        return 1
    kind = type(module).__name__
    weight = getattr(module, "weight", None)
    if "Norm" not in kind or not isinstance(weight, Tensor) or weight.ndim != 1:
        return None
    return 1 if "2d" in kind else -1


def _width(module: Any) -> int:
    """Channels that a layer gives."""
    if isinstance(module, nn.Linear):
        return module.out_features
    if isinstance(module, nn.Conv2d):
        return module.out_channels
    return len(module.weight) if _axis(module) is not None else 0


def _reads(module: Any) -> tuple[int, int] | None:
    """The axis of the channels that a layer is given, and how many they are."""
    axis = _axis(module)
    if axis is None:
        return None
    if isinstance(module, nn.Linear):
        return axis, module.in_features
    if isinstance(module, nn.Conv2d):
        return axis, module.in_channels
    return axis, len(module.weight)
