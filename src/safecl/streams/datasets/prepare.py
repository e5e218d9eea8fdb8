"""From an archive or a folder to a dataset's own layout: verified, all or nothing."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source, md5_of, open_source
from safecl.streams.datasets.dataset import RECORD, Dataset
from safecl.streams.datasets.plans import SPLITS

Say = Callable[[str], None]
LISTS = (".txt", ".mat")  # the endings of published files that are not archives


def prepare(dataset: Dataset, source: Path, root: Path, say: Say = lambda line: None) -> Path:
    """Lay ``dataset`` out below ``root`` from ``source``: an archive, or a folder of archives or of
    unpacked files.

    The dataset's folder appears only when it is whole.
    """
    place = root / dataset.folder
    work = root / f".{dataset.folder}.partial"
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f".{dataset.folder}.lock"):
        if place.exists():
            say(f"{dataset.title} is already in {place}.")
            return place
        shutil.rmtree(work, ignore_errors=True)  # of a call that was killed
        try:
            sources, sums = open_sources(dataset, source.expanduser(), work / "unpacked", say)
            plan = dataset.plan(sources)
            made = work / "made"
            for one, moves in plan.moves:
                carry = os.replace if one.folder.is_relative_to(work) else shutil.copyfile
                for name, to in moves.items():
                    (made / to).parent.mkdir(parents=True, exist_ok=True)
                    carry(one.folder / name, made / to)
            note = {
                "dataset": dataset.name,
                "split": plan.split,
                "split_in_words": SPLITS[plan.split],
            }
            (made / RECORD).write_text(
                json.dumps({**note, "archives": sums}, indent=1), encoding="utf-8"
            )
            os.replace(made, place)
        except OSError as error:
            raise SafeclError(
                "dataset.not-written",
                title=dataset.title,
                root=root,
                reason=error.strerror or error,
            ) from None
        finally:
            shutil.rmtree(work, ignore_errors=True)
    say(f"{dataset.title} is in {place}: {SPLITS[plan.split]}.")
    return place


def open_sources(
    dataset: Dataset, source: Path, work: Path, say: Say
) -> tuple[list[Source], dict[str, str]]:
    """``source`` itself or, for a folder with published archives in it, each of them and what lies
    beside them.

    Archives are unpacked below ``work``; also gives the md5 of each.
    """
    known = {archive.name: archive for archive in dataset.archives}
    packed = [
        source / name for name in known if (source / name).is_file() and not name.endswith(LISTS)
    ]
    paths = [*packed, source] if packed else [source]
    sums = {}
    for path in packed or ([source] if source.is_file() else []):
        say(f"Checking and unpacking {path.name}")
        sums[path.name] = md5_of(path)
        expected = known[path.name].md5 if path.name in known else None
        if expected is not None and sums[path.name] != expected:
            why = f"its md5 is {sums[path.name]}, not {expected}"
            raise SafeclError("dataset.archive.not-published", path=path, name=path.name, why=why)
    return [open_source(path, work) for path in paths], sums
