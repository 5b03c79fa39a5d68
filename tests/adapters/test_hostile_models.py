"""Folders of models that were changed by somebody else: nothing runs, one line."""

import json
import os
import pickle

import numpy as np
import polars as pl
import pytest
import torch
import transformers

import trustdoctor as td
from trustdoctor.adapters import transformers as adapter
from trustdoctor.adapters.transformers import TrustedPipeline, load_folder, predict
from trustdoctor.errors import FileError, InputError

pytestmark = pytest.mark.filterwarnings("ignore")
HUB = "transformers.integrations.hub_kernels"  # slow to import, so not by all workers
EVIL = "raise SystemExit('run')\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    vocabulary = {word: i for i, word in enumerate(words)}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        num_labels=3,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(files, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def change(folder, name, **fields):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"num_hidden_layers": 10**9}, "asks for 1,000,000,000 layers"),
        ({"vocab_size": 10**9}, "of other sizes than config.json says"),
        ({"hidden_size": 10**6}, "of other sizes than config.json says"),
        ({"num_hidden_layers": 3}, "lack bert.encoder.layer.1"),
        ({"id2label": {"0": "a", "1": "b", "7": "c"}}, "names of classes 0, 1"),
        ({"id2label": ["a", "b", "c"]}, "cannot load"),
        ({"architectures": None}, "no architecture"),
        ({"architectures": [1]}, "cannot load"),
        ({"model_type": "none"}, "cannot load"),
        ({"num_attention_heads": 0}, "cannot load"),
        ({"layer_norm_eps": "x"}, "cannot load"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.sampled(2)
def test_configurations_that_mislead_are_refused(fields, why, folder, capfd):
    change(folder, "config.json", **fields)
    with pytest.raises(FileError, match=why) as refused:
        load_folder(folder)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"[" * 100_000),
        ("config.json", b"\xff\xfe"),
        ("config.json", b"[1]"),
        ("tokenizer.json", b'{"a":' * 50_000),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b"null"),
        ("model.safetensors", b""),
        ("model.safetensors", b"<html>404</html>"),
        ("model.safetensors", b"\xff" * 8 + b"{}"),
    ],
)
def test_damaged_files_are_refused(name, content, folder):
    (folder / name).write_bytes(content)
    with pytest.raises(FileError, match=r"cannot load|as UTF-8"):
        load_folder(folder)


@pytest.fixture
def kernels(monkeypatch):
    """The kernels that transformers asked the Hub for; none of them comes."""
    requests = []

    def get_kernel(name, **_options):
        requests.append(name)
        raise ImportError(name)

    monkeypatch.setattr(f"{HUB}.get_kernel", get_kernel)
    monkeypatch.setattr(f"{HUB}.is_kernels_available", lambda: True)
    return requests


@pytest.mark.parametrize(
    "fields",
    [
        {"_attn_implementation": "owner/kernel"},
        {"attn_implementation": "owner/kernel@main:f"},
        {"_attn_implementation": "flash_attention_2"},
        {"_attn_implementation": {"": "owner/kernel"}},
        {"attn_implementation": 1},
        {"_attn_implementation_internal": "owner/kernel"},
        {"text_config": {"_attn_implementation": "owner/kernel"}},
        {"layers": [{"deep": {"vision_attn_implementation": "owner/kernel"}}]},
        {"attribute_map": {"a": "_attn_implementation"}, "a": "owner/kernel"},
        {"per_layer_config": {"0": {"hidden_size": 1}}},
        {"sub_configs": {"a": 1}},
        {"_experts_implementation": "deepgemm"},
        {"use_kernels": True},
        {"kernel_config": {"RMSNorm": "owner/kernel:f"}},
        {"quantization_config": {"quant_method": "fp8"}},
        {"fusion_config": {"all": True}},
        {"configuration_files": ["config.4.0.0.json"]},
        {"transformers_weights": "adapter_model.bin"},
        {"model_args": {"checkpoint_path": "evil.pth"}},
        {"architecture": "hf-hub:owner/model"},
        {"model_type": "mra"},
        {"model_type": "yoso"},
    ],
    ids=str,
)
def test_configurations_fetch_and_run_nothing(fields, folder, kernels):
    change(folder, "config.json", **fields)
    with pytest.raises(FileError, match=r"would fetch, run or|from the Hub") as no:
        load_folder(folder)
    assert str(folder / "config.json") in str(no.value)
    assert "\n" not in str(no.value)
    assert not kernels


@pytest.mark.parametrize(
    "fields",
    [
        {"_attn_implementation": "eager"},
        {"attn_implementation": None, "_attn_implementation_autoset": True},
        {"use_kernels": False, "quantization_config": None},
        {"label2id": {"use_kernels": 0, "model_args": 1, "c": 2}},
        {"auto_map": {"AutoModelForSequenceClassification": "owner/model--evil.Evil"}},
    ],
    ids=str,
)
def test_settings_that_fetch_nothing_are_taken(fields, folder, kernels):
    expected = predict(folder, ["good film"], quiet=True).logits
    change(folder, "config.json", **fields)
    logits = predict(folder, ["good film"], quiet=True).logits
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    assert not kernels


def test_processors_fetch_nothing(folder):
    fields = {"image_processor_type": "OneFormerImageProcessor", "repo_path": "owner/a"}
    (folder / "preprocessor_config.json").write_text(json.dumps(fields))
    with pytest.raises(FileError, match="sets repo_path to 'owner/a'"):
        load_folder(folder)


@pytest.mark.parametrize(
    "name", ["evil.bin", "../model.safetensors", "a/b.safetensors"]
)
def test_an_index_of_weights_names_safetensors_next_to_it(name, folder):
    (folder / "part.safetensors").write_bytes(
        (folder / "model.safetensors").read_bytes()
    )
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    torch.save(torch.nn.Linear(1, 1).state_dict(), folder / "evil.bin")
    names = transformers.AutoModelForSequenceClassification.from_config(
        transformers.AutoConfig.from_pretrained(folder)
    ).state_dict()
    content = {"metadata": {}, "weight_map": dict.fromkeys(names, "part.safetensors")}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps(content))
    assert len(predict(folder, ["good film"], quiet=True)) == 1
    content["weight_map"]["classifier.bias"] = name
    index.write_text(json.dumps(content))
    with pytest.raises(FileError, match="names of safetensors beside it"):
        load_folder(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "special_tokens_map.json"])
def test_pipes_are_not_waited_for(name, folder):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(FileError, match=f"a pipe or a device, {name}"):
        load_folder(folder)


def test_adapters_are_not_left_out_in_silence(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "o/m"}')
    with pytest.raises(FileError, match="holds an adapter"):
        load_folder(folder)


def test_weights_cut_short_are_refused(folder, files):
    (folder / "model.safetensors").write_bytes(files["model.safetensors"][:-10])
    with pytest.raises(FileError, match="cannot load"):
        load_folder(folder)


def test_code_and_pickles_next_to_a_model_are_not_run(folder):
    class ExecutingPickle:
        def __reduce__(self):
            return exec, (EVIL,)

    (folder / "evil.py").write_text(EVIL)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(ExecutingPickle()))
    names = ("AutoConfig", "AutoModelForSequenceClassification", "AutoTokenizer")
    change(folder, "config.json", auto_map=dict.fromkeys(names, "evil.Evil"))
    tokenizers = {"AutoTokenizer": ["evil.Evil", None]}
    change(folder, "tokenizer_config.json", auto_map=tokenizers)
    model, tokenizer = load_folder(folder)
    assert len(predict(model, ["good film"], processor=tokenizer, quiet=True)) == 1
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileError, match="no safetensors"):
        load_folder(folder)


@pytest.mark.parametrize("longest", [0, -5, "a"])
def test_tokenizers_take_tokens(longest, folder):
    change(folder, "tokenizer_config.json", model_max_length=longest)
    with pytest.raises(InputError, match="1 token or more"):
        predict(folder, ["good film"], quiet=True)


class PanicException(BaseException):
    """As Rust's is called."""


@pytest.mark.parametrize("error", [PanicException("a\nb"), MemoryError(), KeyError()])
def test_panics_and_errors_without_words_are_mistakes(folder, monkeypatch, error):
    def fails(*_args, **_options):
        raise error

    model, tokenizer = load_folder(folder)
    monkeypatch.setattr(type(tokenizer), "__call__", fails)
    with pytest.raises(InputError, match="processor fails on these rows"):
        predict(model, ["good"], processor=tokenizer, quiet=True)
    monkeypatch.setattr(adapter, "_load", fails)
    with pytest.raises(FileError, match="cannot load"):
        load_folder(folder)


def test_stopping_is_not_a_mistake(folder, monkeypatch):
    def stopped(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(adapter, "_load", stopped)
    with pytest.raises(KeyboardInterrupt):
        load_folder(folder)


def test_pipelines_need_a_name_for_each_class(folder):
    """They answer by name, so two classes of one name would be one."""
    change(folder, "config.json", id2label={"0": "a", "1": "crane", "2": "crane"})
    model, tokenizer = load_folder(folder)
    pipe = transformers.pipeline(
        "text-classification", model=model, tokenizer=tokenizer
    )
    with pytest.raises(InputError, match="'crane' twice"):
        TrustedPipeline(pipe, td.Gate(0.0, score="alpha"))


def test_a_model_and_a_gate_are_not_written_over(folder, tmp_path, run):
    table = tmp_path / "rows.csv"
    pl.DataFrame({"text": ["good film"]}).write_csv(table)
    (tmp_path / "link.csv").symlink_to(folder / "config.json")
    before = (folder / "config.json").read_bytes()
    options = ("--model", folder, "--data", table, "-o", tmp_path / "link.csv")
    assert run("predict", *options).returncode == 2
    assert (folder / "config.json").read_bytes() == before
    gate = tmp_path / "gate.json"
    td.Gate(0.0, score="alpha").save(gate)
    before = gate.read_bytes()
    process = run("export", tmp_path / "m.onnx", "--gate", gate, "-o", gate)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert gate.read_bytes() == before
