"""Pictures on their way to the device: read as uint8, held there if they fit, turned into views in one call a batch."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from safecl.streams.images import Pictures, Transform
from safecl.streams.loader import batches

READ_CPU, READ_DEVICE = 64, 256  # pictures in one pass without gradients; a stop is heard between two of them
HELD_CPU, HELD_DEVICE = 1 << 30, 8 << 30  # bytes of uint8 pictures kept for the length of a phase, at most


class DeviceLoader:
    """The two views of one collection of pictures on one device."""

    def __init__(self, pictures: Pictures, transform: Transform, device: torch.device) -> None:
        self.pictures, self.transform, self.device = pictures, transform, device
        self._canvases: tuple[Tensor, Tensor] | None = None
        self._holds = len(pictures) * 3 * transform.resize**2 <= _limit(device)

    def canvases(self, chunks: Sequence[Sequence[int]]) -> Iterator[tuple[Tensor, Tensor]]:
        """The whole pictures of each chunk as squares on the device, and their aspects (on the CPU).

        The chunks have one length, but for a shorter last one. Pictures that are not held are read ahead.
        """
        if not chunks:
            return
        if self._holds:
            canvases, aspects = self._held()
            for chunk in chunks:
                chosen = torch.as_tensor(chunk)
                yield canvases[moved(chosen, self.device)], aspects[chosen]
            return
        order = [int(i) for chunk in chunks for i in chunk]
        for batch in batches(self.pictures, order, len(chunks[0]), "canvas", self.transform):
            assert batch.aspects is not None
            yield self._move(batch.pictures), batch.aspects

    def plain(self, indices: Sequence[int], size: int | None = None) -> Iterator[Tensor]:
        """The plain views at ``indices``, ``size`` at a time: float (n, 3, size, size) in [0, 1]; read ahead."""
        for batch in batches(self.pictures, indices, size or reads(self.device), "plain", self.transform):
            yield self._move(batch.pictures).float() / 255

    def _held(self) -> tuple[Tensor, Tensor]:
        if self._canvases is None:
            every = batches(self.pictures, range(len(self.pictures)), READ_DEVICE, "canvas", self.transform)
            read = [(batch.pictures, batch.aspects) for batch in every]
            aspects = torch.cat([aspects for _, aspects in read if aspects is not None])
            self._canvases = torch.cat([canvas for canvas, _ in read]).to(self.device), aspects
        return self._canvases

    def _move(self, pictures: Tensor) -> Tensor:
        # Only from pinned memory does a copy run beside what the device is doing.
        ready = pictures.pin_memory() if self.device.type == "cuda" else pictures
        return moved(ready, self.device)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device. CUDA takes a copy of what it is handed before it goes on alone; others may not."""
    return tensor.to(device, non_blocking=device.type == "cuda")


def reads(device: torch.device) -> int:
    """How many pictures go through a network at a time where nothing is trained."""
    return READ_CPU if device.type == "cpu" else READ_DEVICE


def _limit(device: torch.device) -> int:
    """Bytes of pictures to hold: never more than a quarter of what the device has left."""
    if device.type == "cuda":
        return min(HELD_DEVICE, torch.cuda.mem_get_info(device)[0] // 4)
    return HELD_CPU if device.type == "cpu" else HELD_DEVICE
