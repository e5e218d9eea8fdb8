"""The page with its figures is whole by itself, valid, told in words as well, and the same each
time.
"""

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from safecl.report.page import write_page


def test_no_other_script_than_the_pages_own_may_run(drawn: str) -> None:
    """A name in a run folder that looked like a script would be escaped; if it were not, it would
    not run.
    """
    script = drawn[drawn.index("<script>") + len("<script>") : drawn.index("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', drawn)
    assert (
        policy
        and f"script-src 'sha256-{digest}'" in policy[1]
        and "default-src 'none'" in policy[1]
    )


def test_page_needs_nothing_from_outside(drawn_page: Any) -> None:
    assert drawn_page.tags["script"] == 1 and ("script", "src") not in [
        part[:2] for part in drawn_page.attributes
    ]
    links = drawn_page.values("src") + drawn_page.values("href")
    assert [link for link in links if not link.startswith(("data:", "#"))] == []


def test_ids_are_unique_and_references_resolve(drawn: str, drawn_page: Any) -> None:
    ids = drawn_page.values("id")
    assert len(ids) == len(set(ids))
    inner = re.findall(r'(?:href="|url\()#([^")]+)', drawn)
    assert inner and set(inner) <= set(ids)
    assert set(drawn_page.values("aria-labelledby")) <= set(ids)


def test_every_picture_and_figure_is_said_in_words(drawn_page: Any) -> None:
    said = [
        tag
        for tag, key, value in drawn_page.attributes
        if (tag, key) in {("svg", "aria-label"), ("img", "alt")} and value
    ]
    assert said.count("img") == drawn_page.tags["img"] > 0
    assert said.count("svg") == drawn_page.tags["svg"] > 0


def test_figures_follow_the_pages_theme(drawn: str) -> None:
    figures = "".join(re.findall(r"<svg.*?</svg>", drawn, flags=re.DOTALL))
    # Only matplotlib's own black and white may be left, as defaults of invisible things.
    assert set(re.findall(r"#[0-9a-f]{6}\b", figures)) <= {"#000000", "#ffffff"}
    assert "var(--f-0068b0)" in figures and "--f-0068b0: light-dark(#0068b0, #5ab0f0)" in drawn


def test_runs_that_show_the_same_picture_share_a_card(drawn_page: Any) -> None:
    assert drawn_page.tags["img"] == 8 + 2  # mistakes of a confused pair


def test_same_folders_give_the_same_bytes(make_run: Any, tmp_path: Path) -> None:
    folder = make_run(sessions=1)
    first, second = (
        write_page([folder], tmp_path / name, "T").read_bytes() for name in ("1.html", "2.html")
    )
    assert first == second
