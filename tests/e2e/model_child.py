"""A process that forks a command of safecl on demand, so that all of them import torch once: python model_child.py."""

import gc
import json
import os
import sys

import torch

from safecl.cli import main as cli


def serve() -> None:
    """A line in: words as JSON. A line out: the process that runs them; another, when it has ended: its exit code."""
    gc.disable()  # a forked process would copy all memory only to look through it
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            sys.argv = ["safecl", *json.loads(line)]
            os.dup2(2, 1)
            try:
                cli.main()
            except SystemExit as end:
                sys.stderr.flush()
                os._exit(int(end.code or 0))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve()
