"""The README's pictures: the first screen of the page, light and dark.

``python benchmarks/pictures.py`` diagnoses the rows of ``trustdoctor demo``, opens the
page in Debian's Chromium and writes ``docs/pictures/report-light.png`` and
``report-dark.png``. ``--width``, ``--height`` (at most) and ``--scale`` change what
is seen.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
MOST = 300_000  # bytes of one picture
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


# The lowest line, not below the height, that cuts through no text and no box.
END = """height => {
    const boxed = e => getComputedStyle(e).borderTopWidth !== "0px";
    const drawn = e => !e.children.length || boxed(e);
    const rows = [...document.body.querySelectorAll("*")].filter(drawn)
        .map(e => e.getBoundingClientRect()).filter(r => r.height && r.width);
    let y = height;
    while (y > height / 2 && rows.some(r => r.top - 8 < y && y < r.bottom + 8)) y -= 1;
    return y;
}"""


def write_page(folder):
    """Write the page of the demo's rows into a folder and return its path.

    The page shows commands, so paths are those that a reader would type.
    """
    names = "--ids id --class-names demo/classes.txt"
    for words in (
        "demo --save demo -q",
        f"diagnose demo/labelled.csv --html report.html {names} -q",
    ):
        command = [sys.executable, "-m", "trustdoctor", *words.split()]
        subprocess.run(command, cwd=folder, check=True)
    return folder / "report.html"


def take(page, target, scheme, size):
    """Take a picture of a page's first screen in light or dark colours."""
    width, height, scale = size
    with sync_playwright() as running:
        chromium = shutil.which("chromium")
        browser = running.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_page(
            viewport={"width": width, "height": height},
            device_scale_factor=scale,
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        tab.goto(page.as_uri())
        tab.wait_for_timeout(500)  # charts are drawn by script
        end = tab.evaluate(END, height)
        clip = {"x": 0, "y": 0, "width": width, "height": end}
        tab.screenshot(path=target, clip=clip)
        browser.close()


def shrink(path):
    """Make a picture smaller: 256 colours, without dithering."""
    with Image.open(path) as image:
        quantised = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    quantised.save(path, optimize=True)
    if path.stat().st_size >= MOST:
        sys.exit(f"{path} has {path.stat().st_size} bytes, at most {MOST} are allowed.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=1000)
    parser.add_argument("--scale", type=float, default=1.5)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    options = parser.parse_args()
    size = options.width, options.height, options.scale
    with tempfile.TemporaryDirectory() as scratch:
        page = write_page(Path(scratch))
        for scheme in ("light", "dark"):
            target = options.out / f"report-{scheme}.png"
            take(page, target, scheme, size)
            shrink(target)
            print(f"{target.name}: {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
