"""From an archive, a folder or the network to a dataset's own layout: checked, resumable, all or nothing."""

import hashlib
import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source, open_source
from safecl.streams.datasets.dataset import RECORD, SPLITS, Archive, Dataset

Say = Callable[[str], None]


def prepare(dataset: Dataset, source: Path, root: Path, *, any_md5: bool = False, say: Say = lambda line: None) -> Path:
    """Lay ``dataset`` out below ``root`` from ``source``: an archive, or a folder of archives or of unpacked files.

    After a kill the same call goes on where it stopped; the dataset's folder appears only when it is whole.
    """
    place = root / dataset.folder
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f".{dataset.folder}.lock"):
        if place.exists():
            say(f"{dataset.title} is already in {place}.")
            return place
        sources, sums = open_sources(dataset, source.expanduser(), any_md5, say)
        plan = dataset.plan(sources)
        partial = root / f".{dataset.folder}.{plan.split}.partial"
        need = sum(size for s, moves in plan.moves for name, size in s.sizes.items() if name in moves)
        check_room(root, need - taken(partial))
        for s, moves in plan.moves:
            say(f"Unpacking {len(moves)} files of {s.path.name}")
            try:
                s.extract(moves, partial)
            except OSError as error:
                raise SafeclError(f"{dataset.title} cannot be written to {root}: {error.strerror or error}.") from None
        remove_strangers(partial, {to for _, moves in plan.moves for to in moves.values()})
        note = {"dataset": dataset.name, "split": plan.split, "split_in_words": SPLITS[plan.split], "archives": sums}
        (partial / RECORD).write_text(json.dumps(note, indent=1), encoding="utf-8")
        os.replace(partial, place)
    say(f"{dataset.title} is in {place}: {SPLITS[plan.split]}.")
    return place


def download(dataset: Dataset, folder: Path, say: Say = lambda line: None) -> Path:
    """Fetch what is open to software; the folder or the archive to prepare from."""
    open_to_us = [archive for archive in dataset.archives if archive.url]
    if not open_to_us:
        raise SafeclError(f"{dataset.title} needs a person to fetch it: {dataset.fetch}")
    folder.mkdir(parents=True, exist_ok=True)
    for archive in open_to_us:
        say(f"Fetching {archive.url}")
        fetch(archive, folder / archive.name)
    return folder if len(open_to_us) > 1 else folder / open_to_us[0].name


def fetch(archive: Archive, to: Path) -> None:
    """Download to ``to``; a broken-off download goes on from what is there."""
    if to.exists():
        return
    partial = to.with_name(to.name + ".partial")
    start = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(str(archive.url), headers={"Range": f"bytes={start}-"} if start else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            resumed = answer.status == 206
            with open(partial, "ab" if resumed else "wb") as out:
                shutil.copyfileobj(answer, out, 1 << 20)
                expected = answer.headers.get("Content-Length")
            got = partial.stat().st_size - (start if resumed else 0)
        if expected is not None and got != int(expected):
            raise SafeclError(f"{archive.url} broke off after {got:,} bytes; run the command again to go on.")
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: all bytes are there already
            raise SafeclError(f"{archive.url} answers {error.code} {error.reason}; fetch it by hand.") from None
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        raise SafeclError(f"{archive.url} cannot be fetched ({reason}); run the command again to go on.") from None
    if archive.md5 and md5_of(partial) != archive.md5:
        partial.unlink()
        raise SafeclError(f"{archive.url} is not the published file (its md5 differs); try again or fetch it by hand.")
    os.replace(partial, to)


def open_sources(dataset: Dataset, source: Path, any_md5: bool, say: Say) -> tuple[list[Source], dict[str, str]]:
    """``source`` itself or, for a folder with published archives in it, each of them and what lies beside them."""
    known = {archive.name: archive for archive in dataset.archives}
    packed = [source / name for name in known if (source / name).is_file() and not name.endswith(".txt")]
    paths = [*packed, source] if packed else [source]
    sums = {}
    for path in packed or ([source] if source.is_file() else []):
        say(f"Checking {path.name}")
        sums[path.name] = md5_of(path)
        expected = known[path.name].md5 if path.name in known else None
        if expected is not None and sums[path.name] != expected and not any_md5:
            raise SafeclError(
                f"{path} is not the published {path.name}: its md5 is {sums[path.name]}, not {expected}; fetch it "
                "again, or pass --any-md5 if you know better."
            )
    return [open_source(path) for path in paths], sums


def md5_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()


def check_room(root: Path, need: int) -> None:
    free = shutil.disk_usage(root).free
    if need > free:
        raise SafeclError(
            f"{root} has {free / 1e9:.1f} GB free and {need / 1e9:.1f} GB are needed; choose another root."
        )


def taken(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def remove_strangers(folder: Path, wanted: set[str]) -> None:
    """What an earlier, other source may have left in an unfinished folder."""
    for path in list(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
