"""A symmetric matrix in half the room: a rectangle of its lower rows, with its upper left corner in what they leave."""

import torch
from torch import Tensor


def symmetric(matrix: Tensor) -> bool:
    """Whether it is worth packing: square, and equal to its mirror image to the bit."""
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 1
    return square and matrix.is_floating_point() and torch.equal(matrix, matrix.mT)


@torch.no_grad()
def pack(matrix: Tensor) -> Tensor:
    """(M, M) → (⌈M/2⌉, M or M + 1): M (M + 1) / 2 numbers."""
    size, half = len(matrix), len(matrix) // 2
    packed = matrix.new_zeros(size - half, 2 * half + 1)
    packed[:, :size] = matrix[half:]
    packed.tril_(half)
    packed[:half, half + 1 :] += matrix[:half, :half].triu()
    return packed


@torch.no_grad()
def unpack(packed: Tensor, size: int) -> Tensor:
    """The matrix (M, M) that was packed."""
    half = size // 2
    matrix = packed.new_empty(size, size)
    corner, rest = packed[:half, half + 1 :].triu(), packed[:, :size].tril(half)
    matrix[half:], matrix[:half, half:] = rest, rest[:, :half].T
    matrix[half:, half:] += rest[:, half:].tril(-1).T
    matrix[:half, :half] = corner + corner.triu(1).T
    return matrix
