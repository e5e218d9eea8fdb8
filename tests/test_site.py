"""The documentation builds into a site strictly, whole, and without a request to the network."""

import os
import re
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

from safecl.cli.info import every_key
from safecl.methods.catalog import method_settings

from .report.browser import browser, find_chromium

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings_handlers")),
    reason="mkdocs and its plugins are not installed; pip install '.[docs]' brings them",
)


class Silent(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does."""
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_document_is_a_page_and_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    for document in sorted((ROOT / "docs").glob("*.md")):
        assert (site / f"{document.stem}.html").is_file()
        assert f'href="{document.stem}.html"' in home or document.stem == "index", document.name


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(
            r'<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)="([^"]*)"', text
        )
        assert [address for address in loaded if re.match(r"(https?:)?//", address)] == [], (
            page.name
        )
    for sheet in site.rglob("*.css"):
        assert not re.search(
            r"(@import|url\()\s*['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")
        ), sheet.name


def test_every_setting_and_every_paper_is_there(site: Path) -> None:
    settings = (site / "settings.html").read_text(encoding="utf-8")
    assert [key.name for key in every_key() if f"<code>{key.name}</code>" not in settings] == []
    methods = (site / "methods.html").read_text(encoding="utf-8")
    assert [name for name in method_settings() if f"<code>{name}</code>" not in methods] == []
    assert "NeurIPS 2024" in methods


def test_the_public_names_are_documented(site: Path) -> None:
    import safecl

    text = (site / "api.html").read_text(encoding="utf-8")
    # the first is a table of settings, which have a page
    left_out = {
        "METHODS",
        "__version__",
        "RunSettings",
    }
    assert [
        name for name in safecl.__all__ if name not in left_out and f'.{name}"' not in text
    ] == []


@pytest.mark.skipif(
    find_chromium() is None or os.name != "posix", reason="no Chromium is installed here"
)
def test_pages_open_in_a_browser_without_error_or_request_to_elsewhere(site: Path) -> None:
    handler = partial(Silent, directory=str(site))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        browser(str(find_chromium())) as tab,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        own = f"http://127.0.0.1:{server.server_port}/"
        for name in ("index", "quickstart", "settings", "api"):
            tab.open(f"{own}{name}.html", 390)
            assert tab.complaints() == [] and tab.requests(own) == [], name
            assert tab.evaluate("document.documentElement.scrollWidth") <= 390, name
        server.shutdown()
