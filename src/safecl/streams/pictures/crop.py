"""Random resized crops and flips of a batch of canvases, in a few calls on whatever device they are
on.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.streams.pictures.images import Transform

CPU_CHUNK = 1 << 21  # numbers that a CPU works on at a time: more do not fit its caches


def random_crops(shapes: Tensor, transform: Transform, generator: torch.Generator) -> Tensor:
    """Crops of pictures with these shapes (n, 3): half-extent and centre along x and y of the
    canvas, (n, 2, 2).

    Their distribution is that of torchvision's RandomResizedCrop and RandomHorizontalFlip on the
    pictures themselves. Coordinates are -1 and 1 at the edges of the canvas; a negative half-extent
    mirrors. ``generator`` is on the CPU, so that a seed gives the same crops on every device.
    """
    shapes = shapes.cpu()
    left, top, width, height = random_boxes(shapes[:, 0], transform, generator).unbind(1)
    flipped = torch.rand(len(shapes), generator=generator) < transform.flip
    across = torch.stack([torch.where(flipped, -width, width), 2 * left + width], dim=1)
    down = torch.stack([height, 2 * top + height], dim=1)
    return torch.stack([across, down], dim=1) * shapes[:, 1:, None] - torch.tensor([0.0, 1.0])


def cut_out(canvas: Tensor, crops: Tensor, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The crops (n, 2, 2) of canvases, uint8 (n, 3, side, side), on their device: float (n, 3,
    size, size) in [0, 1].

    The antialiased bilinear resizing of torchvision and Pillow, one axis after the other.
    ``dtype``: of the products on a GPU; float16 is exact to half a level of uint8. A CUDA graph can
    record it: nothing waits for the device.
    """
    if canvas.device.type != "cpu":
        return cut_out_dense(canvas, crops, size, dtype)
    few = max(1, CPU_CHUNK // math.prod(canvas.shape[1:]))
    pieces = zip(torch.split(canvas, few), torch.split(crops, few), strict=True)
    return torch.cat([cut_out_sparse(some, theirs, size) for some, theirs in pieces])


def cut_out_dense(
    canvas: Tensor, crops: Tensor, size: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """``cut_out`` by two matrix products per picture: A_y · canvas · A_xᵀ."""
    n, channels, side, _ = canvas.shape
    inputs = torch.arange(side, device=canvas.device)
    down, across = (triangle(crops[:, axis], size, side, inputs).to(dtype) for axis in (1, 0))
    rows = (
        canvas.permute(0, 2, 1, 3)
        .to(dtype, memory_format=torch.contiguous_format)
        .view(n, side, channels * side)
    )
    lines = torch.bmm(down, rows).view(n, size * channels, side)
    cut = torch.bmm(lines, across.mT).view(n, size, channels, size)
    return (
        cut.permute(0, 2, 1, 3).to(torch.float32, memory_format=torch.contiguous_format).div_(255)
    )


def cut_out_sparse(canvas: Tensor, crops: Tensor, size: int) -> Tensor:
    """``cut_out`` from the few input pixels that each output pixel depends on: a third of the time
    on a CPU.
    """
    n, channels, side, _ = canvas.shape
    rows = canvas.permute(0, 2, 1, 3).to(torch.float32, memory_format=torch.contiguous_format)
    lines = resize_sparse(rows.view(n, side, channels * side), crops[:, 1], size).view(
        n, size, channels, side
    )
    columns = lines.permute(0, 3, 1, 2).reshape(n, side, size * channels)
    cut = resize_sparse(columns, crops[:, 0], size).view(n, size, size, channels)
    return cut.permute(0, 3, 2, 1).contiguous().div_(255)


def resize_sparse(lines: Tensor, crops: Tensor, size: int) -> Tensor:
    """Crops (n, 2) of ``lines`` (n, side, m) along their first axis: (n, size, m)."""
    n, side, _ = lines.shape
    count = math.ceil(2 * max(side / size, 1)) + 1
    extent, centre = in_pixels(crops, side)
    reach = (extent.abs() * 2 / size).clamp(min=1)
    first = (centre + extent * middles(size, crops.device) - reach).floor()
    inputs = first[:, :, None] + torch.arange(count, device=lines.device)
    weights = triangle(crops, size, side, inputs)
    places = (
        inputs.clamp(0, side - 1).long()
        + (torch.arange(n, device=lines.device) * side)[:, None, None]
    )
    chosen = places.view(n * size, count)
    table = lines.reshape(n * side, -1)
    found = F.embedding_bag(
        chosen, table, mode="sum", per_sample_weights=weights.view(n * size, count)
    )
    return found.view(n, size, -1)


def triangle(crops: Tensor, size: int, side: int, inputs: Tensor) -> Tensor:
    """Weights of pixels ``inputs``, (k,) or (n, size, k), of lines of ``side`` for those of crops
    (n, 2): (n, size, k).

    A triangle around the middle of each output pixel, two of them wide but two input pixels at
    least; summing to 1.
    """
    extent, centre = (value[:, :, None] for value in in_pixels(crops, side))
    half = extent.abs()
    positions = inputs + 0.5
    distance = (centre + extent * middles(size, crops.device)[:, None] - positions).abs_()
    weights = distance.div_(-(half * 2 / size).clamp(min=1)).add_(1).relu_()
    # A pixel that the crop touches by rounding alone lies outside.
    weights = weights * ((positions - centre).abs() < half + 0.5 - (half / 2).clamp(max=1e-3))
    return weights.div_(weights.sum(dim=2, keepdim=True))


def in_pixels(crops: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Half-extent and centre of crops (n, 2) in pixels from the edge of a canvas: (n, 1) each."""
    return crops[:, :1] * (side / 2), (crops[:, 1:] + 1) * (side / 2)


def middles(size: int, device: torch.device) -> Tensor:
    """The middles of ``size`` pixels between -1 and 1: (size,)."""
    return (torch.arange(size, device=device) * 2 + 1) / size - 1


def random_boxes(
    aspects: Tensor, transform: Transform, generator: torch.Generator, tries: int = 10
) -> Tensor:
    """Crop boxes (left, top, width, height) as fractions of the picture: (n, 4).

    The first of ``tries`` draws that fits; if none does, the largest central box of an allowed
    aspect.
    """
    n = len(aspects)
    low, high = transform.scale
    area = torch.rand(n, tries, generator=generator) * (high - low) + low
    log_ratio = torch.tensor(transform.ratio).log()
    ratio = (
        torch.rand(n, tries, generator=generator) * (log_ratio[1] - log_ratio[0]) + log_ratio[0]
    ).exp()
    # In units where the picture is (aspect × 1): w·h = area·aspect and w/h = ratio; fractions of
    # the sides follow.
    relative = ratio / aspects[:, None].cpu()
    width = (area * relative).sqrt()
    height = (area / relative).sqrt()
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
