"""What is kept in fewer bytes: symmetric matrices as M (M + 1) / 2 numbers, rows of features as int8.

A packed matrix has its lower rows, and its upper left corner in the place they leave.
"""

import torch
from torch import Tensor


def symmetric(matrix: Tensor) -> bool:
    """Whether packing saves anything: one square matrix, equal to its transpose to the bit."""
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 1
    return square and matrix.is_floating_point() and torch.equal(matrix, matrix.mT)


@torch.no_grad()
def pack(matrix: Tensor) -> Tensor:
    """Symmetric (…, M, M) → (…, ⌈M/2⌉, M or M + 1)."""
    size = matrix.shape[-1]
    half = size // 2
    packed = matrix.new_zeros(*matrix.shape[:-2], size - half, 2 * half + 1)
    packed[..., :size] = matrix[..., half:, :]
    packed.tril_(half)
    packed[..., :half, half + 1 :] += matrix[..., :half, :half].triu()
    return packed


@torch.no_grad()
def unpack(packed: Tensor, size: int) -> Tensor:
    """What was packed: (…, M, M)."""
    half = size // 2
    matrix = packed.new_empty(*packed.shape[:-2], size, size)
    corner, rest = packed[..., :half, half + 1 :].triu(), packed[..., :size].tril(half)
    matrix[..., half:, :], matrix[..., :half, half:] = rest, rest[..., :half].mT
    matrix[..., half:, half:] += rest[..., half:].tril(-1).mT
    matrix[..., :half, :half] = corner + corner.triu(1).mT
    return matrix


@torch.no_grad()
def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (N, d) as int8 (N, d), and the scales (N, 1) that they are multiplied by."""
    scales = rows.float().abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
    return (rows.float() / scales).round().to(torch.int8), scales
