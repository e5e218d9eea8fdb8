"""Headless Chromium teaches, asks, corrects and undoes on the page of a running service. With
PAGE_SHOTS: screenshots.

axe-core is looked for in NODE_PATH (npm install axe-core); the rest is tested without it, too.
"""

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safecl.classifier.classifier import ContinualClassifier
from safecl.outputs import locked

from ..report.browser import CONTROL, SHIFT, Page, browser, find_chromium
from .conftest import png, text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_chromium() is None or os.name != "posix", reason="no Chromium is installed here"
    ),
]
ROOT = Path(__file__).parents[2]
AXE = Path(os.environ.get("NODE_PATH", ROOT / "node_modules")) / "axe-core" / "axe.min.js"
SHOTS = os.environ.get("PAGE_SHOTS")
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
LOOKS = {
    "desktop-light": (1280, False),
    "phone-dark": (360, True),
    "desktop-dark": (1280, True),
    "phone-light": (360, False),
}
GIVE = """((files) => {
  const given = new DataTransfer(), input = document.getElementById("files");
  for (const [name, data] of files) {
    given.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))],
                                name, { type: "image/png" }));
  }
  input.files = given.files;
  input.dispatchEvent(new Event("change"));
})(%s)"""
WRONG = """axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations
  .map(({ id, nodes }) => id + ": " + nodes.map((node) => node.html).join(" ").slice(0, 500)))"""


class Visit:
    """A page of the service in the browser, and the service asked beside it."""

    def __init__(self, tab: Page, address: str, look: str, again: bool = False) -> None:
        self.tab = tab
        self.address = address
        self.look = look
        width, dark = LOOKS[look]
        tab.open("about:blank")  # the same address again would not be loaded anew
        if not again:  # what another test has given and not taught
            origin = address.rstrip("/")
            tab.call("Storage.clearDataForOrigin", origin=origin, storageTypes="indexeddb")
        tab.open(f"{address}#pictures", width, 900 if width > 400 else 740, dark)
        tab.wait("document.getElementById('version').textContent")

    def api(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.address}api/{path}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    @property
    def classes(self) -> list[str]:
        return [one["label"] for one in self.api("models/m")["classes"]]

    def give(self, pictures: list[bytes], name: str = "p") -> None:
        files = [
            (f"{name}{i}.png", base64.b64encode(one).decode()) for i, one in enumerate(pictures)
        ]
        self.tab.evaluate(GIVE % json.dumps(files))

    def click(self, selector: str, place: int = 0) -> None:
        self.tab.evaluate(f"document.querySelectorAll({selector!r})[{place}].click()")

    def type(self, words: str) -> None:
        for character in words:
            self.tab.press(character)

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.tab.evaluate(
            f"[...document.querySelectorAll({selector!r})].map((n) => n.textContent)"
        )
        return found

    def view(self, name: str) -> None:
        self.tab.evaluate(f"location.hash = {name!r}")
        self.tab.wait(f"!document.getElementById('view_{name}').hidden")

    def answered(self, count: int) -> None:
        self.tab.wait(f"document.querySelectorAll('.card').length === {count}")
        self.tab.wait("![...document.querySelectorAll('.answer')].some((one) => one.disabled)")

    def posted(self, what: str) -> int:
        sent = [
            e["params"]["request"]
            for e in self.tab.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        return sum(one["method"] == "POST" and one["url"].endswith(f"/{what}") for one in sent)

    def check(self, name: str) -> None:
        """Nothing is wrong with what is shown now; a screenshot is kept where one is wanted."""
        time.sleep(0.4)  # what moves has arrived
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            self.tab.screenshot(Path(SHOTS) / f"{self.look}-{name}.png", whole=False)
        assert self.tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (
            f"{name} is too wide"
        )
        if AXE.is_file():
            self.tab.evaluate(f"{AXE.read_text('utf-8')};0")
            assert self.tab.evaluate(WRONG) == [], name

    def end(self) -> None:
        assert self.tab.complaints() == []
        assert [
            url
            for url in self.tab.requests(self.address)
            if not url.startswith(f"blob:{self.address}")
        ] == []


@contextlib.contextmanager
def running(*models: Path, **options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A service of models: where it is, and its process."""
    pytest.importorskip("fastapi")
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [
        sys.executable,
        "-m",
        "safecl",
        "serve",
        *map(str, models),
        "--port",
        "0",
        "--device",
        "cpu",
        *words,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(r"http://\S+", said)
            assert found, said
            yield found[0], process
        finally:
            process.terminate()


@contextlib.contextmanager
def serving(*models: Path, **options: str) -> Iterator[str]:
    """Where a service of models is."""
    with running(*models, **options) as (found, _):
        yield found


@pytest.fixture(scope="module")
def path(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the model."""
    found = tmp_path_factory.mktemp("page") / "m.safecl"
    found.write_bytes(model_file.read_bytes())
    return found


@pytest.fixture(scope="module")
def address(path: Path) -> Iterator[str]:
    with serving(path) as found:
        yield found


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with browser(str(find_chromium()), *CAMERA) as page:
        yield page


@pytest.fixture(scope="module")
def pictures(lesson: Callable[..., Any]) -> Callable[..., list[bytes]]:
    """``pictures("ab", 2, seed)``: PNG files of classes."""
    return lambda classes, each, seed: [png(image) for image in lesson(classes, each, seed)[0]]


@pytest.mark.parametrize("look", list(LOOKS)[:2])
def test_pictures_are_asked_corrected_and_undone(
    tab: Page, address: str, look: str, pictures: Any
) -> None:
    visit = Visit(tab, address, look)
    seed = 20 + list(LOOKS).index(look)
    visit.check("empty")
    given = pictures("abcd", 2, seed)
    visit.give(given)
    visit.answered(8)
    expected = visit.api("models/m/predict?detail=1", {"pictures": [text(one) for one in given]})[
        "answers"
    ]
    names = ["Unknown" if one["unknown"] else one["label"] for one in expected]
    assert visit.texts(".answer .name") == names
    for one, more in zip(expected, visit.texts(".answer .more"), strict=True):
        sure = ">99" if 0.995 < one["probability"] < 1 else f"{round(100 * one['probability'])}"
        assert more == (f"most like {one['label']}" if one["unknown"] else f"{sure} % sure")
    visit.check("answers")

    before = visit.classes
    visit.click(".answer")
    visit.check("naming")
    visit.type("zebra")
    assert visit.texts("#naming_list li") == ["New class “zebra”"]
    tab.press("Enter")
    tab.wait("document.querySelector('.card.learned')")
    assert visit.texts(".answer .name")[0] == "zebra"
    assert visit.classes == [*before, "zebra"]
    visit.check("corrected")
    tab.press("z", CONTROL)
    tab.wait("!document.querySelector('.card.learned')")
    assert visit.classes == before
    tab.wait(f"document.querySelector('.answer .name').textContent === {names[0]!r}")

    sent = visit.posted("correct")
    tab.evaluate("document.querySelector('.card .photo').focus()")
    tab.press("ArrowRight", SHIFT)
    assert visit.texts("#count") == ["2 of 8 selected"]
    tab.press("2")  # the second nearest class of the first picture
    tab.press("1")  # of the third picture, at once
    tab.wait("document.querySelectorAll('.card.learned').length === 3")
    assert visit.posted("correct") == sent + 1
    second = expected[0]["nearest"][1][0]
    assert visit.texts(".answer .name")[:3] == [second, second, expected[2]["nearest"][0][0]]

    tab.press("0")
    tab.wait("document.getElementById('look').open")
    visit.click("#heat")
    tab.wait("document.getElementById('heat').ariaPressed === 'true'")
    tab.wait("document.getElementById('look_picture').complete")
    assert len(visit.texts("#opinions tr")) == 3
    visit.check("closer")
    tab.press("Escape")
    visit.click("#next")
    tab.wait("document.querySelector('.rank:not([hidden])')")
    assert visit.texts(".rank")[:5] == ["1", "2", "3", "4", "5"]  # the other three are learned
    visit.check("next")
    visit.end()


@pytest.mark.parametrize("look", list(LOOKS)[:2])
def test_a_session_is_taught_and_rolled_back(
    tab: Page, address: str, look: str, path: Path, pictures: Any
) -> None:
    visit = Visit(tab, address, look)
    seed = 30 + list(LOOKS).index(look)
    before = visit.classes
    visit.view("teach")
    for label in "xy":
        visit.click("#group_new")
        visit.type(label)
        visit.give(pictures(label, 4, seed), label)
        tab.wait(
            "document.querySelector('.group.active').querySelectorAll('.strip button').length ==="
            f" 4 && '{label}'"
        )
    assert visit.texts("#learn") == ["Learn 8 pictures of 2 classes"]
    visit.check("teach")
    visit.click("#learn")
    tab.wait("!document.getElementById('lesson_told').hidden", 120)
    assert visit.texts("#lesson_head") == ["Learned 8 pictures of 2 classes."]
    visit.check("learned")
    assert visit.classes == [*before, "x", "y"]
    visit.view("knows")
    assert len(visit.texts("#class_table tbody tr")) == len(before) + 2
    visit.check("knows")
    with tempfile.TemporaryDirectory() as folder:
        tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
        visit.click("#take_model")
        until = time.monotonic() + 30
        while not (kept := list(Path(folder).glob("m*.safecl"))) and time.monotonic() < until:
            time.sleep(0.1)
        assert kept[0].read_bytes() == path.read_bytes()
    visit.view("history")
    assert visit.texts("#steps strong")[0] == "learned"
    visit.check("history")
    visit.click("#steps button")
    visit.check("sure")
    tab.evaluate("document.querySelector('#sure button[value=yes]').click()")
    tab.wait(f"document.querySelectorAll('#class_table tbody tr').length === {len(before)}")
    assert visit.classes == before
    visit.end()


def test_the_camera_gives_pictures_and_the_sheet_is_read_while_drawing(
    tab: Page, address: str
) -> None:
    visit = Visit(tab, address, "phone-dark")
    visit.click("#camera_open")
    tab.wait("document.getElementById('video').videoWidth")
    visit.check("camera")
    visit.click("#shoot")
    visit.answered(1)
    visit.click("#camera_close")
    assert tab.evaluate("document.getElementById('video').srcObject.active") is False
    visit.click("#draw_open")
    stroke(tab, [(0.2, 0.2), (0.8, 0.8)])
    tab.wait("document.getElementById('draw_said').textContent !== 'Draw a character.'")
    tab.evaluate("document.getElementById('draw_name').focus()")
    visit.type("my sign")
    visit.check("draw")
    before = visit.classes
    tab.press("Enter")
    tab.wait("document.querySelector('.card.learned')")
    assert visit.classes == [*before, "my sign"]
    tab.press("z", CONTROL)  # in a text field it is the field's own
    tab.evaluate("document.querySelector('.toast button').click()")
    tab.wait("!document.querySelector('.card.learned')")
    assert visit.classes == before
    visit.end()


def stroke(tab: Page, points: list[tuple[float, float]]) -> None:
    """Draw a line on the sheet with the mouse; in shares of its sides."""
    tab.evaluate("document.getElementById('sheet').scrollIntoView()")
    box = tab.evaluate(
        "(({ x, y, width }) => [x, y,"
        " width])(document.getElementById('sheet').getBoundingClientRect())"
    )
    for i, (x, y) in enumerate(points):
        at = {
            "x": box[0] + x * box[2],
            "y": box[1] + y * box[2],
            "button": "left",
            "buttons": 1,
            "clickCount": 1,
        }
        tab.call("Input.dispatchMouseEvent", type="mouseMoved" if i else "mousePressed", **at)
    tab.call("Input.dispatchMouseEvent", type="mouseReleased", **{**at, "buttons": 0})


@pytest.mark.parametrize("look", list(LOOKS)[2:])
def test_every_view_is_sound_in_the_other_theme(
    tab: Page, address: str, look: str, pictures: Any
) -> None:
    visit = Visit(tab, address, look)
    visit.give(pictures("ab", 2, 40))
    visit.answered(4)
    visit.check("answers")
    visit.click(".answer")
    visit.check("naming")
    tab.press("Escape")
    for name in ("teach", "knows", "history"):
        visit.view(name)
        visit.check(name)
    visit.click("#help_open")
    visit.check("keys")
    tab.press("Escape")
    visit.click("#theme")
    assert tab.evaluate("document.documentElement.dataset.theme") == (
        "light" if LOOKS[look][1] else "dark"
    )
    visit.click("#theme")
    visit.end()


def test_a_fault_is_shown_as_its_sentence(tab: Page, address: str, pictures: Any) -> None:
    visit = Visit(tab, address, "desktop-light")
    visit.give([*pictures("a", 1, 50), b"no picture"])
    visit.answered(2)
    assert visit.texts(".answer .name")[1] == "–"
    assert visit.texts(".answer .more")[1]
    visit.click(".answer")
    visit.type("a\u202eb")
    tab.press("Enter")
    tab.wait("document.querySelector('.toast.bad')")
    assert "learned" not in visit.texts(".answer .more")[0]
    visit.check("fault")


PASTE = """((data) => {
  const given = new DataTransfer();
  given.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))],
                              "x.png", { type: "image/png" }));
  document.dispatchEvent(new ClipboardEvent(
    "paste", { clipboardData: given, bubbles: true, cancelable: true }));
})(%s)"""


def test_pictures_are_pasted_and_folders_are_dropped(
    tab: Page, address: str, pictures: Any, tmp_path: Path
) -> None:
    visit = Visit(tab, address, "desktop-light")
    tab.evaluate(PASTE % json.dumps(text(pictures("a", 1, 60)[0])))
    visit.answered(1)
    assert tab.evaluate("document.querySelector('.card .photo').ariaLabel").startswith(
        "pasted picture 1, "
    )
    visit.view("teach")
    for label in "uv":
        (tmp_path / "given" / label).mkdir(parents=True)
        for i, data in enumerate(pictures(label, 2, 60)):
            (tmp_path / "given" / label / f"{i}.png").write_bytes(data)
    (tmp_path / "given" / "u" / "notes.txt").write_text("none")
    data = {"items": [], "files": [str(tmp_path / "given")], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        tab.call("Input.dispatchDragEvent", type=kind, x=300, y=300, data=data)
    tab.wait("document.querySelectorAll('.group').length === 2")
    assert visit.texts("#learn") == ["Learn 4 pictures of 2 classes"]
    assert sorted(
        tab.evaluate("[...document.querySelectorAll('.group input')].map((one) => one.value)")
    ) == ["u", "v"]
    visit.check("dropped")
    visit.end()


def test_a_slip_in_a_name_is_pointed_out(tab: Page, address: str, pictures: Any) -> None:
    visit = Visit(tab, address, "phone-light")
    visit.give(pictures("z", 1, 61))
    visit.answered(1)
    visit.click(".answer")
    visit.type("zebra")
    tab.press("Enter")
    tab.wait("document.querySelector('.card.learned')")
    visit.click(".answer")
    for typed, said in (("zerba", "zebra"), ("zebrra", "zebra"), ("zoo", None), ("zebra", None)):
        tab.evaluate("document.getElementById('naming_text').select()")
        visit.type(typed)
        meant = [f"Did you mean “{said}”?"] if said else []
        assert [one for one in visit.texts("#naming_list li") if "mean" in one] == meant, typed
        if said:
            # Enter does what was typed
            assert visit.texts("#naming_list li")[0] == f"New class “{typed}”"
    visit.check("slip")
    tab.press("Escape")
    tab.evaluate("document.querySelector('.toast button').click()")
    tab.wait("!document.querySelector('.card.learned')")
    visit.end()


def test_a_lesson_is_stopped(tab: Page, address: str, path: Path, pictures: Any) -> None:
    visit = Visit(tab, address, "phone-dark")
    before = visit.api("models/m")["version"]
    visit.view("teach")
    visit.click("#group_new")
    visit.type("w")
    visit.give(pictures("w", 4, 62), "w")
    tab.wait("document.querySelectorAll('.strip button').length === 4")
    with locked(path):  # so that it does not end before it is stopped
        visit.click("#learn")
        tab.wait("document.getElementById('job_said').textContent === 'Learning: 0 %'")
        visit.check("job")
        visit.click("#job_stop")
        tab.wait("document.querySelector('.toast')", 120)
    assert "Stopped; the model is as it was." in visit.texts(".toast span")
    assert visit.api("models/m")["version"] == before and visit.texts("#learn") == [
        "Learn 4 pictures of 1 class"
    ]
    visit.click(".group .bar button")
    visit.end()


def test_what_is_taken_back_elsewhere_is_shown_and_the_button_stands_on_the_last_step(
    tab: Page, address: str, path: Path, pictures: Any
) -> None:
    visit = Visit(tab, address, "desktop-dark")
    visit.give(pictures("a", 1, 63))
    visit.answered(1)
    names = visit.texts(".answer .name")
    visit.click(".answer")
    visit.type("quagga")
    tab.press("Enter")
    tab.wait("document.querySelector('.card.learned')")
    model = ContinualClassifier.load(path, device="cpu")
    model.rename("quagga", "zonkey")
    model.save(path)
    step = visit.api("models/m")["rolls_back"]
    until = time.monotonic() + 20
    while visit.api("models/m")["history"][-1]["what"] != "rename" and time.monotonic() < until:
        time.sleep(0.2)
    tab.evaluate("window.dispatchEvent(new Event('focus'))")
    visit.view("history")
    tab.wait("document.querySelector('#steps strong').textContent === 'renamed'")
    buttons = (
        "[...document.querySelectorAll('#steps li')].map((one) =>"
        " Boolean(one.querySelector('button')))"
    )
    assert tab.evaluate(buttons)[:3] == [False, True, False]
    visit.check("renamed")
    assert visit.api("models/m/rollback", {"step": step})["job"]["state"] in ("waiting", "running")
    while visit.api("models/m")["rolls_back"] == step:
        time.sleep(0.2)
    tab.evaluate("window.dispatchEvent(new Event('focus'))")
    visit.view("pictures")
    tab.wait("!document.querySelector('.card.learned')")
    visit.answered(1)
    tab.wait(f"document.querySelector('.answer .name').textContent === {names[0]!r}")
    visit.end()


def test_the_token_is_asked_for_and_another_model_chosen(
    tab: Page, path: Path, pictures: Any, tmp_path: Path, new_model: Any, lesson: Any
) -> None:
    other = new_model()
    other.learn(*lesson("kl", 4))
    other.save(tmp_path / "other.safecl")
    first = tmp_path / "first.safecl"
    first.write_bytes(path.read_bytes())
    with serving(first, tmp_path / "other.safecl", token="right-token") as address:
        tab.open("about:blank")
        tab.open(address, 1280, 900)
        for given in ("wrong-token", "right-token"):
            tab.wait("document.getElementById('door').open")
            tab.evaluate(f"document.getElementById('door_token').value = '{given}'")
            tab.evaluate("document.querySelector('#door button').click()")
        tab.wait("document.getElementById('version').textContent")
        assert tab.evaluate(
            "[...document.querySelectorAll('#models option')].map((one) => one.value)"
        ) == [
            "first",
            "other",
        ]
        visit = object.__new__(Visit)
        visit.tab = tab
        visit.address = address
        visit.look = "desktop-light"
        visit.give(pictures("k", 1, 64))
        visit.answered(1)
        assert visit.texts(".answer .name")[0] != "k"
        tab.evaluate("(models.value = 'other', models.dispatchEvent(new Event('change')))")
        tab.wait("document.querySelector('.answer .name').textContent === 'k'")
        visit.view("knows")
        assert len(visit.texts("#class_table tbody tr")) == 2
        visit.check("other")
        denied = [one for one in tab.complaints() if "401" not in one]
        assert denied == [] and tab.requests(address) == [
            url for url in tab.requests(address) if "blob:" in url
        ]


@contextlib.contextmanager
def visiting_new(tab: Page, path: Path, look: str = "desktop-light") -> Iterator[Visit]:
    """The page of a model that is not there yet."""
    with serving(path) as address:
        yield Visit(tab, address, look)


def test_a_first_model_is_made_without_a_shell(tab: Page, tmp_path: Path, pictures: Any) -> None:
    path = tmp_path / "m.safecl"
    with visiting_new(tab, path, "phone-light") as visit:
        tab.wait("!document.getElementById('view_teach').hidden")
        assert visit.texts("#version") == ["nothing learned yet"]
        assert visit.texts("#head_teach") == ["Teach the first classes"]
        visit.check("new")
        for name in ("knows", "history", "pictures"):
            tab.evaluate(f"location.hash = {name!r}")
            tab.wait("!document.getElementById('nothing').hidden")
        visit.check("nothing")
        visit.click("#nothing a")
        tab.wait("!document.getElementById('view_teach').hidden")
        # From the keyboard alone.
        tab.evaluate("document.querySelector('.group input').focus()")
        visit.type("a")
        visit.give(pictures("a", 4, 70))
        tab.evaluate("document.querySelectorAll('.group input')[1].focus()")
        visit.give(pictures("b", 4, 71))
        assert visit.texts("#learn") == ["Learn 8 pictures of 2 classes"]
        tab.evaluate("document.getElementById('learn').focus()")
        tab.press("Enter")
        tab.wait("document.querySelector('.toast.bad')")
        assert visit.texts(".toast span") == ["Every class needs a name."]
        visit.type("b")
        tab.press("Enter")
        tab.wait("!document.getElementById('job').hidden")
        tab.wait("!document.getElementById('lesson_told').hidden", 240)
        assert visit.texts("#lesson_head") == ["Learned 8 pictures of 2 classes."]
        assert tab.evaluate("document.activeElement.id") == "lesson_ask"
        visit.check("first")
        assert visit.classes == ["a", "b"] and path.is_file()
        tab.press("Enter")
        tab.wait("!document.getElementById('view_pictures').hidden")
        visit.give(pictures("a", 1, 72))
        visit.answered(1)
        visit.click(".answer")
        visit.type("c")
        tab.press("Enter")
        tab.wait("document.querySelector('.card.learned')")
        assert visit.classes == ["a", "b", "c"]
        visit.end()


def test_a_lesson_outlives_the_page_and_the_service(
    tab: Page, tmp_path: Path, pictures: Any
) -> None:
    path = tmp_path / "m.safecl"
    loaded = "document.querySelectorAll('.strip button').length === 8"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with running(path, port=port) as (address, process):
        visit = Visit(tab, address, "desktop-dark")
        for i, label in enumerate("ab"):
            tab.evaluate(f"document.querySelectorAll('.group input')[{i}].focus()")
            visit.type(label)
            visit.give(pictures(label, 4, 73 + i), label)
        tab.wait(loaded)
        time.sleep(0.6)  # what is given has been kept
        visit = Visit(tab, address, "desktop-dark", again=True)
        tab.wait(loaded)
        assert tab.evaluate(
            "[...document.querySelectorAll('.group input')].map((one) => one.value)"
        ) == ["a", "b"]
        with locked(path):  # so that it does not end before the service does
            visit.click("#learn")
            tab.wait("document.getElementById('job_said').textContent === 'Learning: 0 %'")
            visit = Visit(tab, address, "desktop-dark", again=True)
            tab.wait(f"{loaded} && !document.getElementById('job').hidden")
            assert tab.evaluate("document.getElementById('learn').disabled")
            process.send_signal(signal.SIGKILL)
            tab.wait("document.querySelector('.toast.bad')")
            assert "The service does not answer; is it still running?" in visit.texts(".toast span")
            assert tab.evaluate(loaded)
    with serving(path, port=port) as address:
        visit = Visit(tab, address, "desktop-dark", again=True)
        tab.wait("!document.getElementById('lesson_told').hidden", 240)
        assert visit.texts("#lesson_head") == ["Learned 8 pictures of 2 classes."]
        assert visit.classes == ["a", "b"] and visit.texts(".strip button") == []
        visit = Visit(tab, address, "desktop-dark", again=True)
        time.sleep(0.6)
        assert visit.texts(".strip button") == []  # nor is it kept any more
        visit.end()


def test_what_cannot_be_learned_is_named_and_the_rest_is_kept(
    tab: Page, tmp_path: Path, pictures: Any
) -> None:
    with visiting_new(tab, tmp_path / "m.safecl") as visit:
        whole = pictures("a", 3, 75)
        tab.evaluate("document.querySelector('.group input').focus()")
        visit.type("tulip")
        visit.give([whole[0], b"", whole[1][: len(whole[1]) // 2], whole[2]], "x")
        assert visit.texts(".toast span") == ["x1.png is empty: 0 bytes."]
        tab.evaluate("document.querySelectorAll('.group input')[1].focus()")
        for typed, meant in (("tulpi", True), ("tulip 2", False), ("rose", False)):
            tab.evaluate("document.activeElement.select()")
            visit.type(typed)
            shown = tab.evaluate("!document.querySelectorAll('.meant')[1].hidden")
            assert shown is meant, typed
        visit.click("#learn")
        tab.wait("document.querySelector('.unread')")
        assert visit.texts(".toast span")[-1].startswith("x2.png of tulip cannot be read (")
        visit.check("unread")
        tab.evaluate("[...document.querySelectorAll('.toast button')].at(-2).click()")
        assert visit.texts("#learn") == ["Learn 2 pictures of 1 class"]
        assert visit.api("jobs")["jobs"] == []
        assert [one for one in tab.complaints() if "422" not in one] == []
