"""Whether the parts of a model file fit together: tensors, classes, sessions that can be taken
back.
"""

from collections.abc import Container, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from safecl.classifier.modelfile.rows import LABELS, LOOK
from safecl.classifier.modelfile.state import State
from safecl.methods.method import Judging, Method
from safecl.methods.parts import heads_of
from safecl.runtime.drift import LOOKS


@torch.no_grad()
def check_answer(method: Method, classes: int, kept: Mapping[str, Tensor], learning: bool) -> None:
    """Refuse a method that does not give each class a logit, or that gives other features than
    those in ``kept``.

    ``learning``: whether more is asked of it than predictions, which keep nothing and need no
    second pass here.
    """
    side = method.backbone.size
    method.eval()
    images = torch.zeros(1, 3, side, side, device=method.backbone.device)
    features = method.embed(images)
    for name, logits in method.answer(features).items():
        if logits.shape != (1, classes):
            raise ValueError(
                f"there are {classes} classes, and {name} gives logits of {tuple(logits.shape)[1:]}"
            )
        if not logits.isfinite().all():
            raise ValueError(f"{name} gives logits that are not finite")
    if not (learning or kept):
        return
    judging = method.judging or Judging()
    networks = method.networks
    keeping = judging.keep(
        features | {name: networks[name].features(images) for name in heads_of(method)}
    )
    judging.recall(keeping, torch.tensor([classes - 1]))
    wanted = {name: rows.shape[1:] for name, rows in keeping.items()} | dict.fromkeys(
        LABELS, torch.Size()
    )
    there = {name: rows.shape[1:] for name, rows in kept.items()}
    if kept and there not in (wanted, wanted | {LOOK: torch.Size([len(LOOKS)])}):
        raise ValueError("the features that are kept are of other networks")


def check_state(
    state: State, classes: int, sizes: Mapping[str, int], learned: Container[str]
) -> None:
    """Refuse a state that nothing could be learned from. ``sizes``: random features of the
    statistics.

    ``learned``: the sessions; other records are of corrections, which take pictures out.
    """
    for session, several in state.records.items():
        for added in several:
            _check_rows(added.table, "targets", classes, least=0 if session in learned else -1)
    _check_rows(state.kept, "targets", classes)
    if state.seen.keys() != {"hashes", "classes"}:
        raise ValueError("the pictures that were learned are not there")
    _check_rows(state.seen, "classes", classes)
    _check_rows(state.seen, "hashes", 1 << 63, least=-(1 << 63))
    for name, gram in state.base.items():
        if gram.shape not in ((0, 0), (sizes[name],) * 2):
            raise ValueError(f"the sums of {name} over all classes are {tuple(gram.shape)}")
    tensors = _meta(state.tensors)
    kept = state.kept
    seen = state.seen
    for one in reversed(state.undo):  # nothing is copied
        now = tensors
        tensors = replace(one, tensors=_meta(one.tensors)).before(tensors)
        if any(name in now and now[name].dtype != tensor.dtype for name, tensor in tensors.items()):
            raise ValueError("a tensor was of another type before a session")
        if any(list(tensors[name].shape) != shape for name, shape in one.shapes.items()):
            raise ValueError("a tensor was larger before a session than it is now")
        kept, seen = one.rows_before(kept, seen)
        if one.header["kept"] > len(kept.get("targets", ())) or one.header["seen"] > len(
            seen.get("hashes", ())
        ):
            raise ValueError("there were more pictures before a session than there are now")


def _check_rows(rows: Mapping[str, Tensor], key: str, classes: int, least: int = 0) -> None:
    """Refuse rows of pictures that differ in number, or that are of no class."""
    targets = rows[key] if rows else torch.zeros(0, dtype=torch.int64)
    if (targets.dtype, targets.ndim) != (torch.int64, 1) or any(
        len(x) != len(targets) for x in rows.values()
    ):
        raise ValueError(f"the rows of {', '.join(rows)} differ in number")
    if len(targets) and not least <= int(targets.min()) <= int(targets.max()) < classes:
        raise ValueError(f"{key} names a class that is not there")


def _meta(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to("meta") for name, tensor in tensors.items()}
