"""README is short, shows the page, and claims what the pages behind it show.

`test_docs.py` runs its blocks.
"""

import re
import struct

import pytest
from blocks import BLOCK


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text(encoding="utf-8")


def test_it_is_short(readme):
    assert len(readme.split()) <= 900


def test_it_shows_the_page_in_light_and_dark(readme, root):
    picture = re.search(r"<picture>.*?</picture>", readme, re.DOTALL)[0]
    source, shown = re.findall(r"<(?:source|img) [^>]*>", picture)
    assert 'media="(prefers-color-scheme: dark)"' in source
    assert 'srcset="docs/pictures/report-dark.png"' in source
    assert 'src="docs/pictures/report-light.png"' in shown
    assert len(re.search(r'alt="([^"]*)"', shown)[1].split()) >= 5
    pages = sorted((root / "docs" / "pictures").glob("report-*.png"))
    assert [path.stem for path in pages] == ["report-dark", "report-light"]
    for path in pages:
        content = path.read_bytes()
        assert len(content) < 300_000
        width, height = struct.unpack(">II", content[16:24])  # of PNG's first chunk
        assert content.startswith(b"\x89PNG")
        assert width >= 1280
        assert 1.2 < width / height < 2


def test_the_picture_is_on_the_first_screen(readme):
    assert readme.index("<picture>") < readme.index("```") < readme.index("\n## ")


def test_only_lines_that_install_are_not_run(readme):
    blocks = [match.groupdict() for match in BLOCK.finditer(readme)]
    run = [block["kind"] for block in blocks if not block["skip"]]
    assert {"console", "python"} <= set(run)
    excused = [block["body"] for block in blocks if block["skip"]]
    lines = "".join(excused).splitlines()
    assert lines
    for line in lines:
        assert re.match(r"\$ (pip install|make (demo|test)\b)", line), line


def test_its_links_lead_to_files(readme, root):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", readme)
    assert len(links) > 30
    missing = [to for to in links if "://" not in to and not (root / to).exists()]
    assert missing == []


FIGURES = [
    ("falls by 6.6 points [2.7, 10.6]", "tuning.md", "-6.64 [-10.56, -2.72]"),
    ("by 1.7 [0.1, 3.2]", "tuning.md", "-1.68 [-3.21, -0.14]"),
    ("by 3.2 points [2.5, 3.9]", "leaderboard.md", "+3.16 [+2.46, +3.86]"),
    ("by 5.9 [0.9, 10.6]", "leaderboard.md", "-5.94 [-10.58, -0.94]"),
    ("2.1 passes per row", "leaderboard.md", "2.14 passes per row"),
    ("keeps 93% of the gain", "leaderboard.md", "keeps 93% of the gain"),
    ("[46, 60]", "guides/usual_threshold.md", "usual choice broken 53% [46%, 60%]"),
    ("[3, 10]", "guides/usual_threshold.md", "broken 6% [3%, 10%]"),
    ("19% of the rows, and 8.8%", "cascades.md", "1.06 ± 0.02 | 8.8 | 18.8"),
    ("9.3% do", "cascades.md", "1.93 ± 0.01 | 9.3 | 100.0"),
    ("1.06 ± 0.02 instead of 1.93 ± 0.01", "cascades.md", "1.06 ± 0.02"),
]


@pytest.mark.parametrize(("claim", "page", "shown"), FIGURES, ids=lambda text: text)
def test_its_figures_are_those_of_the_pages(readme, root, claim, page, shown):
    assert claim in " ".join(readme.split())
    assert shown in (root / "docs" / page).read_text(encoding="utf-8")
