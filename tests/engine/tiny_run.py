"""A whole run on a tiny backbone, for processes of its own: python tiny_run.py ROOT --rest |
--serve.

With ``--rest`` it runs below ROOT every case that is otherwise omitted, in as many processes as a
launcher started. With ``--serve`` it reads folder names from stdin, and forks a process for each
one that runs there, or two for the cases below it, as a launcher would start them: the imports are
paid for once.
"""

import gc
import os
import socket
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from accelerate import Accelerator
from conftest import make_backbone, make_stream  # type: ignore[import-not-found]

from safecl.engine.checkpoint import save_state
from safecl.engine.processes import Processes
from safecl.engine.run import run
from safecl.engine.settings import TrainSettings
from safecl.heads.settings import RidgeSettings
from safecl.methods.catalog import make_method, method_settings
from safecl.methods.method import Method, all_logits
from safecl.pet.settings import pet_settings

CLASSES = [["a", "b", "c", "d"], ["e"], ["f", "g", "a"]]
STREAMS: dict[str, dict[str, Any]] = {
    "class": {"sessions": CLASSES, "train": 5, "test": 3},
    "domain": {"sessions": [list("abcd")] * 2, "protocol": "domain", "train": 5, "test": 3},
    "transfer": {"sessions": [list("abc"), ["d"]], "train": 5, "test": 3},
}
SHORT = {"sessions": [["a", "b", "c", "d"], ["e"]], "train": 4, "test": 1}
# A last batch of 1 for class session 2, which two processes cannot share; of odd size elsewhere.
# saves a checkpoint after every step
TRAIN = TrainSettings(epochs=2, batch_size=4, lr=0.05, save_seconds=1e-9)
QUICK = {
    **{
        name: {"align_epochs": 2, "align_samples": 4}
        for name in ("slca", "ssiat", "tuna", "mos", "rsiat")
    },
    "coda": {"components": 3},
    "loranpac": {"size": 40},
}


def cases(rest: bool) -> list[tuple[str, str]]:
    """(method, stream): SAFE, also with its transfer loss, which is no mean over pictures, and SLCA
    with its samples.

    ``rest``: every other pair of a method with classes or domains.
    """
    own = [("safe", "class"), ("safe", "transfer"), ("slca", "domain")]
    return (
        [
            c
            for name in method_settings()
            for c in ((name, "class"), (name, "domain"))
            if c not in own
        ]
        if rest
        else own
    )


def tiny_run(
    folder: Path,
    options: dict[str, Any],
    accelerator: Accelerator,
    name: str = "safe",
    train: TrainSettings = TRAIN,
) -> tuple[dict[str, Any], Method]:
    """A method on a stream. SAFE has pilots where there are enough classes for them, or else is as
    in the paper.
    """
    stream = make_stream(**options)
    backbone = make_backbone(depth=1)
    kind = method_settings()[name]
    chosen: dict[str, Any] = {
        "pet": pet_settings("ssf"),
        "ridge": RidgeSettings(size=40, patches=False),
    }
    chosen = {key: value for key, value in chosen.items() if key in kind.model_fields} | QUICK.get(
        name, {}
    )
    if name == "safe":
        use = {"use": len(options["sessions"][0]) > 3}
        chosen |= dict.fromkeys(("pilots", "limit", "average", "release", "untuned"), use)
    method = make_method(kind(**chosen), backbone)
    return run(method, stream, folder, accelerator=accelerator, train=train), method


def answers(method: Method) -> dict[str, torch.Tensor]:
    images = torch.rand(20, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        return all_logits(method, images)


def everywhere(root: Path, rest: bool) -> None:
    """Every case, in as many processes as there are; each leaves its state and its answers."""
    accelerator = Accelerator(cpu=True)
    train = TRAIN.model_copy(update={"save_seconds": 60.0})
    for name, kind in cases(rest):
        summary, method = tiny_run(root / f"{name}-{kind}", STREAMS[kind], accelerator, name, train)
        file = root / f"{name}-{kind}_{accelerator.process_index}.safetensors"
        save_state(file, {**method.state_dict(), **answers(method)}, {"final": summary["final"]})
    assert Processes(accelerator).count == int(os.environ.get("WORLD_SIZE", "1"))


def both(root: Path) -> None:
    """The cases in two processes, by the variables that a launcher sets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2"
    )
    second = os.fork()
    os.environ.update(RANK=str(int(second == 0)), LOCAL_RANK=str(int(second == 0)))
    everywhere(root, rest=False)
    if second:
        assert os.waitpid(second, 0)[1] == 0


def serve() -> None:
    """A line in: a folder. A line out: the process that runs there; another, when it has ended: its
    exit code.

    Words before the folder: ``one`` or ``two`` processes run the cases, in place of a short run.
    """
    gc.disable()  # a forked process would copy all memory only to look through it
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.dup2(2, 1)  # Gloo has something to say
            how, _, folder = line.strip().rpartition(" ")
            if how:
                both(Path(folder)) if how == "two" else everywhere(Path(folder), rest=False)
            else:
                tiny_run(Path(folder), SHORT, Accelerator(cpu=True))
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve() if "--serve" in sys.argv else everywhere(Path(sys.argv[1]), "--rest" in sys.argv)
