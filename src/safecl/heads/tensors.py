"""Tensors of the heads: with one row (or column) per class, packed into fewer bytes, and in
float64.

A packed symmetric matrix has its lower rows, and its upper left corner in the place they leave: M
(M + 1) / 2 numbers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from safecl.errors import SafeclError


def precise(tensor: Tensor) -> Tensor:
    """A float64 tensor, on the CPU where the device has no such type."""
    return tensor.cpu().double() if tensor.device.type == "mps" else tensor.double()


def check_finite(values: Tensor) -> None:
    """Raise where any of the values is not finite."""
    if not torch.isfinite(values).all():
        raise SafeclError("features.not-finite")


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that holds NaN or infinity, if any does."""
    for name, tensor in tensors.items():
        if (
            tensor.is_floating_point()
            and tensor.numel()
            and not torch.stack(tensor.aminmax()).isfinite().all()
        ):
            return name
    return None


def take_shapes(
    module: nn.Module, state: Mapping[str, Tensor], prefix: str, names: Iterable[str]
) -> None:
    """Give these tensors of ``module`` the shapes that ``state`` has: how many classes there are is
    part of a state.
    """
    for name in names:
        own = getattr(module, name).data
        shape = state[prefix + name].shape
        if len(shape) != own.ndim:
            raise ValueError(f"{prefix}{name} has {len(shape)} dimensions and not {own.ndim}")
        put(module, name, own.new_zeros(shape))


def put(module: nn.Module, name: str, values: Tensor) -> None:
    """Give a parameter or buffer of ``module`` other values, of any shape."""
    own = getattr(module, name)
    setattr(
        module,
        name,
        nn.Parameter(values, own.requires_grad) if isinstance(own, nn.Parameter) else values,
    )


class GrowingList(nn.ParameterList):
    """Parameters of which a state may bring more than there are."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__(values)
        # Type and device of the parameters to come, which a list without any must know too.
        self.like: Tensor = nn.Buffer(torch.zeros(()), persistent=False)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        while (stored := state_dict.get(f"{prefix}{len(self)}")) is not None:
            self.append(nn.Parameter(self.like.new_zeros(stored.shape)))
        super()._load_from_state_dict(state_dict, prefix, *args)


def without(rows: Tensor, index: int, dim: int = 0) -> Tensor:
    """``rows`` without the class at ``index``; a class that has no row there changes nothing."""
    kept = torch.arange(rows.shape[dim], device=rows.device)
    return rows.index_select(dim, kept[kept != index])


def added(own: Tensor, now: Tensor, before: Tensor, index: Tensor, dim: int = 0) -> Tensor:
    """``own`` plus what ``now`` has more than ``before``; class i of these is class ``index[i]`` of
    ``own``, −1: none.

    ``before`` has the first of the classes of ``now``. ``own`` grows where ``index`` points behind
    its end.
    """
    change = now.clone()
    change.narrow(dim, 0, before.shape[dim]).sub_(before)
    rows = (index[: now.shape[dim]] >= 0).nonzero()[:, 0]
    where = index[rows].to(own.device)
    shape = list(own.shape)
    shape[dim] = max(shape[dim], int(where.max()) + 1 if len(where) else 0)
    grown = own.new_zeros(shape)
    grown.narrow(dim, 0, own.shape[dim]).copy_(own)
    return grown.index_add_(dim, where, change.index_select(dim, rows.to(change.device)).to(own))


def symmetric(matrix: Tensor) -> bool:
    """Whether packing saves anything: one square matrix, equal to its transpose to the bit."""
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 1
    return square and matrix.is_floating_point() and torch.equal(matrix, matrix.mT)


def pack(matrix: Tensor) -> Tensor:
    """Symmetric (…, M, M) → (…, ⌈M/2⌉, M or M + 1)."""
    size = matrix.shape[-1]
    half = size // 2
    packed = matrix.new_zeros(*matrix.shape[:-2], size - half, 2 * half + 1)
    packed[..., :size] = matrix[..., half:, :]
    packed.tril_(half)
    packed[..., :half, half + 1 :] += matrix[..., :half, :half].triu()
    return packed


def unpack(packed: Tensor, size: int) -> Tensor:
    """What was packed: (…, M, M)."""
    half = size // 2
    matrix = packed.new_empty(*packed.shape[:-2], size, size)
    corner = packed[..., :half, half + 1 :].triu()
    rest = packed[..., :size].tril(half)
    matrix[..., half:, :], matrix[..., :half, half:] = rest, rest[..., :half].mT
    matrix[..., half:, half:] += rest[..., half:].tril(-1).mT
    matrix[..., :half, :half] = corner + corner.triu(1).mT
    return matrix


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (N, d) as int8 (N, d), and the scales (N, 1) that they are multiplied by."""
    scales = (
        rows.float().abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        / 127
    )
    return (rows.float() / scales).round().to(torch.int8), scales
