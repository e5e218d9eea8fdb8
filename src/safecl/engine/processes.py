"""Several processes, one answer: who takes which pictures, and how the parts become the whole
again.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from safecl.errors import SafeclError

T = TypeVar("T")


class Processes:
    """What one process needs to know of the others. With one process every method is the plain
    thing. ``accelerator``: Accelerate's, or what stands in for it.
    """

    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator
        self.index = int(accelerator.process_index)
        self.count = int(accelerator.num_processes)
        self.main: bool = self.index == 0
        self.device: torch.device = accelerator.device

    def share(self, n: int) -> slice:
        """This process's run of n pictures; the first one where there are too few, so that nobody
        is left without.
        """
        start, stop = self.bounds(self.index, n)
        return slice(start, stop) if start < stop or not n else slice(0, 1)

    def gather(self, mine: Tensor, n: int) -> Tensor:
        """Rows for all n pictures from those that each process made for its share; gradients flow
        to its own.
        """
        if self.count == 1:
            return mine
        every: Tensor = _Gather.apply(mine, self, n)  # type: ignore[no-untyped-call]  # torch's own
        return every

    def average_gradients(self, parameters: dict[str, nn.Parameter]) -> None:
        """The mean over processes, which is the gradient of the whole batch: see ``_Gather``."""
        if self.count == 1:
            return
        # The loss is the same everywhere, and so is which parameters it has no gradient for.
        reached = [(p, p.grad) for p in parameters.values() if p.grad is not None]
        flat = self.accelerator.reduce(
            torch.cat([gradient.flatten() for _, gradient in reached]), "mean"
        )
        for (parameter, _), part in zip(
            reached, flat.split([p.numel() for p, _ in reached]), strict=True
        ):
            parameter.grad = part.view_as(parameter)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if self.count == 1:
            return flag
        said = self.accelerator.reduce(torch.tensor(float(flag), device=self.device), "sum")
        return bool(said > 0)

    def once(self, work: Callable[[], T]) -> T:
        """What ``work`` gives on the main process, which alone touches the run folder; any error of
        it stops everyone.

        The others leave without a word: exit code 2 for an error that a user can meet, 1 for any
        other.
        """
        if self.count == 1:
            return work()
        from accelerate.utils import broadcast_object_list  # slow to import

        answer: list[Any] = [None, 0]
        failure: BaseException | None = None
        if self.main:
            try:
                answer[0] = work()
            except BaseException as error:
                failure, answer[1] = error, 2 if isinstance(error, SafeclError) else 1
        broadcast_object_list(answer)
        if failure is not None:
            raise failure
        if answer[1]:
            raise SystemExit(answer[1])
        result: T = answer[0]
        return result

    def bounds(self, index: int, n: int) -> tuple[int, int]:
        """The run of n pictures that a process takes."""
        # The first ones take what is left over, so that a process's share of a smaller batch is
        # never a larger one.
        each, over = divmod(n, self.count)
        start = index * each + min(index, over)
        return start, start + each + (index < over)


class _Gather(torch.autograd.Function):
    """Every process's rows on every process.

    All then compute the same loss, so each knows the gradient of its own rows. It is given back
    times the number of processes, since gradients of parameters are averaged in the end: that of a
    head, the same everywhere, stays what it is, and that of the network below, of which every
    process has its share, becomes the sum.
    """

    @staticmethod
    def forward(context: Any, mine: Tensor, processes: Processes, n: int) -> Tensor:
        context.processes = processes
        context.n = n
        context.rows = len(mine)
        bounds = [processes.bounds(index, n) for index in range(processes.count)]
        most = max(stop - start for start, stop in bounds)
        padded = mine.new_zeros(most, *mine.shape[1:])
        padded[: len(mine)] = mine
        every = processes.accelerator.gather(padded).split(most)
        return torch.cat(
            [part[: stop - start] for part, (start, stop) in zip(every, bounds, strict=True)]
        )

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        start, stop = context.processes.bounds(context.processes.index, context.n)
        own = gradient.new_zeros(context.rows, *gradient.shape[1:])
        own[: stop - start] = gradient[start:stop] * context.processes.count
        return own, None, None
