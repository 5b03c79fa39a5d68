import numpy as np
import polars as pl
import pytest
import torch
import transformers
from PIL import Image

import trustdoctor as td
from trustdoctor.adapters.transformers import (
    TrustedPipeline,
    load_folder,
    predict,
    predictor,
)
from trustdoctor.errors import FileError, InputError

WORDS = ["good", "bad", "film", "plot", "dull", "fine", "the", "a", "was"]
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    tokenizer = transformers.BertTokenizer(vocab=vocabulary)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=3,
        id2label={0: "no", 1: "maybe", 2: "yes"},
        label2id={"no": 0, "maybe": 1, "yes": 2},
        initializer_range=0.5,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vit")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
        num_labels=4,
    )
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    size = {"height": 16, "width": 16}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)
    return folder


@pytest.fixture
def texts(rng):
    return [" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in range(50)]


def by_hand(model, tokenizer, text):
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt")).logits[0].numpy()


def test_texts_come_back_in_their_order(text_folder, texts):
    model, tokenizer = load_folder(text_folder)
    model.train()
    p = predict(model, texts, processor=tokenizer, batch_size=7, quiet=True)
    assert model.training  # as it was
    model.eval()
    expected = np.stack([by_hand(model, tokenizer, text) for text in texts])
    np.testing.assert_allclose(p.logits, expected, atol=1e-5)
    repeated = predict(text_folder, texts, labels=np.zeros(50, int), quiet=True)
    np.testing.assert_allclose(repeated.logits, p.logits, atol=1e-5)
    assert repeated.labels is not None


def mixed(model, mode):
    """Set modes, flags and gradients that differ between layers."""
    model.train(mode == "train")
    model.bert.embeddings.train(mode != "train")
    model.classifier.weight.requires_grad_(requires_grad=False)
    model.classifier.bias.grad = torch.ones_like(model.classifier.bias)
    return model


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda m, t, texts: predict(m, texts, processor=t, batch_size=7, quiet=True),
        lambda m, t, texts: predictor((m, t))(texts),
        lambda m, t, texts: td.SecondOpinion((m, t), td.text_views())(texts),
    ],
    ids=["predict", "predictor", "opinion"],
)
def test_a_model_is_left_as_found(ask, mode, text_folder, texts, state, monkeypatch):
    model, tokenizer = load_folder(text_folder)
    calls, last, plain = 0, 0, model.forward

    def forward(*args, **options):
        nonlocal calls
        calls += 1
        model.bert.embeddings.token_type_ids.fill_(1)
        if calls == last:
            raise ZeroDivisionError
        return plain(*args, **options)

    monkeypatch.setattr(model, "forward", forward)
    before = state(mixed(model, mode))
    assert len(set(before["modes"].values())) == 2
    assert any("token_type_ids" in name for name in before["content"])
    ask(model, tokenizer, texts)
    assert state(model) == before
    for at in {1, calls}:
        calls, last = 0, at
        with pytest.raises(ZeroDivisionError):
            ask(model, tokenizer, texts)
        assert state(model) == before
    assert torch.is_grad_enabled()


def test_another_device_is_refused_and_nothing_moves(text_folder, texts, state):
    model, tokenizer = load_folder(text_folder)
    before = state(model)
    for device, word in (("meta", "the model is on cpu"), ("nowhere", "torch device")):
        with pytest.raises(InputError, match=word):
            predict(model, texts, processor=tokenizer, device=device, quiet=True)
        with pytest.raises(InputError, match=word):
            predictor((model, tokenizer), device=device)(texts)
    assert state(model) == before
    p = predict(model, texts, processor=tokenizer, device="cpu", quiet=True)
    assert len(p) == 50


def test_a_folders_model_is_loaded_on_request(text_folder, texts):
    model, _ = load_folder(text_folder, device="meta")
    assert {w.device.type for w in model.parameters()} == {"meta"}
    p = predict(text_folder, texts, device="cpu", quiet=True)
    repeated = predict(text_folder, texts, quiet=True)
    assert np.array_equal(p.logits, repeated.logits)
    with pytest.raises(InputError, match="torch device"):
        predict(text_folder, texts, device="nowhere")


def test_images_too(image_folder, rng):
    images = [
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8))
        for _ in range(9)
    ]
    p = predict(image_folder, images, batch_size=4, quiet=True)
    assert p.logits.shape == (9, 4)
    model, processor = load_folder(image_folder)
    with torch.no_grad():
        single_row = model(**processor(images[5], return_tensors="pt")).logits
    np.testing.assert_allclose(p.logits[5], single_row[0].numpy(), atol=1e-5)


def test_a_pipeline_knows_when_to_be_silent(text_folder, texts, state):
    model, tokenizer = load_folder(text_folder)
    pipe = transformers.pipeline(
        "text-classification", model=model, tokenizer=tokenizer
    )
    p = predict(model, texts, processor=tokenizer, quiet=True)
    gate = td.Gate(float(np.median(td.alpha(p.logits))), score="alpha")
    answers = TrustedPipeline(pipe, gate)(texts)
    plain = pipe(texts)
    assert [a["label"] for a in answers] == [a["label"] for a in plain]
    for ours, theirs in zip(answers, plain, strict=True):
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-5)
    np.testing.assert_allclose(
        [a["doubt"] for a in answers], td.alpha(p.logits), atol=1e-4
    )
    accepted = [a["accepted"] for a in answers]
    far = np.abs(td.alpha(p.logits) - gate.threshold) > 1e-4
    assert np.array_equal(np.array(accepted)[far], gate.screen(p).accepted[far])
    before = state(mixed(model, "eval"))
    single = TrustedPipeline(pipe, gate)(texts[0])
    assert state(model) == before
    assert single["label"] == answers[0]["label"]


def test_a_pipeline_is_calibrated_from_texts_and_labels(text_folder, texts):
    model, tokenizer = load_folder(text_folder)
    pipe = transformers.pipeline(
        "text-classification", model=model, tokenizer=tokenizer
    )
    p = predict(model, texts, processor=tokenizer, quiet=True)
    names = [model.config.id2label[k] for k in range(p.n_classes)]
    labels = [names[k] for k in p.predicted]
    labels[0] = next(name for name in names if name != labels[0])
    trusted = TrustedPipeline.calibrate(pipe, texts, labels, coverage=0.5)
    gate = trusted.gate
    assert gate.classes == tuple(names)
    assert gate.certificate.n == len(texts)
    numbers = [names.index(name) for name in labels]
    by_number = TrustedPipeline.calibrate(pipe, texts, numbers, coverage=0.5)
    assert by_number.gate == gate
    answers = trusted(texts)
    doubts = trusted.predictions(texts)
    assert [a["accepted"] for a in answers] == gate.screen(doubts).accepted.tolist()
    renamed = td.Predictions.from_logits(p.logits, class_names=[*names[1:], "other"])
    with pytest.raises(InputError, match=r"classes are .*, in this order"):
        TrustedPipeline(pipe, td.calibrate(renamed, coverage=0.5))
    with pytest.raises(InputError, match="pipeline of 7 classes"):
        TrustedPipeline(pipe, td.Gate(0.0, "alpha", classes=7))
    with pytest.raises(InputError, match="at least one row"):
        TrustedPipeline.calibrate(pipe, [], [], coverage=0.5)


def test_an_image_pipeline(image_folder, rng):
    model, processor = load_folder(image_folder)
    pipe = transformers.pipeline(
        "image-classification", model=model, image_processor=processor
    )
    image = Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8))
    answer = TrustedPipeline(pipe, td.Gate(9.0, score="beta"))(image)
    assert answer["accepted"]
    assert answer["label"] == pipe(image)[0]["label"]


def test_embeddings_can_be_perturbed(text_folder, texts):
    from trustdoctor.adapters.torch import Doctor

    model, tokenizer = load_folder(text_folder)
    batch = dict(tokenizer(texts[:8], return_tensors="pt", padding=True))
    examination = Doctor(model, score="alpha", epsilon=1e-3)([batch])
    clean = td.alpha(examination.predictions.logits)
    assert (examination.scores >= clean - 1e-6).mean() > 0.8


def test_only_safe_folders_are_loaded(text_folder, tmp_path):
    with pytest.raises(FileError, match="config"):
        load_folder(tmp_path)
    (tmp_path / "config.json").write_text((text_folder / "config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(FileError, match="no safetensors"):
        load_folder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(FileError, match="cannot load"):
        load_folder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(FileError, match="text or image classifier"):
        load_folder(tmp_path)


def test_nothing_is_made_up(text_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((text_folder / name).read_bytes())
    with pytest.raises(FileError, match=r"tokenizer\.json"):
        load_folder(tmp_path)
    state = load_file(text_folder / "model.safetensors")
    bare = {k: v for k, v in state.items() if not k.startswith("classifier")}
    save_file(bare, tmp_path / "model.safetensors", metadata={"format": "pt"})
    for file in text_folder.glob("*token*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(FileError, match="lack classifier"):
        load_folder(tmp_path)


def test_long_texts_are_cut_everywhere_alike(text_folder):
    model, tokenizer = load_folder(text_folder)
    long = "good film " * 3000
    p = predict(model, [long], processor=tokenizer, quiet=True)
    pipe = transformers.pipeline(
        "text-classification", model=model, tokenizer=tokenizer
    )
    trusted = TrustedPipeline(pipe, td.Gate(0.0, score="alpha"))
    assert trusted(long)["doubt"] == pytest.approx(td.alpha(p.logits)[0], abs=1e-4)
    assert trusted([]) == []
    assert len(trusted(("good", "bad"))) == 2
    with pytest.raises(InputError, match="top_k"):
        trusted("good", top_k=1)


def test_options_and_columns_that_do_not_fit(text_folder, image_folder):
    model, tokenizer = load_folder(text_folder)
    for options in ({"batch_size": 0}, {"max_length": 0}, {"max_length": 100_000}):
        with pytest.raises(InputError):
            predict(model, ["good"], processor=tokenizer, **options)
    with pytest.raises(InputError, match="takes images"):
        predict(image_folder, ["good"])
    with pytest.raises(InputError, match="takes texts"):
        predict(model, [Image.new("RGB", (8, 8))], processor=tokenizer)


def test_mistakes_are_named(text_folder):
    model, tokenizer = load_folder(text_folder)
    with pytest.raises(InputError, match="processor"):
        predict(model, ["a"])
    with pytest.raises(InputError, match="at least one row"):
        predict(model, [], processor=tokenizer)
    with pytest.raises(InputError, match="pipeline"):
        TrustedPipeline(model.config, td.Gate(0.0, score="alpha"))
    pipe = transformers.pipeline(
        "text-classification", model=model, tokenizer=tokenizer
    )
    with pytest.raises(InputError, match="with a score"):
        TrustedPipeline(pipe, td.Gate(0.0))


def test_the_commands_follow_one_another(text_folder, texts, tmp_path, run):
    labels = np.arange(50) % 3
    table = pl.DataFrame({"split": ["test"] * 48 + ["train"] * 2, "text": texts})
    table = table.with_columns(label=pl.Series(labels))
    table.write_parquet(tmp_path / "rows.parquet")
    options = ("--data", "rows.parquet", "-o", "preds.parquet", "--where", "split=test")
    process = run("predict", "--model", text_folder, *options, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "48 rows over 3 classes" in process.stdout
    assert process.stderr == ""
    table = pl.read_parquet(tmp_path / "preds.parquet")
    assert table["text"].to_list() == texts[:48]
    calibrated = run(
        "calibrate", "preds.parquet", "--coverage", "0.5", "-o", "g.json", cwd=tmp_path
    )
    assert calibrated.returncode == 0, calibrated.stderr
    shown = run(
        "diagnose", "preds.parquet", "--html", "r.html", "--texts", "text", cwd=tmp_path
    )
    assert shown.returncode == 0, shown.stderr
    for mistake, word in (
        (("--where", "split"), "COLUMN=VALUE"),
        (("--where", "split=none"), "no row"),
        (("--column", "review"), "no column"),
        (("--rows", "0"), "--rows of 1"),
        (("-o", "rows.parquet"), "the input itself"),
        (("--rows", "3", "--seed", "-1"), "--seed of 0"),
        (("--batch-size", "0"), "batch_size of 1"),
        (("--column", "label"), "texts or encoded images"),
    ):
        refused = run(
            "predict", "--model", text_folder, *options, *mistake, cwd=tmp_path
        )
        assert (refused.returncode, word in refused.stderr) == (2, True), refused.stderr


def test_names_of_classes_become_numbers(text_folder, texts, tmp_path, run):
    names = ["no", "maybe", "yes"]
    table = pl.DataFrame({"text": texts[:6], "label": names * 2, "logit_7": [0.0] * 6})
    table.write_parquet(tmp_path / "rows.parquet")
    options = ("--data", "rows.parquet", "-o", "preds.parquet", "-q")
    process = run("predict", "--model", text_folder, *options, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    table = pl.read_parquet(tmp_path / "preds.parquet")
    assert table["label"].to_list() == [0, 1, 2] * 2
    assert "logit_7" not in table.columns
    table.with_columns(label=pl.lit("else")).write_parquet(tmp_path / "rows.parquet")
    process = run("predict", "--model", text_folder, *options, cwd=tmp_path)
    assert (process.returncode, "'else'" in process.stderr) == (2, True)
    images = pl.DataFrame({"image": [b"no picture"]})
    images.write_parquet(tmp_path / "i.parquet")
    options = ("--data", "i.parquet", "-o", "p.parquet", "--column", "image")
    process = run("predict", "--model", text_folder, *options, cwd=tmp_path)
    assert (process.returncode, "row 0" in process.stderr) == (2, True)


def test_minilm_gives_its_stored_logits(shared):
    table = pl.read_parquet(shared / "data" / "imdb.parquet")
    table = table.filter(pl.col("split") == "test")
    rows = np.sort(np.random.default_rng(0).permutation(len(table))[:40])
    texts = [t.replace("<br />", " ") for t in table["text"][rows]]
    predictions = predict(
        shared / "models" / "minilm-imdb", texts, max_length=256, quiet=True
    )
    with np.load(shared / "predictions" / "minilm-imdb-test.npz") as stored:
        assert np.abs(predictions.logits - stored["logits"][rows]).max() < 2e-2


def test_a_second_opinion_on_texts(text_folder):
    texts = ["The good film!", "a  dull plot", "fine", "the film was bad, dull"]
    ask = td.SecondOpinion(text_folder, td.text_views(window=2))
    opinions = ask(texts)
    assert opinions.doubts.shape == (4, 6)
    alone = predict(text_folder, texts, quiet=True)
    np.testing.assert_allclose(opinions.predictions.logits, alone.logits, atol=1e-5)
    model, processor = load_folder(text_folder)
    repeated = td.SecondOpinion((model, processor), td.text_views(window=2))(texts)
    np.testing.assert_allclose(repeated.doubts, opinions.doubts, atol=1e-5)
    last = predict(
        text_folder, ["good film!", "dull plot", "fine", "bad, dull"], quiet=True
    )
    assert (opinions.answers[:, 5] == last.predicted).all()
