"""The penalty that keeps vectors orthonormal (CODA-Prompt)."""

import torch
from torch import Tensor


def orthogonality(vectors: Tensor) -> Tensor:
    """Mean squared entry of V Vᵀ − I, for rows V (…, M, d); summed over the leading dimensions."""
    gram = vectors @ vectors.transpose(-1, -2)
    eye = torch.eye(gram.shape[-1], device=gram.device)
    return (gram - eye).square().mean(dim=(-1, -2)).sum()
