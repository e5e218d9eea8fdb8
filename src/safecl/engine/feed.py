"""Pictures on their way to the device: read as uint8, held there if they fit, turned into views in one call a batch."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from safecl.streams.images import Pictures, Transform, augment

READ = 256  # pictures read at a time
HELD_CPU, HELD_DEVICE = 1 << 30, 8 << 30  # bytes of uint8 pictures kept for the length of a phase


class Feed:
    """The two views of one collection of pictures on one device."""

    def __init__(self, pictures: Pictures, transform: Transform, device: torch.device) -> None:
        self.pictures, self.transform, self.device = pictures, transform, device
        self._canvases: tuple[Tensor, Tensor] | None = None
        limit = HELD_CPU if device.type == "cpu" else HELD_DEVICE
        self._holds = len(pictures) * 3 * transform.resize**2 <= limit

    def augmented(self, indices: Sequence[int], generator: torch.Generator) -> Tensor:
        """Random crops of the pictures at ``indices``: float (n, 3, size, size) in [0, 1]."""
        if self._holds:
            canvases, aspects = self._held()
            chosen = torch.as_tensor(indices)
            return augment(canvases[chosen.to(self.device)], aspects[chosen], self.transform, generator)
        canvases, aspects = self.pictures.canvas(indices, self.transform)
        return augment(canvases.to(self.device, non_blocking=True), aspects, self.transform, generator)

    def plain(self, indices: Sequence[int], size: int = READ) -> Iterator[Tensor]:
        """The plain views at ``indices``, ``size`` at a time: float (n, 3, size, size) in [0, 1]."""
        for start in range(0, len(indices), size):
            views = self.pictures.plain(indices[start : start + size], self.transform)
            yield views.to(self.device, non_blocking=True).float() / 255

    def _held(self) -> tuple[Tensor, Tensor]:
        if self._canvases is None:
            every = range(len(self.pictures))
            read = [
                self.pictures.canvas(every[start : start + READ], self.transform)
                for start in range(0, len(every), READ)
            ]
            canvases = torch.cat([canvas for canvas, _ in read]).to(self.device)
            self._canvases = canvases, torch.cat([aspects for _, aspects in read])
        return self._canvases
