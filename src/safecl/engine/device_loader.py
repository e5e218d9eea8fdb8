"""Pictures on their way to the device: read as uint8, and kept there for a session if they fit."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from safecl.ram import free_memory
from safecl.streams.pictures.images import Pictures, Transform
from safecl.streams.pictures.load import batches

PASS_CPU = 64
PASS_DEVICE = 256  # pictures per pass without gradients; a stop is noticed between two of them
CANVASES_PER_READ = 32
MAX_HELD_CPU = 1 << 30
MAX_HELD_DEVICE = 8 << 30  # bytes of uint8 canvases


class DeviceLoader:
    """The two views of one collection of pictures on one device.

    ``room``: bytes of canvases to keep there, if not ``held_bytes``. ``at_once``: plain views in a
    batch, if not ``reads``.
    """

    def __init__(
        self,
        pictures: Pictures,
        transform: Transform,
        device: torch.device,
        *,
        room: int | None = None,
        at_once: int | None = None,
    ) -> None:
        self.pictures = pictures
        self.transform = transform
        self.device = device
        self._at_once = at_once or reads(device)
        self._canvases: tuple[Tensor, Tensor] | None = None
        # The latest plain batch. Pilots are judged on the same pictures again and again.
        self._plain: tuple[list[int], Tensor] | None = None
        self._pin = device.type == "cuda"
        needed = len(pictures) * 3 * pictures.side(transform) ** 2
        self._holds = needed <= (held_bytes(device) if room is None else room)

    def canvases(self, chunks: Sequence[Sequence[int]]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each chunk of positions, all of one length but the last: uint8 (n, 3, side, side),
        and shapes (n, 3) on the CPU.
        """
        if self._holds:
            canvases, shapes = self._held()
            for chosen in map(torch.as_tensor, chunks):
                yield canvases[moved(chosen, self.device)], shapes[chosen]
        elif chunks:
            order = [int(i) for chunk in chunks for i in chunk]
            for batch in batches(
                self.pictures, order, len(chunks[0]), "canvas", self.transform, pin=self._pin
            ):
                assert batch.shapes is not None
                yield moved(batch.pictures, self.device), batch.shapes

    def plain(self, indices: Sequence[int]) -> Iterator[Tensor]:
        """The plain views at ``indices`` in batches, read ahead: float (n, 3, size, size) in
        [0, 1].
        """
        if self._plain is not None and self._plain[0] == list(indices):
            yield self._plain[1]
            return
        for batch in batches(
            self.pictures, indices, self._at_once, "plain", self.transform, pin=self._pin
        ):
            self._plain = batch.indices, moved(batch.pictures, self.device).float() / 255
            yield self._plain[1]

    def _held(self) -> tuple[Tensor, Tensor]:
        """All canvases on the device and all shapes on the CPU."""
        if self._canvases is None:
            count = len(self.pictures)
            squares = torch.empty(0)
            shapes = torch.empty(count, 3)
            for batch in batches(
                self.pictures, range(count), CANVASES_PER_READ, "canvas", self.transform
            ):
                assert batch.shapes is not None
                if not len(squares):
                    squares = torch.empty(
                        (count, *batch.pictures.shape[1:]), dtype=torch.uint8, device=self.device
                    )
                rows = slice(batch.indices[0], batch.indices[-1] + 1)
                squares[rows], shapes[rows] = batch.pictures.to(self.device), batch.shapes
            self._canvases = squares, shapes
        return self._canvases


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device. Only CUDA copies from memory that is not pinned before the call returns."""
    return tensor.to(device, non_blocking=device.type == "cuda")


def reads(device: torch.device) -> int:
    """How many pictures go through a network at a time where nothing is trained."""
    return PASS_CPU if device.type == "cpu" else PASS_DEVICE


def held_bytes(device: torch.device, free: int | None = None) -> int:
    """How many bytes of canvases to keep: at most a quarter of the memory that is free there."""
    most = MAX_HELD_CPU if device.type == "cpu" else MAX_HELD_DEVICE
    return min(most, (free_memory(device) if free is None else free) // 4)
