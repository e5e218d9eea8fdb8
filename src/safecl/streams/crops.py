"""Random resized crops and flips of a batch of canvases, in a few calls on whatever device they are on."""

import torch
from torch import Tensor

from safecl.streams.images import Transform


def augment(canvas: Tensor, shapes: Tensor, transform: Transform, generator: torch.Generator) -> Tensor:
    """A random crop of each picture, resized and perhaps mirrored: float (n, 3, size, size) in [0, 1].

    ``canvas`` and ``shapes``: see ``Pictures.canvas``. The distribution is that of torchvision's RandomResizedCrop
    and RandomHorizontalFlip on the pictures themselves.
    """
    return cut_out(canvas, random_crops(shapes, transform, generator).to(canvas.device), transform.size)


def random_crops(shapes: Tensor, transform: Transform, generator: torch.Generator) -> Tensor:
    """Crops of pictures with these shapes (n, 3): half-extent and centre along x and y of the canvas, (n, 2, 2).

    Coordinates are -1 and 1 at the edges of the canvas; a negative half-extent mirrors. ``generator`` is on the CPU,
    so that a seed gives the same crops on every device.
    """
    shapes = shapes.cpu()
    left, top, width, height = random_boxes(shapes[:, 0], transform, generator).unbind(1)
    flipped = torch.rand(len(shapes), generator=generator) < transform.flip
    across = torch.stack([torch.where(flipped, -width, width), 2 * left + width], dim=1)
    down = torch.stack([height, 2 * top + height], dim=1)
    return torch.stack([across, down], dim=1) * shapes[:, 1:, None] - torch.tensor([0.0, 1.0])


def cut_out(canvas: Tensor, crops: Tensor, size: int) -> Tensor:
    """The crops (n, 2, 2) of canvases, uint8 (n, 3, side, side), on their device: float (n, 3, size, size) in [0, 1].

    The antialiased bilinear resizing of torchvision and Pillow, as two matrix products a picture. Shapes depend on
    nothing but shapes and nothing waits for the device, so a CUDA graph can record it.
    """
    n, channels, side, _ = canvas.shape
    across, down = (resampling(crops[:, axis], size, side) for axis in (0, 1))
    rows = canvas.permute(0, 2, 1, 3).to(torch.float32, memory_format=torch.contiguous_format)
    lines = torch.bmm(down.div_(255), rows.reshape(n, side, channels * side)).view(n, size * channels, side)
    return torch.bmm(lines, across.transpose(1, 2)).view(n, size, channels, size).permute(0, 2, 1, 3).contiguous()


def resampling(crops: Tensor, size: int, side: int) -> Tensor:
    """Weights of the ``side`` pixels of a line for the ``size`` pixels of the crops (n, 2) of it: (n, size, side).

    A triangle around the centre of each output pixel, as wide as two of them but never narrower than two input
    pixels; cut off at the edge of the crop, and summing to 1.
    """
    extent, centre = crops[:, :1] * (side / 2), (crops[:, 1:] + 1) * (side / 2)  # (n, 1) each, in pixels
    outputs = (torch.arange(size, device=crops.device) * 2 + 1) / size - 1
    inputs = torch.arange(side, device=crops.device) + 0.5
    half = extent.abs()
    # Pixels outside of the crop are infinitely far away; one that it touches by rounding alone lies outside.
    within = (inputs - centre).abs() < half + 0.5 - (half / 2).clamp(max=1e-3)
    width = (half * 2 / size).clamp(min=1)
    near, far = (centre + extent * outputs) / width, torch.where(within, inputs / width, torch.inf)
    weights = (near[:, :, None] - far[:, None, :]).abs_().neg_().add_(1).relu_()
    return weights.div_(weights.sum(dim=2, keepdim=True))


def random_boxes(aspects: Tensor, transform: Transform, generator: torch.Generator, tries: int = 10) -> Tensor:
    """Crop boxes (left, top, width, height) as fractions of the picture: (n, 4).

    The first of ``tries`` draws that fits; if none does, the largest central box of an allowed aspect.
    """
    n = len(aspects)
    low, high = transform.scale
    area = torch.rand(n, tries, generator=generator) * (high - low) + low
    log_ratio = torch.tensor(transform.ratio).log()
    ratio = (torch.rand(n, tries, generator=generator) * (log_ratio[1] - log_ratio[0]) + log_ratio[0]).exp()
    # In units where the picture is (aspect × 1): w·h = area·aspect and w/h = ratio; fractions of the sides follow.
    relative = ratio / aspects[:, None].cpu()
    width, height = (area * relative).sqrt(), (area / relative).sqrt()
    fits = (width <= 1) & (height <= 1)
    first = fits.float().argmax(dim=1, keepdim=True)
    found = fits.any(dim=1)
    closest = aspects.cpu().clamp(*transform.ratio) / aspects.cpu()
    width = torch.where(found, width.gather(1, first)[:, 0], closest.clamp(max=1))
    height = torch.where(found, height.gather(1, first)[:, 0], (1 / closest).clamp(max=1))
    corner = torch.rand(n, 2, generator=generator)
    left = torch.where(found, corner[:, 0], torch.tensor(0.5)) * (1 - width)
    top = torch.where(found, corner[:, 1], torch.tensor(0.5)) * (1 - height)
    return torch.stack([left, top, width, height], dim=1)
