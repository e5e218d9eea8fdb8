"""Model files that were damaged, or made to lie: one builder of them, and the error that each must
give.

A ``Draft`` is a good file taken apart. A mutation changes it; what is then written has digests that
are right again, unless ``sealed`` is false, so that what must be found is found by the check that
is meant.
"""

import copy
import hashlib
import json
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safecl.classifier.modelfile.store import HEADER, SEAL, ModelFile
from safecl.engine.checkpoint import copied, decode, encode

Json = dict[str, Any]


def blake(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@dataclass
class Draft:
    """What a hostile file is made of: ``text`` in place of the header, ``patch`` of its bytes,
    ``extra`` members.
    """

    header: Json
    members: dict[str, bytes]
    seal: bytes
    sealed: bool = True
    text: bytes | None = None
    method: int = zipfile.ZIP_STORED
    extra: list[tuple[str, bytes]] = field(default_factory=list)
    patch: Callable[[bytes], bytes] = bytes

    @classmethod
    def of(cls, good: Path) -> "Draft":
        file = ModelFile(good)
        members = {name: file.raw(name) for name in file.sizes}
        return cls(copy.deepcopy(file.header), members, SEAL + file.digest.encode())

    def set(self, place: str, value: Any) -> None:
        """Put ``value`` at a dotted place of the header."""
        *above, last = place.split(".")
        found: Any = self.header
        for key in above:
            found = found[int(key) if isinstance(found, list) else key]
        found[int(last) if isinstance(found, list) else last] = value

    def change(self, member: str, change: Callable[[dict[str, Tensor]], Any]) -> None:
        """Let ``change`` modify the tensors of a member."""
        tensors = decode(self.members[member], member)[0]
        change(tensors)
        self.members[member] = b"".join(map(bytes, encode(copied(tensors), {})))

    def write(self, path: Path) -> Path:
        header = dict(self.header)
        if self.sealed and isinstance(header.get("members"), dict):
            for name, data in self.members.items():
                if name in header["members"]:
                    header["members"][name] = {"size": len(data), "digest": blake(data)}
        text = self.text or json.dumps(header, ensure_ascii=False).encode()
        with zipfile.ZipFile(path, "w") as archive:
            inside = [
                (f"{header.get('state')}/{name}", data) for name, data in self.members.items()
            ]
            for name, data in [*inside, *self.extra, (HEADER, text)]:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # of a name that is there twice
                    archive.writestr(zipfile.ZipInfo(name), data, self.method)
            archive.comment = SEAL + blake(text).encode() if self.sealed else self.seal
        path.write_bytes(self.patch(path.read_bytes()))
        return path


Mutation = Callable[[Draft], None]


def sets(place: str, value: Any) -> Mutation:
    return lambda draft: draft.set(place, value)


def puts(name: str, value: Any) -> Mutation:
    """Set an attribute of the draft."""
    return lambda draft: setattr(draft, name, value)


def unsealed(mutation: Mutation) -> Mutation:
    """The mutation by hand: no digest is computed again."""

    def mutate(draft: Draft) -> None:
        draft.sealed = False
        mutation(draft)

    return mutate


def tensor(member: str, name: str, change: Callable[[Tensor], Tensor]) -> Mutation:
    """Another value for the first tensor whose name ends in ``name``."""

    def mutate(draft: Draft) -> None:
        def swap(tensors: dict[str, Tensor]) -> None:
            key = next(key for key in tensors if key.endswith(name))
            tensors[key] = change(tensors[key].clone())

        draft.change(member, swap)

    return mutate


def filled(value: float) -> Callable[[Tensor], Tensor]:
    """A tensor with ``value`` in its first place."""

    def fill(rows: Tensor) -> Tensor:
        rows.view(-1)[0] = value
        return rows

    return fill


def swapped(a: str, b: str) -> Mutation:
    def mutate(draft: Draft) -> None:
        draft.members[a], draft.members[b] = draft.members[b], draft.members[a]

    return mutate


def flipped(member: str) -> Mutation:
    """The last bit of a member is another one."""

    def mutate(draft: Draft) -> None:
        data = draft.members[member]
        draft.members[member] = data[:-1] + bytes([data[-1] ^ 1])

    return mutate


def dropped(member: str) -> Mutation:
    return lambda draft: draft.members.__delitem__(member)


def twice(draft: Draft) -> None:
    name = f"{draft.header['state']}/predict.safetensors"
    draft.extra.append((name, draft.members["predict.safetensors"]))


def directory(offset: int, value: bytes) -> Callable[[bytes], bytes]:
    """Overwrite bytes of the first entry of the zip's directory."""

    def patch(data: bytes) -> bytes:
        at = struct.unpack("<L", data[data.rindex(b"PK\x05\x06") + 16 :][:4])[0] + offset
        return data[:at] + value + data[at + len(value) :]

    return patch


def moved(draft: Draft) -> None:
    """A member has the name of another state."""
    draft.extra.append((f"{'0' * 32}/kept.safetensors", draft.members.pop("kept.safetensors")))


def larger_before(draft: Draft) -> None:
    shapes = draft.header["undo"][0]["shapes"]
    shapes.update({name: [9999] * len(shape) for name, shape in shapes.items()})


def of_another_type_before(draft: Draft) -> None:
    def change(tensors: dict[str, Any]) -> None:
        name = next(
            name for name, rows in tensors.items() if rows.is_floating_point() and "/" not in name
        )
        tensors[name] = tensors[name].double()

    draft.change("undo_0.safetensors", change)


def a_million_classes(draft: Draft) -> None:
    draft.header["classes"] = [f"class {i}" for i in range(1_000_000)]


def one_more_class(draft: Draft) -> None:
    draft.header["classes"].append("one more")
    draft.header["calibration"] = None


def one_class_less(draft: Draft) -> None:
    draft.header["classes"].pop()
    draft.header["calibration"] = None


HUGE = (0xFFFFFFF0).to_bytes(4, "little")
Told = tuple[str, dict[str, re.Pattern[str]]]


def told(code: str, **fields: str) -> Told:
    """The code of an error, and what its fields begin with."""
    return code, {key: re.compile(f"^{start}") for key, start in fields.items()}


CHANGED = told("model.header.changed")


def damaged(reason: str) -> Told:
    return told("model.header.damaged", reason=reason)


def misfit(reason: str) -> Told:
    return told("model.parts.misfit", reason=reason)


def foreign(reason: str) -> Told:
    return told("model.foreign", reason=reason)


# Found when the file is opened, before any member is read: the whole of a mutation, and the
# error it must give.
AT_THE_DOOR: dict[str, tuple[Mutation, Told]] = {
    "empty": (puts("patch", lambda _: b""), foreign("file is not a zip file")),
    "a text": (puts("patch", lambda _: b"a text" * 99), foreign("file is not a zip file")),
    "truncated": (
        puts("patch", lambda data: data[: len(data) // 2]),
        foreign("file is not a zip file"),
    ),
    "bytes behind it": (
        puts("patch", lambda data: data + b"more"),
        foreign("there is something behind its end"),
    ),
    "bytes before it": (
        puts("patch", lambda data: b"more" + data),
        foreign("there is something before"),
    ),
    "a foreign zip": (
        puts("patch", lambda data: data.replace(HEADER.encode(), b"other.json")),
        foreign("there is no model.json"),
    ),
    "deflated": (puts("method", zipfile.ZIP_DEFLATED), foreign(r"\S+ is compressed")),
    "LZMA": (puts("method", zipfile.ZIP_LZMA), foreign(r"\S+ is compressed")),
    "encrypted": (puts("patch", directory(8, b"\x01")), foreign(r"\S+ is encrypted")),
    "4 GB declared in the directory": (
        puts("patch", directory(20, HUGE + HUGE)),
        foreign(""),
    ),
    "4 GB declared in the header": (
        unsealed(lambda draft: draft.header["members"]["predict.safetensors"].update(size=1 << 32)),
        CHANGED,
    ),
    "a member twice": (twice, foreign(r"\S+ is in it twice")),
    "one more member": (
        lambda draft: draft.extra.append(("more.bin", b"x")),
        foreign("its members are not those"),
    ),
    "a member less": (dropped("kept.safetensors"), foreign("its members are not those")),
    "members of another state": (moved, foreign("its members are not those")),
    "format 1": (
        sets("format", 1),
        told("model.earlier", format="1$", version=r"\S+$"),
    ),
    "format true": (sets("format", True), damaged("it does not say its format")),
    "a newer format": (sets("format", 99), told("model.newer", version=r"\S+$")),
    "no JSON": (puts("text", b"{"), damaged("Expecting property name")),
    "a list": (puts("text", b"[2]"), damaged("it does not say its format")),
    "nested JSON": (
        puts("text", b'{"format":' + b"[" * 100_000),
        damaged("its lists are nested too deeply"),
    ),
    "nested settings": (
        sets("settings.method.name", json.loads("[" * 50 + "]" * 50)),
        told("model.settings.unreadable", error="There is no method"),
    ),
    "a key twice": (
        puts("text", b'{"format": 7, "format": 7}'),
        damaged("a key is there twice"),
    ),
    "a number of a million digits": (
        puts("text", b'{"format": ' + b"9" * 10**6 + b"}"),
        damaged("Exceeds the limit"),
    ),
    "a header of 65 MiB": (
        lambda draft: puts("text", b" " * (65 << 20))(draft),
        foreign("model.json has more than 67,108,864 bytes"),
    ),
    "a changed name of a class": (unsealed(sets("classes.0", "other")), CHANGED),
    "an altered seed": (unsealed(sets("settings.seed", 1)), CHANGED),
    "NaN as the temperature": (
        sets("calibration.temperature", float("nan")),
        damaged("calibration.temperature: Input should be a finite number"),
    ),
    "an infinite score": (
        sets("calibration.scores.0.0", float("-inf")),
        damaged(".*finite number"),
    ),
    "a whole number of 90 bits": (
        sets("calibration.slope", 1 << 90),
        damaged("calibration.slope: "),
    ),
    "a temperature of 0": (
        sets("calibration.temperature", 0.0),
        damaged("calibration.temperature: "),
    ),
    "scores in another order": (
        sets("calibration.scores.0", [2, 1]),
        damaged("calibration: scores are"),
    ),
    "a class twice": (
        lambda draft: draft.set("classes.1", draft.header["classes"][0]),
        damaged("classes: a name is there twice"),
    ),
    "classes that read alike": (
        sets("classes.1", "A"),
        damaged(r".*differ only in spelling"),
    ),
    "a class with a control character": (
        sets("classes.1", "a\x1b[31m"),
        damaged(r"classes\.1: The class name"),
    ),
    "a million classes": (
        a_million_classes,
        damaged("classes: List should have at most 100000 items"),
    ),
    "an unknown method": (
        sets("settings.method.name", "saif"),
        told("model.settings.unreadable", error="There is no method 'saif'"),
    ),
    "an unknown setting": (
        sets("settings.method.trust", 0.2),
        told("model.settings.unreadable", error=".*method.trust"),
    ),
    "a setting of another type": (
        sets("settings.seed", "0"),
        damaged("settings.seed: "),
    ),
    "a huge setting": (
        sets("settings.train.batch_size", 1 << 40),
        told("model.settings.unreadable", error="train.batch_size=1099511627776 is more than"),
    ),
    "settings that take 400 TB": (
        sets("settings.method.ridge.size", 10_000_000),
        told("model.settings.unreadable", error=r"method.ridge.size=10000000 is .* \(65,536\)"),
    ),
    "a huge input": (sets("backbone.size", 1 << 20), damaged("backbone.size: ")),
    "a session too many": (sets("chain", ["0" * 12]), damaged("chain: ")),
    "an unknown step": (sets("history.0.what", "steal"), damaged("history.0: ")),
}
# Found when predictions read their member.
IN_PREDICTIONS: dict[str, tuple[Mutation, Told]] = {
    "swapped members": (
        unsealed(swapped("predict.safetensors", "learn.safetensors")),
        foreign("its members are not those"),
    ),
    "a changed number": (
        unsealed(flipped("predict.safetensors")),
        told("model.member.damaged", member="predict.safetensors$"),
    ),
    "members of another kind": (
        swapped("predict.safetensors", "learn.safetensors"),
        told("state.other-method", title="SAFE$"),
    ),
    "no safetensors": (
        lambda draft: draft.members.update({"predict.safetensors": b"x" * 100}),
        told("state.damaged"),
    ),
    "a head of another width": (
        tensor("predict.safetensors", "w_slow.weight", lambda rows: rows.repeat(1, 2)),
        misfit("w_slow.weight is of another width than the features"),
    ),
    "NaN as a weight": (
        tensor("predict.safetensors", "ridge_slow.weight", filled(float("nan"))),
        told("model.member.not-finite", tensor="ridge_slow.weight$"),
    ),
    "an infinite weight": (
        tensor("predict.safetensors", ".scale", filled(float("inf"))),
        told("model.member.not-finite"),
    ),
    "a class more than logits": (
        one_more_class,
        misfit(r"there are 7 classes, and \w+ gives logits of \(6,\)"),
    ),
    "a class less than logits": (
        one_class_less,
        misfit(r"there are 5 classes, and \w+ gives logits of \(6,\)"),
    ),
    "a column less": (
        tensor("predict.safetensors", "ridge_fast.weight", lambda w: w[:, 1:]),
        misfit(""),
    ),
    "a row less": (
        tensor("predict.safetensors", "ridge_slow.weight", lambda w: w[1:]),
        misfit(""),
    ),
    "weights of three dimensions": (
        tensor("predict.safetensors", "ridge_slow.weight", lambda w: w[None]),
        misfit(""),
    ),
    "weights as whole numbers": (
        tensor("predict.safetensors", "ridge_slow.weight", lambda w: w.long()),
        misfit("ridge_slow.weight is of another type"),
    ),
    "weights in half precision": (
        tensor("predict.safetensors", "ridge_slow.weight", lambda w: w.half()),
        misfit("ridge_slow.weight is of another type"),
    ),
    "no weights": (
        lambda draft: draft.change("predict.safetensors", lambda t: t.pop("ridge_slow.weight")),
        told("state.other-method", title="SAFE$"),
    ),
    "a name too many": (
        lambda draft: draft.change("predict.safetensors", lambda t: t.update(more=torch.ones(1))),
        told("state.other-method", title="SAFE$"),
    ),
}
# Found when learning, forgetting or rolling back reads all of it.
IN_LEARNING: dict[str, tuple[Mutation, Told]] = {
    "pictures of a class that is not there": (
        tensor("kept.safetensors", "seen/classes", filled(99)),
        misfit("classes names a class"),
    ),
    "targets of a class that is not there": (
        tensor("records.safetensors", "/targets", filled(-1)),
        misfit("targets names a class"),
    ),
    "fewer rows than targets": (
        tensor("kept.safetensors", "targets", lambda t: t[1:]),
        misfit("the rows of"),
    ),
    "no hashes of pictures": (
        lambda draft: draft.change("kept.safetensors", lambda t: t.pop("seen/hashes")),
        misfit("the pictures that were learned"),
    ),
    "hashes that are lists": (
        tensor("kept.safetensors", "seen/hashes", lambda t: t[:, None]),
        misfit(""),
    ),
    "classes that are lists": (
        tensor("kept.safetensors", "seen/classes", lambda t: t[:, None]),
        misfit(""),
    ),
    "NaN in what is kept": (
        tensor("kept.safetensors", "slow", filled(float("nan"))),
        told("model.member.not-finite"),
    ),
    "a changed digest of learning": (
        unsealed(flipped("learn.safetensors")),
        told("model.member.damaged", member="learn.safetensors$"),
    ),
    "larger before a session": (larger_before, misfit("a tensor was larger")),
    "of another type before a session": (
        of_another_type_before,
        misfit("a tensor was of another type"),
    ),
}
HOSTILE = AT_THE_DOOR | IN_PREDICTIONS | IN_LEARNING


def build(good: Path, name: str, path: Path) -> Path:
    """The hostile file ``name`` at ``path``, made of a good one."""
    draft = Draft.of(good)
    HOSTILE[name][0](draft)
    return draft.write(path)
