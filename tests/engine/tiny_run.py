"""A whole run on a tiny backbone, for processes of its own: python tiny_run.py ROOT [--serve].

Without ``--serve`` it runs every stream below ROOT, in as many processes as a launcher started. With it, it reads
folder names from stdin, and forks a process for each one that runs there: the imports are paid for once.
"""

import gc
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from accelerate import Accelerator
from conftest import make_backbone, make_stream  # type: ignore[import-not-found]

from safecl.engine.checkpoint import save_state
from safecl.engine.fit import TrainSettings
from safecl.engine.processes import Processes
from safecl.engine.progress import Quiet
from safecl.engine.run import run
from safecl.heads import RidgeSettings
from safecl.methods import Method, make_method
from safecl.methods.safe_settings import SafeSettings
from safecl.pet import pet_settings

CLASSES = [["a", "b", "c", "d"], ["e"], ["f", "g", "a"]]
STREAMS: dict[str, dict[str, Any]] = {
    "class": {"sessions": CLASSES, "train": 5, "test": 3},
    "domain": {"sessions": [list("abcd")] * 3, "protocol": "domain", "train": 5, "test": 3},
    "transfer": {"sessions": [list("abc"), ["d"]], "train": 5, "test": 3},
}
SHORT = {"sessions": [["a", "b", "c", "d"], ["e"]], "train": 4, "test": 1}
# A last batch of 1 for class session 2, which two processes cannot share; of odd size elsewhere.
TRAIN = TrainSettings(epochs=2, batch_size=4, lr=0.05, save_seconds=1e-9)  # saves its place after every step


def tiny_run(folder: Path, options: dict[str, Any], accelerator: Accelerator) -> tuple[dict[str, Any], Method]:
    """SAFE with all it has: the pilots, or else the transfer loss, which is no mean over pictures; both phases."""
    stream, backbone = make_stream(**options), make_backbone(depth=1)
    settings = SafeSettings(pilot=len(options["sessions"][0]) > 3)
    method = make_method(settings, backbone, pet_settings("ssf"), RidgeSettings(size=40), 0)
    return run(accelerator, method, stream, TRAIN, stream.transform, 0, folder, Quiet(), {}), method


def answers(method: Method) -> dict[str, torch.Tensor]:
    images = torch.rand(20, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        return method.all_logits(images)


def everywhere(root: Path) -> None:
    """Every stream, in as many processes as there are; each leaves its state and its answers."""
    accelerator = Accelerator(cpu=True)
    for kind, options in STREAMS.items():
        summary, method = tiny_run(root / kind, options, accelerator)
        file = root / f"{kind}_{accelerator.process_index}.safetensors"
        save_state(file, {**method.state_dict(), **answers(method)}, {"final": summary["final"]})
    assert Processes(accelerator).count == int(os.environ.get("WORLD_SIZE", "1"))


def serve() -> None:
    """A line in: a folder. A line out: the process that runs there; another, when it has ended: its exit code."""
    gc.disable()  # a forked process would copy all memory only to look through it
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            tiny_run(Path(line.strip()), SHORT, Accelerator(cpu=True))
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve() if "--serve" in sys.argv else everywhere(Path(sys.argv[1]))
