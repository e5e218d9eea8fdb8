"""Mutated model files by the thousand: each gives the answer of the unmutated one, or one sentence.

    python tests/classifier/fuzz.py GOOD.safecl COUNT [FIRST]

Runs in one process with 2 GB of memory for data. The last line is JSON: how many of each kind were
refused, gave the same answer, or (where every digest was made right again, so that it is another
model in truth) another valid one; and what must not be: tracebacks, hangs over 10 seconds, other
answers.
"""

import contextlib
import copy
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))

from hostile import Draft

from safecl.classifier.answers.tables import advice, class_table, history_table
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.modelfile.store import ModelFile
from safecl.classifier.seen import check_folder
from safecl.cli.models import facts
from safecl.errors import SafeclError

MEMORY = 2 << 30
SECONDS = 10
WAIT = 60  # of work; and of waiting, on a machine that does other things, too
POOL = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    1.5,
    -0.0,
    1e308,
    1 << 31,
    1 << 63,
    1 << 90,
    "",
    "a",
    "0",
    "x" * 300,
    "\x1b[0m",
    [],
    [[]],
    {},
    [0, 1],
    {"a": 1},
    float("nan"),
    float("inf"),
]
# What an answer depends on: another value of the right type makes another model.
DECIDING = {"settings", "backbone", "transform", "classes", "calibration", "statistics"}


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, below in inside:
        yield (*above, key)
        yield from places(below, (*above, key))


def of_bytes(draft: Draft, r: random.Random) -> bool:
    """Bytes anywhere in the file."""
    draft.sealed = False

    def patch(data: bytes) -> bytes:
        found = bytearray(data)
        for _ in range(r.choice([1, 1, 1, 2, 8])):
            # Half of them near the end, where the header and the directory are.
            at = (
                r.randrange(len(found))
                if r.random() < 0.5
                else len(found) - 1 - r.randrange(min(len(found), 20_000))
            )
            size = r.choice([1, 2, 4, 30, 1000])
            kind = r.randrange(7)
            if kind == 0:
                found[at] ^= 1 << r.randrange(8)
            elif kind == 1:
                found[at : at + size] = r.randbytes(size)
            elif kind == 2:
                del found[at : at + size]
            elif kind == 3:
                found[at:at] = r.randbytes(size)
            elif kind == 4:
                found[at:at] = found[at : at + size]
            elif kind == 5:
                found[at : at + 4] = r.choice(
                    [b"\xff\xff\xff\xff", b"\0\0\0\0", b"PK\x05\x06", b"PK\x01\x02"]
                )
            else:
                del found[at:]
            if not found:
                break
        return bytes(found)

    draft.patch = patch
    return False


def of_members(draft: Draft, r: random.Random) -> bool:
    """Members swapped, dropped, doubled, renamed, emptied, cut, altered."""
    draft.sealed = r.random() < 0.5
    a, b = r.sample(sorted(draft.members), 2)
    data = draft.members[a]
    kind = r.randrange(8)
    if kind == 0:
        draft.members[a], draft.members[b] = draft.members[b], data
    elif kind == 1:
        draft.members[a] = draft.members[b]
    elif kind == 2:
        del draft.members[a]
    elif kind == 3:
        draft.extra.append(
            (r.choice([a, "model.json", f"{draft.header['state']}/{a}", "../x", "/etc/x"]), data)
        )
    elif kind == 4:
        draft.members[f"{a}x"] = draft.members.pop(a)
        if draft.sealed and r.random() < 0.5:
            draft.header["members"][f"{a}x"] = draft.header["members"].pop(a)
    elif kind == 5:
        draft.members[a] = r.choice(
            [b"", b"\0" * 8, data[: r.randrange(len(data))], r.randbytes(100)]
        )
    elif kind == 6:
        at = r.randrange(len(data))
        draft.members[a] = data[:at] + bytes([data[at] ^ 1 << r.randrange(8)]) + data[at + 1 :]
    else:
        draft.method = r.choice([8, 12, 14])
    return False


def of_header(draft: Draft, r: random.Random) -> bool:
    """A field of the header: another value, none, one more, doubled."""
    draft.sealed = r.random() < 0.7
    place = r.choice(list(places(draft.header)))
    above: Any = draft.header
    for key in place[:-1]:
        above = above[key]
    key = place[-1]
    kind = r.randrange(6)
    value = above[key]
    if kind <= 2:
        near = [value + 1, value - 1, value * 2, value / 3] if type(value) in (int, float) else []
        above[key] = copy.deepcopy(r.choice([*POOL, *near, *near]))
    elif kind == 3:
        del above[key]
    elif kind == 4 and isinstance(above, dict):
        above[r.choice(["more", "", "__class__", f"{key}x"])] = copy.deepcopy(r.choice(POOL))
    elif kind == 4:
        above.insert(r.randrange(len(above) + 1), copy.deepcopy(r.choice([value, *POOL])))
    elif isinstance(above, list):
        r.shuffle(above)
    else:
        other = r.choice(sorted(above))
        above[key], above[other] = above[other], above[key]
    return draft.sealed and place[0] in DECIDING


def of_tensors(draft: Draft, r: random.Random) -> bool:
    """A tensor of another shape, type or name, none, one more, or not finite; all digests are
    right.
    """
    member = r.choice(sorted(draft.members))

    def change(tensors: dict[str, torch.Tensor]) -> None:
        if not tensors:
            return
        name = r.choice(sorted(tensors))
        value = tensors[name].clone()
        kind = r.randrange(8)
        if kind == 0:
            del tensors[name]
        elif kind == 1:
            tensors[f"{name}x"] = tensors.pop(name)
        elif kind == 2:
            tensors[name] = r.choice(
                [value[None], value.reshape(-1), value.new_zeros(0), value.new_zeros(3, 0, 2)]
            )
        elif kind == 3 and value.ndim:
            dim = r.randrange(value.ndim)
            tensors[name] = r.choice(
                [value.narrow(dim, 0, value.shape[dim] // 2), torch.cat([value, value], dim)]
            )
        elif kind == 4:
            tensors[name] = value.to(
                r.choice([torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool])
            )
        elif kind == 5 and value.is_floating_point() and value.numel():
            value.view(-1)[r.randrange(value.numel())] = r.choice(
                [float("nan"), float("inf"), -float("inf")]
            )
            tensors[name] = value
        elif kind == 6:
            other = r.choice(sorted(tensors))
            if tensors[other].shape != value.shape:  # two of one shape make another model
                tensors[name], tensors[other] = tensors[other], value
        else:
            tensors[r.choice(["more", "", "a/0/features"])] = value

    draft.change(member, change)
    return False


KINDS: dict[str, Callable[[Draft, random.Random], bool]] = {
    "bytes": of_bytes,
    "members": of_members,
    "header": of_header,
    "tensors": of_tensors,
}


class Hung(BaseException):
    pass


def ring(*_: Any) -> None:
    raise Hung


def fuzz(good: Path, count: int, start: int = 0) -> dict[str, Any]:
    images = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    first = ContinualClassifier.load(good, device="cpu")
    wanted = first.predict_proba(images)
    labels = first.classes_.tolist()
    draft = Draft.of(good)
    parted = copy.copy(first)  # with which a mutated one is merged
    parted.rollback()
    parted.learn(images, ["other", "others"])
    signal.signal(signal.SIGALRM, ring)
    signal.signal(signal.SIGPROF, ring)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    found = Counter[str]()
    bad = []
    slowest = 0.0
    sentences = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.safecl")
        Path(folder, "pictures", labels[0]).mkdir(parents=True)
        Image.fromarray(images[0]).save(Path(folder, "pictures", labels[0], "0.png"))
        for number in range(start, start + count):
            kind = list(KINDS)[number % len(KINDS)]
            r = random.Random(number)
            mutated = copy.deepcopy(draft)
            other = KINDS[kind](mutated, r)
            try:
                mutated.write(path)
            except (
                TypeError,
                ValueError,
                AttributeError,
                UnicodeError,
            ) as error:  # of the builder itself
                found[f"{kind}: not built ({type(error).__name__})"] += 1
                continue
            began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(WAIT)
            try:
                outcome = ask(path, first, parted, images, wanted, labels, other, mutated.sealed)
            except SafeclError as error:
                outcome = "refused"
                sentences[" ".join(str(error).replace(str(path), "FILE").split()[:7])] += 1
                if not str(error).rstrip().endswith((".", "?")) or "Traceback" in str(error):
                    bad.append([number, kind, f"no sentence: {error}"])
            except Hung:
                outcome = "hung"
                bad.append([number, kind, "hung"])
            except BaseException:
                outcome = "traceback"
                bad.append([number, kind, traceback.format_exc()[-1500:]])
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.alarm(0)
            if bad and bad[-1][0] == number:
                print(*bad[-1], file=sys.stderr, flush=True)
            slowest = max(slowest, time.process_time() - began)
            if outcome == "another answer":
                bad.append([number, kind, outcome])
            found[f"{kind}: {outcome}"] += 1
            if number % 250 == 249:
                print(number + 1, dict(found), len(bad), flush=True)
    return {
        "count": count,
        "found": dict(sorted(found.items())),
        "slowest": round(slowest, 2),
        "bad": bad,
        "sentences": sentences.most_common(40),
    }


def ask(
    path: Path,
    first: ContinualClassifier,
    parted: ContinualClassifier,
    images: np.ndarray,
    wanted: np.ndarray,
    labels: list[Any],
    other: bool,
    sealed: bool,
) -> str:
    """Inspect, predict, then read all that learning needs; it is used where it may be other than it
    was.
    """
    inspect(ModelFile(path))
    model = ContinualClassifier.load(path, device="cpu")
    model._loaded = first._loaded
    p = model.predict_proba(images)
    names = model.classes_.tolist()
    same = names == labels and p.shape == wanted.shape and bool((p == wanted).all())
    if (
        not same
        and other
        and p.shape == (2, len(names))
        and np.allclose(p.sum(axis=1), 1, atol=1e-4)
    ):
        same = False
    elif not same:
        return "another answer"
    with contextlib.suppress(SafeclError):
        check_folder(path.parent / "pictures", ModelFile(path))
    if not model._fitted.header["frozen"]:
        _ = model._fitted.state
        if sealed:
            model._fitted.method(model._backbone(), learning=True)
            change(model, parted, images)
    return "the same answer" if same else "another model"


def inspect(file: ModelFile) -> None:
    """What ``safecl inspect`` says."""
    facts(file)
    class_table(file.header)
    history_table(file.header)
    advice(file.header)


def change(model: ContinualClassifier, parted: ContinualClassifier, images: np.ndarray) -> None:
    """Each change is made or refused."""
    last = model.classes_.tolist()[-1]
    for make in (
        lambda one: one.merged(parted),
        lambda one: parted.merged(one),
        lambda one: one.rename(last, "renamed"),
        lambda one: one.forget(last),
        lambda one: one.learn(images, ["new", "newer"], again=True),
        lambda one: one.rollback(),
    ):
        with contextlib.suppress(SafeclError):
            make(copy.copy(model))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(fuzz(Path(sys.argv[1]), int(sys.argv[2]), *map(int, sys.argv[3:]))))
