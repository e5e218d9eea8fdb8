"""Every named dataset, as a miniature in its published format: prepared, checked, streamed."""

import io
import pickle
import re
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from safecl.streams.catalog import check_stream, open_stream
from safecl.streams.datasets import DATASETS
from safecl.streams.datasets.archive import md5_of
from safecl.streams.datasets.dataset import record
from safecl.streams.datasets.prepare import prepare
from safecl.streams.pictures.images import Transform
from safecl.streams.settings import DATASETS as NAMES
from safecl.streams.settings import DatasetSettings
from tests.conftest import raises

FIRST_OF_1993 = {
    100: [68, 56, 78, 8, 23],
    200: [168, 136, 51, 9, 183],
    300: [169, 221, 146, 296, 92],
}
FIELD = Transform(size=224, margin=256 / 224, scale=(0.05, 1.0), ratio=(3 / 4, 4 / 3), flip=0.5)


def picture(number: int, kind: str = "JPEG") -> bytes:
    random = np.random.default_rng(number)
    out = io.BytesIO()
    Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8)).save(out, kind)
    return out.getvalue()


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def tarred(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def processed(classes: list[str], top: str, train: int = 1) -> dict[str, bytes]:
    """train/test/class/picture below one folder, with the leftovers such zips carry."""
    count = iter(range(10**6))
    files = {
        f"{top}/train/{c}/{i}.jpg": picture(next(count)) for c in classes for i in range(train)
    }
    files |= {f"{top}/test/{c}/t.jpg": picture(next(count)) for c in classes}
    return files | {
        f"{top}/README.txt": b"hello",
        f"__MACOSX/{top}/train/{classes[0]}/._0.jpg": b"junk",
    }


def wordnet(n: int) -> list[str]:
    return [f"n{1443537 + 7 * i:08d}" for i in range(n)]


def birds(n: int) -> list[str]:
    return [f"{i + 1:03d}.Bird_{i}" for i in range(n)]


PARTS = ("airplane", "banded", "Abyssinian", "AnnualCrop", "alpine")
PROCESSED: dict[str, tuple[str, list[str]]] = {
    "imagenet-r": ("imagenet-r.zip", wordnet(200)),
    "imagenet-a": ("ina.zip", wordnet(200)),
    "cub": ("cub.zip", birds(200)),
    "omnibenchmark": ("omnibenchmark.zip", [f"{i:04d}" for i in range(300)]),
    "vtab": ("vtab.zip", [f"{i:02d}_{PARTS[i // 10]}_{i % 10}" for i in range(50)]),
}


@pytest.fixture
def miniature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], Path]:
    """Prepare a dataset from a miniature, whose md5 and counts are not the published ones."""
    monkeypatch.setenv("SAFECL_CACHE", "off")
    for module in ("cifar", "flowers102", "stl10", "svhn"):
        monkeypatch.setattr(
            f"torchvision.datasets.{module}.check_integrity",
            lambda path, md5: Path(path).is_file(),
        )

    def lay_out(name: str, source: Path) -> Path:
        dataset = DATASETS[name]
        files = [source] if source.is_file() else source.iterdir()
        here = {file.name: file for file in files if file.is_file()}
        archives = tuple(
            replace(a, md5=md5_of(here[a.name])) if a.name in here else a for a in dataset.archives
        )
        dataset = replace(dataset, archives=archives)
        prepare(dataset, source, tmp_path / "root")
        return tmp_path / "root"

    return lay_out


def opened(name: str, root: Path, **options):
    with pytest.warns(UserWarning, match="pictures; here are"):
        return open_stream(name, root=root, **options)


@pytest.mark.parametrize("name", PROCESSED)
def test_a_processed_zip_is_prepared_checked_and_streamed(
    name: str, tmp_path: Path, miniature
) -> None:
    archive, classes = PROCESSED[name]
    dataset = DATASETS[name]
    root = miniature(name, zipped(tmp_path / archive, processed(classes, name)))
    assert record(root / dataset.folder)["split"] == "processed"
    report = check_stream(DatasetSettings(name=name, root=root))
    assert report.problems == [] and any("here are" in line for line in report.warnings)
    stream = opened(name, root)
    order = FIRST_OF_1993.get(len(classes), list(range(5))) if dataset.shuffled else list(range(5))
    assert stream.labels[:5] == [classes[i] for i in order]
    assert sorted(stream.labels) == sorted(classes)
    assert [len(c) for _, c in stream.sessions] == [dataset.step] * (5 if name == "vtab" else 10)
    assert stream.transform == FIELD and stream.protocol == "class"
    assert "processed archive" in stream.split
    assert [(len(s.train), len(stream.test(s.number))) for s in stream] == [
        (dataset.step,) * 2
    ] * len(stream)


def test_vtab_is_never_shuffled_and_has_one_domain_a_session(tmp_path: Path, miniature) -> None:
    archive, classes = PROCESSED["vtab"]
    stream = opened(
        "vtab",
        miniature("vtab", zipped(tmp_path / archive, processed(classes, "vtab"))),
        order_seed=1993,
    )
    assert stream.labels == classes
    for part, (_, mine) in zip(PARTS, stream.sessions, strict=True):
        assert all(part in str(label) for label in mine)


def test_cub_in_its_official_form_has_the_official_split(tmp_path: Path, miniature) -> None:
    names = birds(200)
    paths = [f"{c}/{c}_{k}.jpg" for c in names for k in range(2)]
    files = {f"CUB_200_2011/images/{p}": picture(i) for i, p in enumerate(paths)}
    lists = {
        "images.txt": [f"{i + 1} {p}" for i, p in enumerate(paths)],
        "train_test_split.txt": [f"{i + 1} {1 - i % 2}" for i in range(len(paths))],
        "image_class_labels.txt": [f"{i + 1} {i // 2 + 1}" for i in range(len(paths))],
    }
    files |= {f"CUB_200_2011/{name}": "\n".join(lines).encode() for name, lines in lists.items()}
    root = miniature("cub", tarred(tmp_path / "CUB_200_2011.tgz", files))
    assert (root / "cub/train" / f"{names[3]}/{names[3]}_0.jpg").is_file()
    assert (root / "cub/test" / f"{names[3]}/{names[3]}_1.jpg").is_file()
    assert any(
        "official split) has 5994" in line
        for line in check_stream(DatasetSettings(name="cub", root=root)).warnings
    )
    stream = opened("cub", root)
    assert stream.labels[:3] == [names[i] for i in (168, 136, 51)]
    assert "published with the pictures" in stream.split


def python2_pickle(value: object) -> bytes:
    """The bytes that Python 2 wrote (protocol 2), in which CIFAR-100 is published."""

    def dump(v: object) -> bytes:
        if isinstance(v, str):
            return b"T" + struct.pack("<i", len(v)) + v.encode("latin1")
        if v is None or isinstance(v, bool):
            return {None: b"N", True: b"\x88", False: b"\x89"}[v]
        if isinstance(v, int):
            return b"J" + struct.pack("<i", v)
        if isinstance(v, list):
            return b"](" + b"".join(map(dump, v)) + b"e"
        if isinstance(v, tuple):
            return b"(" + b"".join(map(dump, v)) + b"t"
        if isinstance(v, dict):
            return b"}(" + b"".join(dump(k) + dump(x) for k, x in v.items()) + b"u"
        assert isinstance(v, np.ndarray)
        kind = (
            b"cnumpy\ndtype\n"
            + dump(("u1", 0, 1))
            + b"R"
            + dump((3, "|", None, None, None, -1, -1, 0))
            + b"b"
        )
        empty = (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
            + dump((0,))
            + dump("b")
            + b"tR"
        )
        state = (
            b"("
            + dump(1)
            + dump(v.shape)
            + kind
            + dump(False)
            + dump(v.tobytes().decode("latin1"))
            + b"t"
        )
        return empty + state + b"b"

    return b"\x80\x02" + dump(value) + b"."


def cifar(pickled: Callable[[object], bytes]) -> dict[str, bytes]:
    random = np.random.default_rng(0)
    names = [f"thing{i:02d}" for i in range(100)]
    files = {
        "meta": pickled({"fine_label_names": names, "coarse_label_names": ["all"]}),
        "file.txt~": b"",
    }
    for part, each in (("train", 2), ("test", 1)):
        labels = [i % 100 for i in range(100 * each)]
        data = random.integers(0, 256, (len(labels), 3072), dtype=np.uint8)
        files[part] = pickled(
            {"data": data, "fine_labels": labels, "filenames": ["x.png"] * len(labels)}
        )
    return {f"cifar-100-python/{name}": data for name, data in files.items()}


@pytest.mark.parametrize(
    "pickled", [python2_pickle, lambda v: pickle.dumps(v, protocol=2)], ids=["python2", "python3"]
)
def test_cifar_pickles_are_prepared_checked_and_streamed(
    tmp_path: Path, miniature, pickled
) -> None:
    files = cifar(pickled)
    root = miniature("cifar100", tarred(tmp_path / "cifar-100-python.tar.gz", files))
    assert check_stream(DatasetSettings(name="cifar100", root=root)).problems == []
    stream = opened("cifar100", root)
    assert stream.labels[:5] == [f"thing{i:02d}" for i in FIRST_OF_1993[100]]
    assert [len(c) for _, c in stream.sessions] == [10] * 10
    assert stream.transform == replace(FIELD, margin=1.0) and stream.transform.resize == 224
    session = stream.open(1)
    assert len(session.train) == 20 and len(stream.test(1)) == 10
    row = pickle.loads(files["cifar-100-python/test"], encoding="latin1")["data"][68]
    position = list(stream.test(1).labels).index("thing68")
    assert (
        np.asarray(stream.test(1).decode(position)) == row.reshape(3, 32, 32).transpose(1, 2, 0)
    ).all()
    assert session.train.canvas([0], stream.transform)[0].shape == (1, 3, 32, 32)
    assert session.train.plain([0], stream.transform).shape == (1, 3, 224, 224)


class Evil:
    def __reduce__(self):
        return (print, ("it ran",))


@pytest.mark.parametrize(
    "data", [b"", pickle.dumps({"data": Evil(), "fine_labels": []})], ids=["empty", "evil"]
)
def test_files_that_are_not_those_of_cifar_are_refused_unopened(
    tmp_path: Path, data: bytes, capsys
) -> None:
    for name in ("train", "test", "meta"):
        (tmp_path / "cifar-100-python").mkdir(exist_ok=True)
        (tmp_path / "cifar-100-python" / name).write_bytes(data)
    with raises("dataset.files.not-published", name="cifar100"):
        open_stream("cifar100", root=tmp_path)
    assert "it ran" not in capsys.readouterr().out


def domainnet(folder: Path) -> Path:
    """Zips and lists: two classes far apart in the numbering; quickdraw's drawings are grey
    PNGs.
    """
    folder.mkdir()
    numbers = {"aircraft_carrier": 0, "The_Eiffel_Tower": 301, "zigzag": 344}
    for d, domain in enumerate(DATASETS["domainnet"].domains):
        suffix, kind = ("png", "PNG") if domain == "quickdraw" else ("jpg", "JPEG")
        files = {
            f"{domain}/{c}/{domain}_{k:03d}.{suffix}": picture(100 * d + 10 * number % 97 + k, kind)
            for c, number in numbers.items()
            for k in range(3)
        }
        zipped(folder / f"{domain}.zip", files)
        for part, wanted in (("train", (0, 1)), ("test", (2,))):
            lines = [
                f"{name} {numbers[name.split('/')[1]]}"
                for name in files
                if int(name[-7:-4]) in wanted
            ]
            (folder / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_domainnet_zips_and_lists_are_prepared_checked_and_streamed(
    tmp_path: Path, miniature
) -> None:
    root = miniature("domainnet", domainnet(tmp_path / "downloads"))
    place = root / "DomainNet"
    assert (place / "train/real/zigzag/real_001.jpg").is_file() and (
        place / "test/real/zigzag/real_002.jpg"
    ).is_file()
    report = check_stream(DatasetSettings(name="domainnet", root=root))
    assert not any("cannot be read" in line for line in report.problems)
    stream = opened("domainnet", root)
    classes = ("The_Eiffel_Tower", "aircraft_carrier", "zigzag")
    assert [name for name, _ in stream.sessions] == [
        "real",
        "quickdraw",
        "painting",
        "sketch",
        "infograph",
        "clipart",
    ]
    assert all(c == classes for _, c in stream.sessions) and stream.protocol == "domain"
    assert stream.transform == FIELD
    assert [(len(s.train), len(stream.test(s.number))) for s in stream] == [(6, 3)] * 6


def test_domainnet_says_what_is_missing(tmp_path: Path, miniature) -> None:
    folder = domainnet(tmp_path / "downloads")
    (folder / "real.zip").unlink()
    with raises("dataset.source.no-picture", name="real/The_Eiffel_Tower/real_000.jpg"):
        miniature("domainnet", folder)
    (folder / "sketch_test.txt").unlink()
    with raises("dataset.domainnet.lacking", missing="sketch_test.txt"):
        miniature("domainnet", folder)


def test_an_unpacked_folder_can_be_prepared_from(tmp_path: Path, miniature) -> None:
    for name, data in processed(wordnet(3), "imagenet-r").items():
        (tmp_path / "unpacked" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "unpacked" / name).write_bytes(data)
    root = miniature("imagenet-r", tmp_path / "unpacked")
    assert sorted(p.name for p in (root / "imagenet-r/train").iterdir()) == wordnet(3)


def test_the_sheet_of_facts_is_what_the_datasets_say() -> None:
    facts = {
        "cifar100": (100, (50_000, 10_000), 10, 10),
        "imagenet-r": (200, (24_000, 6_000), 20, 20),
        "imagenet-a": (200, (5_981, 1_519), 20, 20),
        "cub": (200, (9_430, 2_358), 20, 20),
        "omnibenchmark": (300, (89_697, 5_985), 30, 30),
        "vtab": (50, (1_796, 8_619), 10, 10),
        "domainnet": (345, (409_832, 176_743), 345, 345),
        "cars": (196, (8_144, 8_041), 16, 20),
        "food101": (101, (75_750, 25_250), 11, 10),
        "core50": (50, (119_894, 44_972), 50, 50),
        "office-home": (65, (12_470, 3_118), 65, 65),
        "flowers102": (102, (2_040, 6_149), 12, 10),
        "pets": (37, (3_680, 3_669), 7, 10),
        "aircraft": (100, (6_667, 3_333), 10, 10),
        "dtd": (47, (3_760, 1_880), 7, 10),
        "eurosat": (10, (21_600, 5_400), 2, 2),
        "gtsrb": (43, (26_640, 12_630), 3, 5),
        "cifar10": (10, (50_000, 10_000), 2, 2),
        "svhn": (10, (73_257, 26_032), 2, 2),
        "stl10": (10, (5_000, 8_000), 2, 2),
    }
    assert {
        name: (d.classes, next(iter(d.counts.values())), d.first, d.step)
        for name, d in DATASETS.items()
    } == facts
    assert [name for name, d in DATASETS.items() if not d.shuffled] == [
        "vtab",
        "domainnet",
        "core50",
        "office-home",
    ]
    assert tuple(DATASETS) == NAMES
    for dataset in DATASETS.values():
        assert dataset.licence and dataset.fetch.endswith(".")


def test_right_counts_are_not_warned_about(
    tmp_path: Path, miniature, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, classes = PROCESSED["vtab"]
    root = miniature("vtab", zipped(tmp_path / archive, processed(classes, "vtab")))
    monkeypatch.setitem(
        DATASETS.own, "vtab", replace(DATASETS["vtab"], counts={"processed": (50, 50)})
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_stream("vtab", root=root)


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_that_is_not_there_says_what_to_fetch(name: str, tmp_path: Path) -> None:
    with raises("dataset.not-prepared", fetch=re.compile(f"safecl data prepare {name}")):
        open_stream(name, root=tmp_path)
