"""The leaderboard of docs/leaderboard.md: every score on all models, judged fairly.

    python benchmarks/leaderboard.py prepare SHARED FOLDER     # data as plain arrays
    python benchmarks/leaderboard.py answers FOLDER [DEVICE]   # asks the models
    python benchmarks/leaderboard.py check FOLDER NAME         # after a GPU's answers
    python benchmarks/leaderboard.py features SHARED FOLDER    # of ResNet-20
    python benchmarks/leaderboard.py page FOLDER docs/leaderboard.md
    python benchmarks/leaderboard.py models [FOLDER]           # these sections alone

The second step runs the models on all rows and views, and goes on where it was stopped;
a GPU does it in a minute. The third asks the models about some rows again, on this
machine's processor, and the page then says how far the answers of the accelerator NAME
differ. The fourth keeps what the last layer of ResNet-20 gets, of training images, test
images and images of no class. The fifth is `td.compare` on the answers.

The last fills the sections on all models in docs/leaderboard.md: `td.benchmark` on the
predictions in the shared folder, and on those in FOLDER. There each NAME-DATA.npz holds
`logits` and `labels` of rows that the model was not trained on; DATA is cifar10,
cifar100 or anything else. Where FOLDER has what the fourth step kept, the section on
images of no class is made, too.
"""

import gzip
import io
import json
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pages

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("TRUSTDOCTOR_SHARED", ROOT.parent / "shared"))
REVIEWS = 5000
FASHION = Path("/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz")


def prepare(shared, folder):
    """Write pixels, reviews and models where the second step finds them."""
    import polars as pl
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    table = pl.read_parquet(shared / "data" / "cifar10-test.parquet")
    pixels = [np.asarray(Image.open(io.BytesIO(b))) for b in table["image"]]
    np.savez(folder / "cifar.npz", pixels=np.stack(pixels), labels=table["label"])
    reviews = pl.read_parquet(shared / "data" / "imdb.parquet")
    reviews = reviews.filter(pl.col("split") == "test").sample(REVIEWS, seed=0)
    texts = [text.replace("<br />", " ") for text in reviews["text"]]
    content = {"texts": texts, "labels": reviews["label"].to_list()}
    (folder / "imdb.json").write_text(json.dumps(content), encoding="utf-8")
    if FASHION.exists():
        content = gzip.decompress(FASHION.read_bytes())[16:]
        images = np.frombuffer(content, np.uint8).reshape(-1, 28, 28)[:1000]
        padded = np.pad(images, ((0, 0), (2, 2), (2, 2)))
        np.save(folder / "fashion.npy", np.repeat(padded[..., None], 3, axis=3))
    for name in ("nets.py", "resnet-20.safetensors", "densenet-bc-100-12.safetensors"):
        shutil.copy(shared / "models" / name, folder)
    shutil.copytree(shared / "models" / "minilm-imdb", folder / "minilm-imdb")
    for path in sorted((shared / "predictions" / "public").glob("*-test.npz")):
        shutil.copy(path, folder / f"public-{path.name}")


def answers(folder, device="cpu"):
    """Ask each model whose data are there."""
    if (folder / "cifar.npz").exists():
        _ask_images(folder, device)
    texts = folder / "answers-minilm-imdb.npz"
    if (folder / "imdb.json").exists() and not texts.exists():
        _ask_texts(folder, device)


def _image_inputs(folder):
    """Return the labels and the inputs of each kind: clean, noise, blur, fashion."""
    import torch

    with np.load(folder / "cifar.npz") as file:
        pixels, labels = file["pixels"], file["labels"]
    raw = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    noise = torch.randn(raw.shape, generator=torch.Generator().manual_seed(0))
    kernel = torch.tensor([1.0, 2, 1])
    kernel = (kernel[:, None] * kernel / 16).expand(3, 1, 3, 3)
    edge = torch.nn.functional.pad(raw, (1, 1, 1, 1), mode="reflect")
    inputs = {
        "clean": raw,
        "noise": (raw + 0.06 * noise).clamp(0, 1),
        "blur": torch.nn.functional.conv2d(edge, kernel, groups=3),
    }
    kinds = {kind: (images, labels) for kind, images in inputs.items()}
    if (folder / "fashion.npy").exists():
        fashion = torch.from_numpy(np.load(folder / "fashion.npy"))
        fashion = fashion.permute(0, 3, 1, 2).float() / 255
        order = np.random.default_rng(0).permutation(len(raw))[:9000]
        mixed = np.concatenate([labels[order], np.full(len(fashion), -1)])
        kinds["fashion"] = (torch.cat([raw[order], fashion]), mixed)
    return kinds


def _ask_images(folder, device, rows=None):
    """Ask about the clean rows, shifted rows, and all their views.

    With `rows`, about the first rows alone; returns the answers by file name then, and
    writes nothing.
    """
    import torch
    from safetensors.torch import load_file

    from trustdoctor.opinion import image_views

    sys.path.insert(0, str(folder))
    import nets

    # TensorFloat-32 rounds what it multiplies to 10 bits: other answers than a
    # processor's.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    mean = torch.tensor(nets.MEAN).view(1, 3, 1, 1)
    std = torch.tensor(nets.STD).view(1, 3, 1, 1)
    kinds, logits_by_file = _image_inputs(folder), {}
    for name, net in (("resnet-20", nets.ResNet20()), ("densenet", nets.DenseNetBC())):
        weights = "resnet-20" if name == "resnet-20" else "densenet-bc-100-12"
        net.load_state_dict(load_file(folder / f"{weights}.safetensors"))
        net.eval().to(device)
        for kind, (images, labels) in kinds.items():
            path = folder / f"answers-{name}-{kind}.npz"
            if path.stem not in TITLES or (path.exists() and rows is None):
                continue
            x = ((images[:rows] - mean) / std).to(device)
            logits = {"clean": _ask(net, x)}
            logits |= {view.name: _ask(net, view(x)) for view in image_views(9)}
            if rows is None:
                np.savez(path, labels=labels, **logits)
            logits_by_file[path.name] = logits
            print(name, kind, flush=True)
    return logits_by_file


def _ask(net, x):
    import torch

    with torch.no_grad():
        return torch.cat([net(batch) for batch in x.split(500)]).float().cpu().numpy()


def _ask_texts(folder, device, rows=None):
    """Ask about reviews and their views; with `rows`, as `_ask_images` does."""
    from trustdoctor.adapters.transformers import load_folder, predict
    from trustdoctor.opinion import text_views

    content = json.loads((folder / "imdb.json").read_text(encoding="utf-8"))
    texts, labels = content["texts"][:rows], content["labels"]
    model, processor = load_folder(folder / "minilm-imdb")
    model = model.float().to(device)
    options = {"processor": processor, "max_length": 256, "device": device}
    options |= {"batch_size": 128, "quiet": True}
    logits = {"clean": predict(model, texts, **options).logits}
    for view in text_views(window=120):
        logits[view.name] = predict(model, view(texts), **options).logits
    name = "answers-minilm-imdb.npz"
    if rows is None:
        np.savez(folder / name, labels=labels, **logits)
    print("minilm imdb", flush=True)
    return {name: logits}


CHECKED = 200
"""Rows that the processor is asked about again, of each file of answers."""


def check(folder, accelerator):
    """Hold an accelerator's answers against the processor's, on some rows."""
    logits_by_file = _ask_images(folder, "cpu", CHECKED)
    logits_by_file |= _ask_texts(folder, "cpu", CHECKED)
    differences, changed, count = [], 0, 0
    for name, logits in logits_by_file.items():
        with np.load(folder / name) as file:
            for view, checked in logits.items():
                stored = file[view][:CHECKED]
                differences.append(float(np.abs(checked - stored).max()))
                changed += int((checked.argmax(1) != stored.argmax(1)).sum())
                count += len(checked)
    facts = {"largest": max(differences), "changed": changed, "answers": count}
    facts["accelerator"] = accelerator
    (folder / "check.json").write_text(json.dumps(facts), encoding="utf-8")
    print(facts)


def check_words(folder):
    """Say where the answers were computed, and how far the processor's differ."""
    path = folder / "check.json"
    if not path.exists():
        return []
    facts = json.loads(path.read_text(encoding="utf-8"))
    words = (
        f"The answers of our nets were computed on {facts['accelerator']}, in float32. "
        f"On {CHECKED} rows of each data set and all their views, "
        f"{facts['answers']:,} answers, the logits of a processor differ by at most "
        f"{facts['largest']:.1g}, and {facts['changed'] or 'no'} predictions do. "
        "Scores and intervals were computed on a processor."
    )
    return [words, ""]


def read_opinions(path):
    """Return what a model said, as `SecondOpinion` does."""
    import trustdoctor as td

    with np.load(path) as file:
        names = [name for name in file.files if name not in ("labels",)]
        logits = [file[name].astype(np.float64) for name in names]
        labels = file["labels"]
    predicted = logits[0].argmax(1)
    wrong_class = (predicted + 1) % logits[0].shape[1]
    # Rows of no class are always wrong.
    labels = np.where(labels < 0, wrong_class, labels)
    p = td.Predictions.from_logits(logits[0], labels)
    means = np.cumsum(logits, 0) / np.arange(1, len(logits) + 1)[:, None, None]
    doubts = [td.beta(mean, predicted=p.predicted) for mean in means]
    confidence = [1 / (1 + np.exp(td.beta(z))) for z in logits]
    opinions = td.Opinions(
        p,
        np.stack(doubts, 1),
        np.stack([z.argmax(1) for z in logits], 1),
        np.stack(confidence, 1),
    )
    return opinions, names[1:]


def table(comparison):
    """Show a comparison as Markdown."""
    lines = [
        "| score | passes | AUROC | against msp | FRR@95TRR | against msp |",
        "|---|---|---|---|---|---|",
    ]
    for c in comparison.candidates:
        gain, change = (
            "" if c is comparison.candidates[0] else difference.percent(sign=True)
            for difference in (c.auroc_gain, c.frr_change)
        )
        mark = "**" if c.name == comparison.recommended else ""
        lines.append(
            f"| {mark}{c.name}{mark} | {c.passes:g} | {100 * c.auroc.value:.2f} | "
            f"{gain} | {100 * c.frr_at_trr.value:.2f} | {change} |"
        )
    return "\n".join(lines)


TITLES = {
    "answers-resnet-20-clean": "ResNet-20, CIFAR-10 test images",
    "answers-densenet-clean": "DenseNet-BC-100-12, CIFAR-10 test images",
    "answers-minilm-imdb": f"MiniLM, {REVIEWS:,} IMDb test reviews",
    "answers-resnet-20-noise": "ResNet-20, Gaussian noise added",
    "answers-resnet-20-blur": "ResNet-20, images blurred",
    "answers-resnet-20-fashion": "ResNet-20, 1,000 Fashion-MNIST images mixed in",
}


def digits():
    """Compare on a scikit-learn model, with views by noise."""
    import warnings

    from sklearn.datasets import load_digits
    from sklearn.naive_bayes import GaussianNB

    import trustdoctor as td

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:500], order[500:]
    model = GaussianNB(var_smoothing=1e-2).fit(x[train], y[train])
    ask = td.SecondOpinion(model, td.table_views(x[train], count=4, noise=0.3))
    opinions = ask(x[test], y[test])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logits = model.predict_log_proba(x[train])
    fit_rows = td.Predictions.from_logits(logits, y[train], features=x[train])
    p = replace(opinions.predictions, features=x[test])
    return opinions, td.compare(p, train=fit_rows, opinions=opinions)


def adaptive(opinions, names, splits=20):
    """Say what views cost when they are asked only while in doubt."""
    import trustdoctor as td
    from trustdoctor.opinion.second_opinion import calibrate_opinions

    errors = opinions.predictions.errors
    rates, passes, caught = [], [], []
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(errors))
        calibration, test = np.array_split(order, 2)
        sample = td.Opinions(
            opinions.predictions[calibration],
            opinions.doubts[calibration],
            opinions.answers[calibration],
            opinions.confidence[calibration],
        )
        gate = calibrate_opinions(sample, names, {"trr": 0.95}, seed=seed)
        margin_rows = max(1, round(0.25 * len(calibration)))
        permuted = np.random.default_rng(seed).permutation(len(calibration))
        threshold_rows = calibration[permuted[margin_rows:]]
        doubts, wrong = opinions.doubts[threshold_rows], errors[threshold_rows]
        gates = [td.calibrate_scores(doubts[:, k], wrong, trr=0.95) for k in (0, -1)]
        accepted = [
            g.accept(opinions.doubts[test][:, k])
            for g, k in zip(gates, (0, -1), strict=True)
        ]
        accepted.append(gate.accept(gate.margins.sequential(opinions.doubts[test])))
        rates.append([(~mask)[~errors[test]].mean() for mask in accepted])
        caught.append((~accepted[-1])[errors[test]].mean())
        passes_of_row = np.ones(len(test))
        in_doubt = np.ones(len(test), bool)
        for k in range(len(names)):
            in_doubt &= ~gate.margins.settled(opinions.doubts[test][:, k], k, gate)
            passes_of_row += in_doubt
        passes.append(passes_of_row.mean())
    first_pass, all_passes, lazy_passes = 100 * np.mean(rates, 0)
    return (
        f"At a gate for TRR 95%, over {splits} splits into halves: FRR "
        f"{first_pass:.1f} by one pass, {all_passes:.1f} by all {1 + len(names)}, "
        f"{lazy_passes:.1f} by views asked only while in doubt, {np.mean(passes):.2f} "
        "passes per row; that keeps "
        f"{(first_pass - lazy_passes) / (first_pass - all_passes):.0%} of the gain. "
        f"TRR there {100 * np.mean(caught):.1f}."
    )


def views_table(path):
    """Show what views bring on all rows, their lengths kept or taken out."""
    import trustdoctor as td
    from trustdoctor.kernels import normalise
    from trustdoctor.opinion import image_views

    with np.load(path) as file:
        labels, clean = file["labels"], file["clean"].astype(np.float64)
        predicted = clean.argmax(1)
        errors = predicted != labels
        lines = [
            "| on all rows | passes | AUROC | FRR@95TRR | AUROC, without length | "
            "FRR@95TRR, without length |",
            "|---|---|---|---|---|---|",
        ]
        for count in (0, 1, 5, 9):
            view_names = [view.name for view in image_views(count)] if count else []
            logits = [clean, *(file[name].astype(np.float64) for name in view_names)]
            normalised = [normalise(z, LENGTH["p"])[0] / LENGTH["t"] for z in logits]
            doubts = [
                td.beta(np.mean(passes_logits, 0), predicted=predicted)
                for passes_logits in (logits, normalised)
            ]
            row_name = {0: "softmax response", 1: "and the flip"}.get(
                count, f"{count} views"
            )
            cells = [
                f"{100 * metric(doubt, errors):.2f}"
                for doubt in doubts
                for metric in (td.auroc, td.frr_at_trr)
            ]
            lines.append(f"| {row_name} | {1 + count} | {' | '.join(cells)} |")
    return "\n".join(lines)


LENGTH = {"p": 3.0, "t": 0.3}
"""How views are averaged without their lengths: `SecondOpinion(..., p=3, t=0.3)`."""

WHOLE = (
    "answers-resnet-20-clean",
    "answers-densenet-clean",
    "answers-resnet-20-noise",
    "answers-resnet-20-blur",
)

PUBLIC = {"cifar10": "public nets, CIFAR-10", "cifar100": "public nets, CIFAR-100"}
CLEAN = "our nets, clean images"
SHIFTED = "our net, shifted images"
OTHERS = "text and tables"
FAMILY_OF = {"clean": CLEAN, "noise": SHIFTED, "blur": SHIFTED, "fashion": SHIFTED}


def public(folder):
    """Yield each public model with its data set, its accuracy and the comparison."""
    import trustdoctor as td

    for data in PUBLIC:
        for path in sorted(folder.glob(f"public-*-{data}-test.npz")):
            name = path.name.removeprefix("public-").removesuffix(f"-{data}-test.npz")
            files = [
                folder / f"public-{name}-{data_set}-test.npz" for data_set in PUBLIC
            ]
            if not all(file.exists() for file in files):
                continue  # a net of another collection, on one data set alone
            with np.load(path) as file:
                p = td.Predictions.from_logits(file["logits"], file["labels"])
            yield data, name, p, td.compare(p)


def public_table(rows):
    """Show one line per public model: softmax response, the tuned score, the best."""
    lines = [
        "| data | model | accuracy | msp AUROC | msp FRR@95TRR | tuned: AUROC | "
        "tuned: FRR@95TRR | recommended |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for data, name, p, comparison in rows:
        accuracy = 1 - p.errors.mean()
        base = comparison.candidates[0]
        tuned = next((c for c in comparison.candidates if c.name == "tuned"), None)
        gain, change = "stays msp", ""
        if tuned is not None:
            gain = tuned.auroc_gain.percent(sign=True)
            change = tuned.frr_change.percent(sign=True)
        lines.append(
            f"| {data} | {name} | {100 * accuracy:.2f} | {100 * base.auroc.value:.2f} |"
            f" {100 * base.frr_at_trr.value:.2f} | {gain} | {change} | "
            f"{comparison.recommended or 'msp'} |"
        )
    return "\n".join(lines)


ALONE = "tuned, by itself"


def tuned_alone(p):
    """Return the gain of a score tuned on a third of the rows, on all others."""
    from trustdoctor.gates.request import Request
    from trustdoctor.gates.score_choice import choose_score
    from trustdoctor.metrics import Ranking, auroc_difference
    from trustdoctor.scores import find_score

    choice = choose_score(p, Request({"coverage": 0.5}))  # tuned for AUROC
    test = p[choice.calibrating_rows]
    scores = (choice.score, find_score("msp"))
    ranking, base_ranking = (Ranking(score(test), test.errors) for score in scores)
    return auroc_difference(ranking, base_ranking, confidence=0.95)


def tally_table(judged):
    """Show wins, ties and losses of each score against msp, by family of models."""
    families = list(dict.fromkeys(family for family, _, _ in judged))
    counts = {}
    for family, comparison, p in judged:
        gains = {c.name: c.auroc_gain for c in comparison.candidates[1:]}
        for name, gain in {**gains, ALONE: tuned_alone(p)}.items():
            tally = counts.setdefault(name, {}).setdefault(family, [0, 0, 0])
            low, high = gain.low or 0, gain.high or 0
            tally[0 if low > 0 else 2 if high < 0 else 1] += 1
    lines = [
        f"| score | {' | '.join(families)} |",
        "|---" * (1 + len(families)) + "|",
    ]
    names_in_order = sorted(
        counts, key=lambda n: -sum(tally[0] - tally[2] for tally in counts[n].values())
    )
    for name in names_in_order:
        cells = [
            " / ".join(map(str, counts[name][f])) if f in counts[name] else ""
            for f in families
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


GROUPS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
OTHER_DATA = "Other data"
SKIPPED = ("minilm-imdb-amazon", "resnet-56-cifar100", "public-")
"""Reviews of another domain, with few distinct texts; public weights that are there
twice; what `prepare` copied."""


def read_models(*folders):
    """Return the predictions in folders: by group, then by the model's name."""
    import trustdoctor as td

    groups = {title: {} for title in (*GROUPS.values(), OTHER_DATA)}
    for folder in folders:
        for path in sorted(folder.glob("*.npz")):
            name = path.stem.removesuffix("-test")
            if name.endswith("-train") or name.startswith(SKIPPED):
                continue
            with np.load(path) as file:
                if not {"logits", "labels"} <= set(file.files):
                    continue
                logits, labels = file["logits"], file["labels"]
            model, _, data = name.rpartition("-")
            title, model = (GROUPS[data], model) if data in GROUPS else ("", name)
            # A file of log-probabilities has no energy and no largest logit.
            sums = np.exp(logits.astype(np.float64)).sum(1)
            if np.allclose(sums, 1, atol=1e-4):
                p = td.Predictions.from_probs(np.exp(logits), labels)
            else:
                p = td.Predictions.from_logits(logits, labels)
            groups[title or OTHER_DATA][model] = p
    return {title: models for title, models in groups.items() if models}


def all_models(*folders):
    """Return the section on all models: a table of `td.benchmark` for each group."""
    import trustdoctor as td

    sections, protocols = [], []
    for title, models in read_models(*folders).items():
        with_logits = {n: p for n, p in models.items() if not p.from_probabilities}
        lines = [f"### {title}", ""]
        result = td.benchmark(with_logits or models)
        lines += [f"{_model_words(result)}.", "", result.to_markdown(), ""]
        if with_logits and len(with_logits) < len(models):
            added = ", ".join(n for n in models if n not in with_logits)
            both = td.benchmark(models)
            lines += [
                f"The same with {added}, of which there are log-probabilities alone, "
                "so that no score of true logits can be computed:",
                "",
                both.to_markdown(),
                "",
            ]
        protocols.append(result.protocol().partition(", ")[2])
        sections += lines
        print(title, len(models), flush=True)
    return "\n".join(
        [
            "Made by `python benchmarks/leaderboard.py models`, which runs "
            f"`td.benchmark`: {protocols[0]} Ranks are by AUROC. Everything in %; "
            "differences in points, and less is better in all columns but that of "
            "AUROC. Wins and losses are not corrected for the number of scores.",
            "",
            *sections,
            "`python benchmarks/leaderboard.py models FOLDER` adds models of yours: "
            "one NPZ file each, with `logits` and `labels`, called NAME-cifar10.npz, "
            "NAME-cifar100.npz or NAME-DATA.npz.",
        ]
    )


def _model_words(result):
    """Name the models of a benchmark, with their rows and accuracies."""
    rows = {n for n, _ in result.rows.values()}
    sizes = " to ".join(f"{n:,}" for n in sorted({min(rows), max(rows)}))
    names = ", ".join(
        f"{name} ({100 * (1 - wrong / n):.2f}, "
        f"{100 * result.models[name][result.baseline].values['auroc']:.2f})"
        for name, (n, wrong) in result.rows.items()
    )
    models = f"{len(result.rows)} model{'s' * (len(result.rows) != 1)}"
    return (
        f"{models}, {sizes} test rows each; in brackets accuracy and "
        f"AUROC of {result.baseline}: {names}"
    )


OUTSIDE = {
    "tinyimagenet-resize": "TinyImageNet, resized",
    "tinyimagenet-crop": "TinyImageNet, cropped",
    "places": "MiniPlaces",
}
"""Images of no class: 2,000 of each kind."""


def features(shared, folder, device="cpu"):
    """Keep logits and features of ResNet-20: of CIFAR-10 and of images of no class."""
    import polars as pl
    import torch
    from PIL import Image
    from safetensors.torch import load_file

    sys.path.insert(0, str(shared / "models"))
    import nets

    net = nets.ResNet20()
    net.load_state_dict(load_file(shared / "models" / "resnet-20.safetensors"))
    net.eval().to(device)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (nets.MEAN, nets.STD))
    seen = []
    hook = net.head.register_forward_pre_hook(lambda _net, x: seen.append(x[0].cpu()))
    arrays = {}
    for name in ("cifar10-train", "cifar10-test", *(f"ood-{key}" for key in OUTSIDE)):
        table = pl.read_parquet(shared / "data" / f"{name}.parquet")
        images = (Image.open(io.BytesIO(image)) for image in table["image"])
        pixels = np.stack([np.asarray(image.convert("RGB")) for image in images])
        x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
        arrays[f"{name} logits"] = _ask(net, ((x - mean) / std).to(device))
        arrays[f"{name} features"] = torch.cat(seen).numpy()
        seen.clear()
        if "label" in table.columns:
            arrays[f"{name} labels"] = table["label"].to_numpy()
        print(name, flush=True)
    hook.remove()
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / FEATURES, **arrays)


FEATURES = "features-of-resnet-20.npz"


def with_outside(folder):
    """Return the section on ResNet-20 with its features and images of no class."""
    import trustdoctor as td

    def rows(name, *, labels=None):
        logits, vectors = file[f"{name} logits"], file[f"{name} features"]
        return td.Predictions.from_logits(logits, labels, features=vectors)

    with np.load(folder / FEATURES) as file:
        train = rows("cifar10-train", labels=file["cifar10-train labels"])
        test = rows("cifar10-test", labels=file["cifar10-test labels"])
        outside = {title: rows(f"ood-{key}") for key, title in OUTSIDE.items()}
    scores = {n: n for n in ("msp", "alpha", "entropy", "gen", "max_logit", "energy")}
    for score in (td.Mahalanobis, td.KNN, td.TrustScore, td.SIRC, td.ViM):
        scores[score.name] = score.fit(train)
    kinds = {"none": test}
    kinds |= {title: test.with_outside(p) for title, p in outside.items()}
    lines = {name: [] for name in scores}
    for title, p in kinds.items():
        evaluation = td.evaluate(p, scores=scores)
        for name in scores:
            area = 100 * evaluation.scores[name]["auroc"].value
            gap = evaluation.difference(name, "msp")
            change = "" if name == "msp" else f" ({gap.percent(sign=True)})"
            lines[name].append(f"{area:.2f}{change}")
        print(title, flush=True)
    size = len(next(iter(outside.values())))
    shown = pages.table(["score", *kinds], [[n, *cells] for n, cells in lines.items()])
    return (
        "Made by `python benchmarks/leaderboard.py models FOLDER`: the "
        f"{len(test):,} test images of CIFAR-10, with {int(test.errors.sum()):,} "
        f"errors of ResNet-20, and {size:,} images of no class beside them "
        "(`with_outside`): whatever the net says of those is an error, too. The head "
        "of the table names them. Scores of features (`mahalanobis`, `knn`, "
        "`trust_score`, `sirc`, `vim`) are fitted on what the last layer gets of the "
        f"{len(train):,} training images, at the options by default. AUROC in %; in "
        "brackets that less msp's, in points, paired, with an interval of 95%.\n\n"
        f"{shown}"
    )


MODELS, NO_CLASS = "all models", "images of no class"


def model_sections(folder=None):
    """Return the sections that the last step fills, by their places on the page."""
    folders = [SHARED / "predictions", SHARED / "predictions" / "public"]
    folders = [f for f in (*folders, folder) if f is not None and f.is_dir()]
    sections = {MODELS: all_models(*folders)}
    if folder is not None and (folder / FEATURES).exists():
        sections[NO_CLASS] = with_outside(folder)
    return sections


def section_lines(folder):
    """Return these sections as lines of the page."""
    titles = {
        MODELS: "All models",
        NO_CLASS: "ResNet-20, features and images of no class",
    }
    lines = []
    for name, text in model_sections(folder).items():
        mark = f"<!-- made: {name} -->"
        lines += [f"## {titles[name]}", "", mark, "", text, "", "<!-- end -->", ""]
    return lines


def own_models(folder):
    """Yield each model of ours with its family, and the parts of its section."""
    import trustdoctor as td
    from trustdoctor.opinion.views import check_views

    for stem, title in TITLES.items():
        path = folder / f"{stem}.npz"
        if not path.exists():
            continue
        opinions, names = read_opinions(path)
        comparison = td.compare(opinions.predictions, opinions=opinions)
        lines = [f"## {title}", "", table(comparison), "", comparison.verdict(), ""]
        if stem in WHOLE:
            lines += [views_table(path), ""]
        if stem.endswith("clean"):
            lines += [adaptive(opinions, names), ""]
        if stem == "answers-minilm-imdb":
            checks = check_views(opinions, names)
            shown = "; ".join(
                f"{c.name}: accuracy {100 * c.accuracy:+.2f}, AUROC with it alone "
                f"{100 * c.auroc:+.2f}{'' if c.keep else f' (drop: {c.reason})'}"
                for c in checks
            )
            lines += [f"Views, each by itself: {shown}.", ""]
        family = FAMILY_OF.get(stem.rpartition("-")[2], OTHERS)
        yield family, comparison, opinions.predictions, lines
    opinions, comparison = digits()
    title = "## Naive Bayes, scikit-learn's digits (64 columns)"
    lines = [title, "", table(comparison), "", comparison.verdict(), ""]
    yield OTHERS, comparison, opinions.predictions, lines


def page(folder):
    """Return the page."""
    models, rows = list(own_models(folder)), list(public(folder))
    judged = [(PUBLIC[data], comparison, p) for data, _, p, comparison in rows]
    judged += [(family, comparison, p) for family, comparison, p, _ in models]
    lines = [
        "# Which score?",
        "",
        "Made by `python benchmarks/leaderboard.py page FOLDER docs/leaderboard.md`, "
        "which runs `td.compare`: rows are permuted and split into thirds that fit, "
        "choose and judge, and what fits nothing is judged on all of them; differences "
        "against softmax response (msp) are paired and "
        "hold all together at 95%. The recommended score is bold. Errors are those of "
        "the clean prediction, which is what a user deploys. Everything in %.",
        "",
        *check_words(folder),
        *section_lines(folder),
        "## Wins, ties and losses",
        "",
        "Wins / ties / losses against softmax response, by AUROC: a win or a loss is a "
        f"difference whose interval leaves out 0, over {len(judged)} models and data "
        "sets. The intervals of one model hold all together. `tuned` is fitted on a "
        "third of the rows and judged on another. `tuned, by itself` is chosen on a "
        "third of the rows, 2,000 at most, and judged on all others by one comparison "
        "at 95%: what a user sees who calibrates with `--score auto`. [Its "
        "page](tuning.md) has the averages. Without length: views averaged over logits "
        "whose 3-norm was taken out, at t = 0.3, as `SecondOpinion(..., p=3, t=0.3)` "
        "does.",
        "",
        tally_table(judged),
        "",
    ]
    if rows:
        lines += [
            "## Public models",
            "",
            "Six networks of chenyaofo's pytorch-cifar-models, each on the test sets "
            "of CIFAR-10 and CIFAR-100, from their logits alone.",
            "",
            public_table(rows),
            "",
        ]
    return "\n".join([*lines, *(line for *_, section in models for line in section)])


def main():
    step, *arguments = sys.argv[1:]
    start = time.perf_counter()
    if step == "prepare":
        prepare(Path(arguments[0]), Path(arguments[1]))
    elif step == "answers":
        answers(Path(arguments[0]), *arguments[1:])
    elif step == "check":
        check(Path(arguments[0]), arguments[1])
    elif step == "features":
        features(Path(arguments[0]), Path(arguments[1]), *arguments[2:])
    elif step == "models":
        sections = model_sections(*map(Path, arguments))
        pages.fill(ROOT / "docs" / "leaderboard.md", "Which score?", sections)
    else:
        Path(arguments[1]).write_text(page(Path(arguments[0])), encoding="utf-8")
    print(f"{step}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
