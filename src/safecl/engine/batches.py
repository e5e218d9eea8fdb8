"""The batches of a phase: augmented pictures of a session, or sampled features. What a step needs is a few tensors."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from safecl.engine.device_loader import DeviceLoader, moved
from safecl.engine.processes import Processes
from safecl.methods.method import Network, Recipe, Sampler
from safecl.randomness import generator
from safecl.streams.pictures.crop import cut_out, random_crops

Inputs: TypeAlias = tuple[Tensor, ...]


@dataclass(frozen=True)
class Piece:
    """A batch, or a piece of one: what a loss sees. ``processes``: those that share its pictures, if any do."""

    inputs: Tensor
    targets: Tensor
    processes: Processes | None = None

    def gather(self, rows: Tensor) -> Tensor:
        return rows if self.processes is None else self.processes.gather(rows, len(self.targets))

    def features(self, network: Network, **options: Any) -> Tensor:
        return self.gather(network.features(self.inputs, **options))


class Batches(Protocol):
    """Where the steps of a phase get their inputs."""

    rows: int  # pictures or features an epoch
    per_epoch: int  # steps

    def inputs(self, start: int) -> Iterator[Inputs]:
        """The tensors that each step from ``start`` on takes, made ready one step ahead of their use."""

    def pieces(self, *inputs: Tensor) -> Iterator[tuple[Piece, float]]:
        """The pieces in which a step's inputs go through the network, and each one's share of the loss.

        Called inside the recorded step: no look at a value, no host work that differs from step to step.
        """


class PictureBatches:
    """A session's pictures in a new order each epoch, each cropped anew; every process takes its part of a batch."""

    def __init__(
        self,
        loader: DeviceLoader,
        targets: Tensor,
        session: int,
        name: str,
        recipe: Recipe,
        seed: int,
        processes: Processes,
        accumulate: int,
        dtype: torch.dtype,
    ) -> None:
        self.loader, self.targets, self.recipe, self.processes = loader, targets, recipe, processes
        # Where the network rounds its pictures to bfloat16, float16 is more than precise enough for the crops.
        self._dtype = torch.float32 if dtype == torch.float32 else torch.float16
        self._names = session, name  # no other phase draws the same orders and crops
        self._seed = seed
        self.rows, self.per_epoch = len(targets), math.ceil(len(targets) / recipe.batch_size)
        self._piece = math.ceil(recipe.batch_size / accumulate)

    def inputs(self, start: int) -> Iterator[Inputs]:
        """(this process's canvases of the batch, their crops, all targets of it)."""
        seed, size, device = self._seed, self.recipe.batch_size, self.targets.device
        for step in range(start, self.recipe.epochs * self.per_epoch):
            epoch, at = divmod(step, self.per_epoch)
            if at == 0 or step == start:  # a new epoch, or the middle of one after a stop
                order = torch.randperm(self.rows, generator=generator(seed, "order", *self._names, epoch))
                cut = [torch.split(rows, size)[at:] for rows in (order, self.targets[moved(order, device)])]
                canvases = self.loader.canvases([batch[self._own(len(batch))].tolist() for batch in cut[0]])
                labels = iter(cut[1])
            (canvas, shapes), these = next(canvases), next(labels)
            # All crops of the batch are drawn, so that those of a picture do not depend on which process takes it.
            own = self._own(len(these))
            every = torch.ones(len(these), 3).index_copy(0, own, shapes)
            crops = random_crops(every, self.loader.transform, generator(seed, "augment", *self._names, step))
            yield canvas, moved(crops[own], device), these

    def pieces(self, *inputs: Tensor) -> Iterator[tuple[Piece, float]]:
        canvas, crops, targets = inputs
        for rows, own in self._cut(len(targets)):
            images = cut_out(canvas[own], crops[own], self.loader.transform.size, self._dtype)
            yield Piece(images, targets[rows], self.processes), (rows.stop - rows.start) / len(targets)

    def _cut(self, n: int) -> Iterator[tuple[slice, slice]]:
        """The pieces of a batch of n: their rows, and where this process has its own among its canvases."""
        at = 0
        for start in range(0, n, self._piece):
            rows = slice(start, min(start + self._piece, n))
            own = self.processes.share(rows.stop - rows.start)
            yield rows, slice(at, at := at + own.stop - own.start)

    def _own(self, n: int) -> Tensor:
        """The rows of a batch of n pictures that this process takes."""
        parts = []
        for rows, _ in self._cut(n):
            own = self.processes.share(rows.stop - rows.start)
            parts.append(torch.arange(rows.start + own.start, rows.start + own.stop))
        return torch.cat(parts)


class FeatureBatches:
    """Features that ``sampler`` draws for each epoch, in a new order; every process computes the whole batch."""

    def __init__(
        self, sampler: Sampler, session: int, name: str, recipe: Recipe, seed: int, device: torch.device
    ) -> None:
        self.sampler, self.recipe, self.device, self._names = sampler, recipe, device, (seed, session, name)
        self.rows = len(self._draw(0)[1])
        self.per_epoch = math.ceil(self.rows / recipe.batch_size)

    def inputs(self, start: int) -> Iterator[Inputs]:
        """(features, targets)."""
        seed, session, name = self._names
        for step in range(start, self.recipe.epochs * self.per_epoch):
            epoch, at = divmod(step, self.per_epoch)
            if at == 0 or step == start:
                features, targets = self._draw(epoch)
                order = torch.randperm(self.rows, generator=generator(seed, "feature order", session, name, epoch))
                batches = iter(torch.split(moved(order, self.device), self.recipe.batch_size)[at:])
            rows = next(batches)
            yield features[rows], targets[rows]

    def pieces(self, *inputs: Tensor) -> Iterator[tuple[Piece, float]]:
        features, targets = inputs
        yield Piece(features, targets), 1.0

    def _draw(self, epoch: int) -> Inputs:
        seed, session, name = self._names
        features, targets = self.sampler(generator(seed, "sampled features", session, name, epoch))
        return moved(features, self.device), moved(targets, self.device)
