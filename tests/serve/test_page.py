"""The page's files hold together: words, ids and modules that are used exist, and nothing is loaded
from elsewhere.
"""

import re
from pathlib import Path

import safecl

PAGE = Path(safecl.__file__).parent / "serve" / "page"
SCRIPTS = {path.name: path.read_text("utf-8") for path in PAGE.glob("*.js")}
HTML, CSS = ((PAGE / name).read_text("utf-8") for name in ("index.html", "page.css"))
CODE = "\n".join(text for name, text in SCRIPTS.items() if name != "words.js")


def test_nothing_is_loaded_from_elsewhere() -> None:
    for text in (HTML, CSS, *SCRIPTS.values()):
        own = text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|[\"'(]//", own)
    assert "@import" not in CSS and "url(" not in CSS
    # the policy of the service forbids them
    assert not re.search(r"\son\w+=|\sstyle=|<script>|<style", HTML)


def test_every_module_that_is_imported_exists() -> None:
    wanted = set(re.findall(r'from "\./(.+?)"', CODE + SCRIPTS["words.js"]))
    assert wanted | {"page.js"} == set(SCRIPTS)
    assert set(re.findall(r'(?:href|src)="page/(.+?)"', HTML)) == {"page.js", "page.css"}
    for name, text in SCRIPTS.items():
        for names, module in re.findall(r'import \{ ([^}]+) \} from "\./(.+?)"', text):
            for one in names.split(", "):
                assert re.search(
                    rf"export (async )?(const|function) {re.escape(one)}(?!\w)", SCRIPTS[module]
                ), (
                    name,
                    one,
                )
                assert len(re.findall(rf"(?<![\w$]){re.escape(one)}(?!\w)", text)) > 1, (
                    f"{name} does not use {one}"
                )


def test_every_word_that_is_used_exists_and_the_reverse() -> None:
    table = SCRIPTS["words.js"].partition("export function")[0]
    words = set(re.findall(r"^  (\w+): ", table, re.M))
    said = set(re.findall(r'data-(?:word|label|hint)="(\w+)"', HTML))
    said |= set(re.findall(r'say\("(\w+)"', CODE + SCRIPTS["words.js"]))
    # chosen from a table, or by a condition
    quoted = set(re.findall(r'"(\w+)"', re.sub(r'\$\("\w+"\)', "", CODE)))
    assert said - words == set()
    assert words - said - quoted == set()
    assert not re.search(r"say\(`|say\([a-z]+\s*\+", CODE)


def test_words_stand_in_one_place() -> None:
    assert re.findall(r">\s*[A-Za-z][^<]*\s[^<]*<", re.sub(r"<!--.*?-->", "", HTML)) == []
    assert re.findall(r'textContent = (?:"|`)[^"`]*[a-z]{3}', CODE) == []


def test_every_id_that_is_used_exists() -> None:
    ids = re.findall(r'\bid="(\w+)"', HTML)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'\$\("(\w+)"\)', CODE)) | set(
        re.findall(r"#([a-z]\w+)", re.sub(r"\{[^{}]*\}", "", CSS))
    )
    used |= set(re.findall(r'(?:for|aria-controls|aria-labelledby|list)="(\w+)"', HTML))
    assert used - set(ids) == set()


def test_a_model_of_the_demo_is_met_with_the_sheet_to_draw_on() -> None:
    from safecl.cli.demo import DRAWN

    assert f'DRAWN = "{DRAWN}"' in SCRIPTS["page.js"]
