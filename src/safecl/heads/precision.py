"""float64 on every device, and features that are finite."""

import torch
from torch import Tensor

from safecl.errors import SafeclError


def precise(tensor: Tensor) -> Tensor:
    """A float64 tensor, on the CPU where the device has no such type."""
    return tensor.cpu().double() if tensor.device.type == "mps" else tensor.double()


def check_finite(values: Tensor) -> None:
    """Raise where any of the values is not finite."""
    if not torch.isfinite(values).all():
        raise SafeclError("The backbone gave features that are not finite; check its weights, or use fp32.")
