"""Why the model that answers is not the one in its file: kept until it is, logged once, and told to
whoever asks.
"""

import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safecl.errors import SafeclError
from safecl.lines import shown
from safecl.serve.limits import OURS


class Faults(dict[str, str]):
    """A sentence by the name of each model whose file could not be read anew, so that the one of
    before answers.
    """

    def __init__(self, paths: Mapping[str, Path]) -> None:
        super().__init__()
        self.paths = paths

    @contextmanager
    def heard(self, name: str) -> Iterator[None]:
        """Keep why the file of a model cannot be read meanwhile, or that it could."""
        try:
            yield
        except Exception as error:
            said = sentence(error, self.paths[name])
            if self.get(name) != said:
                log(f"{name} answers as before: {said}")
                if said == OURS:
                    traceback.print_exc()
            self[name] = said
            raise
        if self.pop(name, None) is not None:
            log(f"{name} answers from its file again.")


def sentence(error: Exception, path: Path) -> str:
    """What went wrong with the model at ``path``; no folder is of use to who reads it."""
    if isinstance(error, OSError):
        return f"{path.name} cannot be read ({error.strerror or error})."
    return str(error).replace(f"{path.parent}/", "") if isinstance(error, SafeclError) else OURS


def log(line: str) -> None:
    print(shown(line), file=sys.stderr, flush=True)
