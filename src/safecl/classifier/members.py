"""A state as members of the model file, and back. What predictions need is a member of its own."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from safecl.atomic import Buffer
from safecl.classifier.state import Added, State, Undo, learn_only
from safecl.classifier.store import ModelFile
from safecl.engine.checkpoint import encode

PREDICT, LEARN, RECORDS, KEPT = (f"{name}.safetensors" for name in ("predict", "learn", "records", "kept"))


def to_members(state: State, sizes: Mapping[str, int]) -> tuple[dict[str, list[Buffer]], dict[str, Any]]:
    """(members, what the header says of them). ``sizes``: of the statistics by name."""
    predict = _predicting(state, sizes)
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
        members[f"undo_{i}.safetensors"] = {
            **{f"tensors/{name}": tensor for name, tensor in one.tensors.items()},
            **{f"grams/{name}": gram for name, gram in one.grams.items()},
        }
    said = {
        "statistics": dict(sizes),
        "chain": list(state.chain),
        "records": {session: [one.head for one in added] for session, added in state.records.items()},
        "undo": [
            {"session": one.session, "shapes": one.shapes, "absent": one.absent, "header": one.header}
            for one in state.undo
        ],
    }
    return {name: encode(tensors, {}) for name, tensors in members.items()}, said


def frozen_members(state: State, sizes: Mapping[str, int]) -> tuple[dict[str, list[Buffer]], dict[str, Any]]:
    """What predictions need, and nothing else."""
    said = {"statistics": dict(sizes), "chain": [], "records": {}, "undo": []}
    return {PREDICT: encode(_predicting(state, sizes), {})}, said


def _predicting(state: State, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    rest = learn_only(sizes)
    return {name: tensor for name, tensor in state.tensors.items() if name not in rest}


def to_predict(file: ModelFile) -> State:
    """A state that can only predict."""
    return State(tensors=file.tensors(PREDICT))


def to_learn(file: ModelFile) -> State:
    """The whole state."""
    header, learned = file.header, file.tensors(LEARN)
    records, kept = file.tensors(RECORDS), file.tensors(KEPT)
    undo = []
    for i, one in enumerate(header["undo"]):
        parts = file.tensors(f"undo_{i}.safetensors")
        undo.append(
            Undo(one["session"], _below(parts, "tensors/"), one["shapes"], one["absent"], _below(parts, "grams/"),
                 one["header"])
        )  # fmt: skip
    return State(
        tensors={**file.tensors(PREDICT), **{n: t for n, t in learned.items() if not n.startswith("base/")}},
        base=_below(learned, "base/"),
        chain=tuple(header["chain"]),
        records={
            session: [
                Added(head, records[f"{session}/{i}/features"], records[f"{session}/{i}/targets"],
                      records.get(f"{session}/{i}/scale"))
                for i, head in enumerate(heads)
            ]
            for session, heads in header["records"].items()
        },
        undo=tuple(undo),
        kept={name: tensor for name, tensor in kept.items() if not name.startswith("seen/")},
        seen=_below(kept, "seen/"),
    )  # fmt: skip


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
