"""The batches of a phase: augmented pictures of a session, or sampled features."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from safecl.engine.device_loader import DeviceLoader, moved
from safecl.engine.processes import Processes
from safecl.methods.method import Batch, Recipe, Sampler
from safecl.randomness import default_generator, seeded, untouched
from safecl.streams.pictures.crop import cut_out, random_crops

Inputs: TypeAlias = tuple[Tensor, ...]
Take: TypeAlias = Callable[[str, int], list[int]]
"""Seeds of so many draws of a kind, which nothing else in the run has."""


class Batches(ABC):
    """Where the steps of a phase get their inputs."""

    def __init__(self, rows: int, recipe: Recipe, orders: list[int]) -> None:
        self.rows = rows  # pictures or features per epoch
        self.recipe = recipe
        self.per_epoch = math.ceil(rows / recipe.batch_size)  # steps
        self._orders = orders  # a seed for each epoch

    @abstractmethod
    def inputs(self, start: int) -> Iterator[Inputs]:
        """The tensors of each step from ``start`` on."""

    @abstractmethod
    def batch(self, *inputs: Tensor) -> Batch:
        """What the loss of a step sees of its inputs.

        Called inside the recorded step: no look at a value, no host work that differs from step to
        step.
        """

    @property
    def steps(self) -> int:
        return self.recipe.epochs * self.per_epoch

    def _epochs(self, start: int) -> Iterator[tuple[int, int, Tensor]]:
        """Each epoch from a step on: its number, its first step that is left, and the rows that
        are, in their order.
        """
        for epoch in range(start // max(self.per_epoch, 1), self.recipe.epochs if self.rows else 0):
            order = torch.randperm(self.rows, generator=seeded(self._orders[epoch]))
            done = max(start - epoch * self.per_epoch, 0)
            yield epoch, epoch * self.per_epoch + done, order[done * self.recipe.batch_size :]


class PictureBatches(Batches):
    """A session's pictures in a new order each epoch, each cropped anew; every process takes its
    part of a batch.
    """

    def __init__(
        self,
        loader: DeviceLoader,
        targets: Tensor,
        recipe: Recipe,
        take: Take,
        processes: Processes,
        accumulate: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(len(targets), recipe, take("order", recipe.epochs))
        self._crops = take("augment", self.steps)
        self.loader = loader
        self.targets = targets
        self.processes = processes
        # Where the network rounds its pictures to bfloat16, float16 is more than precise enough for
        # the crops.
        self._dtype = torch.float32 if dtype == torch.float32 else torch.float16
        own = math.ceil(recipe.batch_size / processes.count)
        self._split = partial(in_pieces, math.ceil(own / accumulate))

    def inputs(self, start: int) -> Iterator[Inputs]:
        """(this process's canvases of the batch, their crops, all targets of it)."""
        size = self.recipe.batch_size
        device = self.targets.device
        for _, first, order in self._epochs(start):
            batches = torch.split(order, size)
            labels = torch.split(self.targets[moved(order, device)], size)
            canvases = self.loader.canvases(
                [batch[self._own(len(batch))].tolist() for batch in batches]
            )
            for step, (these, (canvas, shapes)) in enumerate(
                zip(labels, canvases, strict=True), first
            ):
                # All crops of the batch are drawn, so that those of a picture do not depend on
                # which process takes it.
                own = self._own(len(these))
                random = seeded(self._crops[step])
                every = torch.ones(len(these), 3).index_copy(0, own, shapes)
                crops = random_crops(every, self.loader.transform, random)[own]
                yield canvas, moved(crops, device), these

    def batch(self, *inputs: Tensor) -> Batch:
        canvas, crops, targets = inputs
        images = cut_out(canvas, crops, self.loader.transform.size, self._dtype)
        return Batch(images, targets, partial(self.processes.gather, n=len(targets)), self._split)

    def _own(self, n: int) -> Tensor:
        """The rows of a batch of n pictures that this process takes."""
        return torch.arange(n)[self.processes.share(n)]


class FeatureBatches(Batches):
    """Features that ``sampler`` draws for each epoch, in a new order; every process computes the
    whole batch.
    """

    def __init__(self, sampler: Sampler, recipe: Recipe, take: Take, device: torch.device) -> None:
        draws = take("sampled features", recipe.epochs)
        self._draw: Callable[[int], Inputs] = lambda epoch: sampler(seeded(draws[epoch]))
        super().__init__(len(self._draw(0)[1]), recipe, take("feature order", recipe.epochs))
        self.device = device

    def inputs(self, start: int) -> Iterator[Inputs]:
        """(features, targets)."""
        for epoch, _, order in self._epochs(start):
            features, targets = (moved(part, self.device) for part in self._draw(epoch))
            for rows in torch.split(moved(order, self.device), self.recipe.batch_size):
                yield features[rows], targets[rows]

    def batch(self, *inputs: Tensor) -> Batch:
        features, targets = inputs
        return Batch(features, targets)


def in_pieces(size: int, network: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """``network`` of tensors with a row for each picture, ``size`` of them at a time: its rows of
    all.

    Only one piece is held for the backward pass, which computes each anew. So a loss always sees
    the whole batch.
    """
    if len(rows[0]) <= size:
        return network(*rows)
    parts = zip(*(torch.split(each, size) for each in rows), strict=True)
    random = default_generator(rows[0].device)
    found = []
    for part in parts:
        # torch's own way to draw again does not know Apple's GPUs
        same = _repeatable(network, random)
        found.append(checkpoint(same, *part, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(found)


def _repeatable(network: Callable[..., Tensor], random: torch.Generator) -> Callable[..., Tensor]:
    """``network``, where every call after the first draws the numbers of the first from
    ``random``.
    """
    before: list[Tensor] = []

    def call(*rows: Tensor) -> Tensor:
        if not before:
            before.append(random.get_state())
            return network(*rows)
        with untouched(random):
            random.set_state(before[0])
            return network(*rows)

    return call
