"""The page of docs/browser answers in a real browser as Python does from the same file, and asks no
other server.
"""

import contextlib
import functools
import http.server
import json
import os
import shutil
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import safecl
from safecl.errors import SafeclError

from .browser import Page, browser, find_chromium

ROOT = Path(__file__).parents[2]
PACKAGE = Path(os.environ.get("NODE_PATH", ROOT / "node_modules")) / "onnxruntime-web" / "dist"
pytestmark = [
    pytest.mark.skipif(
        find_chromium() is None or os.name != "posix", reason="no Chromium is installed here"
    ),
    pytest.mark.skipif(
        not PACKAGE.is_dir(),
        reason="npm install onnxruntime-web has not been run here (or NODE_PATH)",
    ),
]
ASK = """(async () => {
  try { return await answer(await (await fetch("%s")).blob()); }
  catch (error) { return {error: error.message}; }
})()"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page and the runtime."""
    folder = tmp_path_factory.mktemp("site")
    for file in (*(ROOT / "docs/browser").iterdir(), PACKAGE / "ort.wasm.bundle.min.mjs"):
        shutil.copy(file, folder)
    (folder / "ort-wasm-simd-threaded.wasm").symlink_to(PACKAGE / "ort-wasm-simd-threaded.wasm")
    return folder


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    """Where a folder is served meanwhile."""
    handler = type(
        "Silent", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None}
    )
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(site))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the folder is served."""
    with served(site) as found:
        yield found


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with browser(str(find_chromium())) as page:
        yield page


def compare(
    tab: Page, address: str, site: Path, file: Path, pictures: list[Path], close: float
) -> list[Any]:
    """The answers of the page, which are those of Python."""
    shutil.copy(file, site / "model.onnx")
    model: Any = safecl.load(file)
    tab.open(f"{address}index.html")
    tab.wait("document.getElementById('state').textContent.startsWith('Ready')")
    said = []
    for i, picture in enumerate(pictures):
        name = f"{i}{picture.suffix}"
        shutil.copy(picture, site / name)
        there = tab.evaluate(ASK % name)
        said.append(there)
        try:
            here = model.explain(picture)[0]
        except SafeclError as error:
            assert there["error"] in str(error), (picture, there)
            continue
        p = None if here.probability is None else float(model.predict_proba(picture).max())
        assert there["probability"] == pytest.approx(p, abs=close), picture
        assert (there["label"], there["unknown"]) == (str(here.label), bool(here.unknown)), (
            picture,
            here,
        )
    assert tab.complaints() == [] and tab.requests(own=address) == []
    return said


def test_odd_pictures_get_the_answers_of_python(
    tab: Page,
    address: str,
    site: Path,
    exported: tuple[Path, Path],
    lesson: Callable[..., Any],
    tmp_path: Path,
) -> None:
    images, labels = lesson("abcdef", 1, seed=9)
    base = [Image.fromarray(image).resize((90, 60), Image.Resampling.NEAREST) for image in images]
    turned = Image.Exif()
    turned[0x0112] = 6
    alpha = Image.linear_gradient("L").resize((90, 60)).point(lambda value: 80 + value // 2)
    base[0].save(tmp_path / "plain.png")
    base[1].save(tmp_path / "turned.jpg", exif=turned, quality=95)
    base[2].convert("L").save(tmp_path / "grey.png")
    Image.merge("RGBA", (*base[3].split(), alpha)).save(tmp_path / "rgba.png")
    Image.fromarray(np.asarray(base[4].convert("L")).astype(np.uint16) * 257).save(
        tmp_path / "deep.png"
    )
    base[5].resize((1, 1)).save(tmp_path / "dot.png")
    base[0].resize((8000, 10)).save(tmp_path / "strip.png")
    base[1].resize((17, 500)).save(tmp_path / "high.png")
    base[2].quantize(32).save(tmp_path / "palette.gif")
    pictures = sorted(tmp_path.iterdir())
    said = dict(
        zip(
            [path.stem for path in pictures],
            compare(tab, address, site, exported[1], pictures, 0.02),
            strict=True,
        )
    )
    assert (
        said["strip"] == {"error": "a strip of 8000 × 10 pixels"}
        and said["plain"]["label"] == labels[0]
    )
    assert len({answer.get("label") for answer in said.values()}) > 2


KEPT = """caches.open("safecl").then((kept) => Promise.all(
  ["./", "model.onnx", "ort-wasm-simd-threaded.wasm"].map((one) => kept.match(one))))
  .then((found) => found.every(Boolean) && Boolean(navigator.serviceWorker.controller))"""


def test_once_visited_it_can_be_installed_and_answers_without_a_network(
    tab: Page, site: Path, exported: tuple[Path, Path], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    shutil.copy(exported[1], site / "model.onnx")
    Image.fromarray(lesson("a", 1, seed=9)[0][0]).save(tmp_path / "a.png")
    ready = "document.getElementById('state').textContent.startsWith('Ready')"
    with served(site) as address:
        tab.open(address)
        tab.wait(ready)
        until = time.monotonic() + 60
        while not tab.evaluate(KEPT) and time.monotonic() < until:
            time.sleep(0.1)
        found = tab.call("Page.getAppManifest")
        assert found["errors"] == [] and json.loads(found["data"])["display"] == "standalone"
        assert tab.call("Page.getInstallabilityErrors")["installabilityErrors"] == []
    tab.open("about:blank")
    tab.open(address)
    tab.wait(ready)
    choose(tab, "pictures", tmp_path / "a.png")
    tab.wait("document.querySelector('li span')?.textContent")
    model: Any = safecl.load(exported[1])
    here = model.explain(tmp_path / "a.png")[0]
    assert str(here.label) in tab.evaluate("document.querySelector('li span').textContent")


def test_a_chosen_model_answers_and_a_damaged_or_foreign_one_is_refused(
    tab: Page, address: str, exported: tuple[Path, Path], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    """No picture can be chosen where no model can answer."""
    onnx = pytest.importorskip("onnx")
    whole = exported[1].read_bytes()
    (tmp_path / "damaged.onnx").write_bytes(whole[:-5000])
    weight = max(
        onnx.load(exported[1]).graph.initializer, key=lambda tensor: len(tensor.raw_data)
    ).raw_data
    at = whole.index(weight) + 2
    (tmp_path / "flipped.onnx").write_bytes(whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
    head = '<ir_version: 10, opset_import: ["": 18]> g (float[N] x) => (float[N] y)'
    onnx.save(onnx.parser.parse_model(f"{head} {{ y = Neg (x) }}"), tmp_path / "foreign.onnx")
    for label, array in zip("ab", lesson("ab", 1, seed=9)[0], strict=True):
        Image.fromarray(array).save(tmp_path / f"{label}.png")
    (tmp_path / "c.png").write_bytes(b"no picture")
    tab.open(f"{address}index.html")
    tab.wait("!document.getElementById('state').textContent.startsWith('Loading')")
    for file, told in (
        (tmp_path / "damaged.onnx", "The model cannot be read: "),
        (exported[1], "Ready"),
        (tmp_path / "flipped.onnx", "The model cannot be read: it is damaged"),
        (tmp_path / "foreign.onnx", "The model cannot be read: it is of another program"),
        (exported[1], "Ready"),
    ):
        choose(tab, "model", file)
        tab.wait(f"document.getElementById('state').textContent.startsWith({json.dumps(told)})")
        assert tab.evaluate("document.getElementById('pictures').disabled") == (told != "Ready")
    choose(tab, "pictures", *(tmp_path / f"{label}.png" for label in "abc"))
    tab.wait(
        "[...document.querySelectorAll('li span')].filter((words) => words.textContent).length == 3"
    )
    said = tab.evaluate(
        "[...document.querySelectorAll('li span')].map((words) => words.textContent)"
    )
    model: Any = safecl.load(exported[1])
    expected = [
        (
            f"unknown, most similar: {one.label}"
            if one.unknown
            else f"{one.label} ({100 * one.probability:.0f} %)"
        )
        for one in model.explain([tmp_path / "b.png", tmp_path / "a.png"])
    ]
    assert said[0].startswith("c.png cannot be read: ") and said[1:] == expected


def choose(tab: Page, control: str, *files: Path) -> None:
    """Choose files as a person does."""
    script = f"document.getElementById('{control}')"
    found = tab.call("Runtime.evaluate", expression=script)["result"]["objectId"]
    tab.call("DOM.setFileInputFiles", files=[str(file) for file in files], objectId=found)


@pytest.mark.slow
def test_twenty_photographs_get_the_answers_of_python(
    tab: Page, address: str, site: Path, asset: Callable[[str], Path], tmp_path: Path
) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    from safecl.classifier.answers.export import export_onnx
    from safecl.classifier.model import Model

    photographs: dict[str, list[Path]] = {}
    with zipfile.ZipFile(asset("pictures/flowers102_20x12.zip")) as archive:
        for name in sorted(
            name
            for name in archive.namelist()
            if "/train/" in f"/{name}" and not name.endswith("/")
        ):
            label = Path(name).parent.name
            if label in photographs or len(photographs) < 5:
                photographs.setdefault(label, []).append(Path(archive.extract(name, tmp_path)))
    model = safecl.ContinualClassifier(device="cpu", seed=0)
    for classes in (list(photographs)[:3], list(photographs)[3:5]):
        some = [(path, label) for label in classes for path in photographs[label][4:]]
        model.learn([str(path) for path, _ in some], [label for _, label in some])
    model.save(tmp_path / "m.safecl")
    held = [path for label in photographs for path in photographs[label][:4]][:20]
    assert len(held) == 20
    for precision in ("fp32", "fp16"):
        export_onnx(Model.open(tmp_path / "m.safecl"), tmp_path / "m.onnx", precision, force=True)
        said = compare(tab, address, site, tmp_path / "m.onnx", held, 0.05)
        assert len({answer["label"] for answer in said}) == 5
