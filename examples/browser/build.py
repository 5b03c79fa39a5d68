"""Builds a folder with a guarded model that runs in a browser.

A scikit-learn model is exported to ONNX, a gate is put into it, and a page beside it
runs both through onnxruntime-web, without a server that thinks::

    npm install onnxruntime-web
    python examples/browser/build.py site --runtime node_modules/onnxruntime-web/dist
    python -m http.server --directory site
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import skl2onnx
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import trustdoctor as td
from trustdoctor.adapters.onnx import export, predict

RUNTIME = (
    "ort.wasm.min.js",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
)


def build(folder: Path, runtime: Path) -> None:
    """Write the model, some rows, the page and the runtime into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    model = LogisticRegression(max_iter=1000).fit(x[:400], y[:400])
    onnx_model = skl2onnx.to_onnx(model, x[:1], options={"zipmap": False})
    (folder / "model.onnx").write_bytes(onnx_model.SerializeToString())
    p = predict(folder / "model.onnx", x[400:1200], labels=y[400:1200])
    gate = td.calibrate(p, score="alpha", frr=0.1)
    export(folder / "model.onnx", gate, folder / "guarded.onnx")
    (folder / "rows.json").write_text(json.dumps(x[1200:].tolist()))
    shutil.copy(Path(__file__).with_name("index.html"), folder)
    for name in RUNTIME:
        shutil.copy(runtime / name, folder)


def main() -> None:
    """Build from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runtime", type=Path, required=True)
    options = parser.parse_args()
    build(options.folder, options.runtime)


if __name__ == "__main__":
    main()
