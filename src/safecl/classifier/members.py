"""A state as members of the model file, and back. What predictions need is a member of its own."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from safecl.atomic import Buffer
from safecl.classifier.state import Added, State, Undo
from safecl.classifier.store import ModelFile
from safecl.engine.checkpoint import encode

PREDICT, LEARN, RECORDS, KEPT = (f"{name}.safetensors" for name in ("predict", "learn", "records", "kept"))


def to_members(
    state: State, sizes: Mapping[str, int], learning: tuple[str, ...], frozen: bool
) -> tuple[dict[str, list[Buffer]], dict[str, Any]]:
    """(members, what the header says of them). ``sizes``: of the statistics by name.

    ``learning``: how names of the state begin that predictions do not need. ``frozen``: only what predictions need.
    """
    sums = {f"{name}.sums" for name in sizes}
    predict = {name: t for name, t in state.tensors.items() if name not in sums and not name.startswith(learning)}
    if frozen:
        state = State(predict)
    members = {
        PREDICT: predict,
        LEARN: {name: tensor for name, tensor in state.tensors.items() if name not in predict}
        | {f"base/{name}": gram for name, gram in state.base.items()},
        RECORDS: {
            f"{session}/{i}/{part}": value
            for session, added in state.records.items()
            for i, one in enumerate(added)
            for part, value in (("features", one.features), ("targets", one.targets), ("scale", one.scale))
            if value is not None
        },
        KEPT: {**state.kept, **{f"seen/{name}": rows for name, rows in state.seen.items()}},
    }
    for i, one in enumerate(state.undo):
        members[f"undo_{i}.safetensors"] = one.tensors
    said = {
        "statistics": dict(sizes),
        "memory_bytes": sum(tensor.nbytes for name, tensor in state.tensors.items() if name.startswith(learning)),
        "chain": list(state.chain),
        "records": {session: [one.head for one in added] for session, added in state.records.items()},
        "undo": [{key: value for key, value in vars(one).items() if key != "tensors"} for one in state.undo],
    }
    return {name: encode(tensors, {}) for name, tensors in members.items() if tensors or not frozen}, said


def to_predict(file: ModelFile) -> State:
    """A state that can only predict."""
    return State(tensors=file.tensors(PREDICT))


def to_learn(file: ModelFile) -> State:
    """The whole state."""
    header, learned = file.header, file.tensors(LEARN)
    records, kept = file.tensors(RECORDS), file.tensors(KEPT)
    return State(
        tensors={**file.tensors(PREDICT), **{n: t for n, t in learned.items() if not n.startswith("base/")}},
        base=_below(learned, "base/"),
        chain=tuple(header["chain"]),
        records={
            session: [Added(head, **_below(records, f"{session}/{i}/")) for i, head in enumerate(heads)]
            for session, heads in header["records"].items()
        },
        undo=tuple(Undo(tensors=file.tensors(f"undo_{i}.safetensors"), **one) for i, one in enumerate(header["undo"])),
        kept={name: tensor for name, tensor in kept.items() if not name.startswith("seen/")},
        seen=_below(kept, "seen/"),
    )


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
