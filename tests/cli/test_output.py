"""No result is written over something that the same command reads or writes."""

import io
import os
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest
import typer
from onnx import TensorProto, helper, numpy_helper, save_model
from PIL import Image

import trustdoctor as td
from trustdoctor.cli.app import make_app
from trustdoctor.cli.output import check_output_paths
from trustdoctor.errors import OutputError


@dataclass(frozen=True)
class Command:
    """A command with all its inputs, {name}, and where it may write."""

    words: str
    outputs: dict[str, str]
    always: dict[str, str] = field(default_factory=dict)  # outputs that are needed

    @property
    def inputs(self):
        return [word for word in self.words.split() if word.endswith(FILES)]

    def arguments(self, **outputs):
        named = (self.always | outputs).items()
        return [*self.words.split(), *(word for pair in named for word in pair)]


FILES = (".parquet", ".txt", ".csv", ".json", ".onnx", ".safetensors", ".npz")
BESIDE = "rows.parquet --class-names names.txt --truth truth.csv --ids id"
JSON = {"--json": "new.json"}
COMMANDS = {
    "diagnose": Command(
        f"diagnose {BESIDE} --thumbnails pictures.parquet",
        JSON | {"--html": "new.html"},
        {"--html": "always.html"},
    ),
    "diagnose, fitted": Command(f"diagnose {BESIDE} --score fitted.safetensors", JSON),
    "calibrate": Command(
        f"calibrate {BESIDE} --score fitted.safetensors --frr 0.2",
        {"--output": "new.json"},
    ),
    "screen": Command(
        f"screen {BESIDE} --gate gate.json", JSON | {"-o": "new.parquet"}
    ),
    "check": Command(f"check {BESIDE} --gate gate.json", {"--state": "new.json"}),
    "compare": Command(f"compare {BESIDE}", JSON | {"-o": "new.safetensors"}),
    "export": Command("export model.onnx --gate gate.json", {"-o": "new.onnx"}),
    "demo": Command("demo --score fitted.safetensors", JSON),
    "predict": Command("predict --model model --data text.csv", {"-o": "new.csv"}),
}
PAIRS = [
    (name, option, path)
    for name, command in COMMANDS.items()
    for option in command.outputs
    for path in command.inputs
]
RUNS = [name for name in COMMANDS if name not in ("predict", "demo")]


@pytest.fixture(scope="module")
def made_files(tmp_path_factory):
    """All inputs, once."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    n = 300
    z = 2 * rng.normal(size=(n, 3))
    labels = np.where(rng.random(n) < 0.7, z.argmax(1), rng.integers(0, 3, n))
    ids = [f"r{i}" for i in range(n)]
    named = {"id": ids} | {f"logit_{j}": z[:, j] for j in range(3)}
    pl.DataFrame(named).write_parquet(folder / "rows.parquet")
    (folder / "names.txt").write_text("cat\ndog\nhorse\n")
    words = [("cat", "dog", "horse")[i] for i in labels]
    pl.DataFrame({"id": ids, "label": words}).write_csv(folder / "truth.csv")
    pl.DataFrame({"text": ids}).write_csv(folder / "text.csv")
    dot = io.BytesIO()
    Image.new("RGB", (8, 8)).save(dot, "png")
    pictures = pl.DataFrame({"image": [dot.getvalue()] * n})
    pictures.write_parquet(folder / "pictures.parquet")
    p = td.Predictions.from_logits(z, labels, class_names=("cat", "dog", "horse"))
    td.RelU.fit(p).save(folder / "fitted.safetensors")
    td.calibrate(p, frr=0.2).save(folder / "gate.json")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["logits"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(np.ones((4, 3), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    save_model(model, folder / "model.onnx")
    return folder


@pytest.fixture
def place(made_files, tmp_path):
    """A separate folder with a copy of all inputs."""
    folder = tmp_path / "here"
    folder.mkdir()
    for file in made_files.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    return folder


def state(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def spelled(folder, name):
    """Return spellings of a file's path, and the names of links to it."""
    suffix = name[name.index(".") :]
    soft, hard = folder / f"soft{suffix}", folder / f"hard{suffix}"
    soft.symlink_to(name)
    (folder / f"softer{suffix}").symlink_to(soft)
    hard.hardlink_to(folder / name)
    (folder / "also").symlink_to(folder)
    spellings = [name, f"./{name}", f"../{folder.name}/{name}", str(folder / name)]
    links = [soft.name, f"softer{suffix}", hard.name, f"also/{name}"]
    return [*spellings, *links, f"model/../{hard.name}"]


def refuse(run, folder, arguments, match):
    before = state(folder)
    completed = run(*arguments, cwd=folder)
    assert completed.returncode == 2, (arguments, completed.stdout, completed.stderr)
    assert match in completed.stderr, (arguments, completed.stderr)
    assert completed.stderr.count("\n") == 1
    assert completed.stdout == ""
    assert state(folder) == before, arguments


@pytest.mark.parametrize("name", RUNS)
def test_every_command_runs_where_its_outputs_are_its_own(name, place, run):
    command = COMMANDS[name]
    before = state(place)
    completed = run(*command.arguments(**command.outputs), cwd=place)
    assert completed.returncode in (0, 1), completed.stderr
    after = state(place)
    assert {path: after[path] for path in before} == before
    written = set(after) - set(before)
    assert written >= set(command.outputs.values()) - {"new.safetensors"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "option", "path"), PAIRS)
def test_no_output_is_an_input(name, option, path, place, run):
    for place_of in spelled(place, path):
        arguments = COMMANDS[name].arguments(**{option: place_of})
        refuse(run, place, arguments, "is the input itself")


@pytest.mark.parametrize("name", ["diagnose", "screen", "compare"])
def test_no_output_is_another(name, place, run):
    command = COMMANDS[name]
    first, second = command.outputs
    suffix = command.outputs[second].removeprefix("new")
    target = f"both{suffix}"
    (place / f"soft{suffix}").symlink_to(target)
    (place / "also").symlink_to(place)
    for other in (target, f"./{target}", f"also/{target}", f"soft{suffix}"):
        for pair in ((target, other), (other, target)):
            outputs = dict(zip((first, second), pair, strict=True))
            refuse(run, place, command.arguments(**outputs), "two outputs")
    (place / target).touch()
    (place / f"hard{suffix}").hardlink_to(place / target)
    outputs = {first: target, second: f"hard{suffix}"}
    refuse(run, place, command.arguments(**outputs), "two outputs")


@pytest.mark.parametrize("kind", ["rows", "truth"])
def test_a_folder_of_outputs_holds_no_input(kind, place, run):
    out = place / "out"
    out.mkdir()
    (place / "also").symlink_to(out)
    name = {"rows": "rows.parquet", "truth": "truth.csv"}[kind]
    (place / name).rename(out / name)
    words = COMMANDS["screen"].words.replace(name, f"out/{name}").split()
    for folder in ("out", "./out", "model/../out", "also", str(out)):
        refuse(run, place, [*words, "-o", folder], "lies in the folder of outputs")
    deep = [*words, "-o", "."]
    refuse(run, place, deep, "lies in the folder of outputs")


def test_results_do_not_replace_decisions_in_a_folder(place, run):
    (place / "in").mkdir()
    (place / "out").mkdir()
    for name in ("a", "b"):
        content = (place / "rows.parquet").read_bytes()
        (place / "in" / f"{name}.parquet").write_bytes(content)
    words = ["screen", "in", "--gate", "gate.json", "-o", "out"]
    command = [*words, "--json", "out/a.parquet"]
    refuse(run, place, command, "lies in the folder of outputs")
    assert run(*words, "--json", "out/result.json", cwd=place).returncode == 0
    assert set(state(place / "out")) >= {"a.parquet", "b.parquet", "result.json"}


@pytest.mark.parametrize(
    "words",
    [
        "diagnose in --html in/a.csv",
        "diagnose in/*.csv --json in/b.csv",
        "calibrate in --frr 0.1 -o in/a.csv",
        "screen in --gate gate.json -o in/b.csv",
        "screen in --gate gate.json --json in/b.csv",
        "screen in/*.csv --gate gate.json --json in/b.csv",
        "screen in --gate gate.json -o in",
        "compare in --json in/a.csv",
    ],
)
def test_no_output_is_a_file_of_a_folder_or_a_pattern(words, place, run):
    (place / "in").mkdir()
    rows = pl.read_parquet(place / "rows.parquet").with_columns(label=pl.lit(0))
    for name in ("a", "b"):
        rows.write_csv(place / "in" / f"{name}.csv")
    refuse(run, place, words.split(), "input")


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_arrays_next_to_an_array_are_inputs(option, place, run):
    z = pl.read_parquet(place / "rows.parquet").drop("id").to_numpy()
    np.save(place / "logits.npy", z)
    np.save(place / "labels.npy", z.argmax(1))
    words = ["diagnose", "logits.npy", option]
    refuse(run, place, [*words, "labels.npy"], "is the input itself")
    (place / "hard.npy").hardlink_to(place / "labels.npy")
    refuse(run, place, [*words, "hard.npy"], "is the input itself")


def test_models_are_not_replaced(place, run):
    (place / "model" / "weights.csv").write_text("1\n")
    for output in ("model/weights.csv", "model/../model/weights.csv"):
        words = f"predict --model model --data text.csv -o {output}"
        refuse(run, place, words.split(), "is the input itself")


def test_every_option_that_writes_is_looked_at():
    from trustdoctor.cli.output import OUTPUTS

    app = typer.main.get_command(make_app())
    options = set()
    for command in app.commands.values():
        for parameter in command.params:
            options.add(parameter.name)
            panel = getattr(parameter, "rich_help_panel", None)
            if panel == "Output" and not parameter.is_flag:
                assert parameter.name in OUTPUTS or parameter.name == "only", (
                    parameter.opts
                )
    assert set(OUTPUTS) <= options


@pytest.mark.parametrize(
    "words",
    [
        "diagnose {0}",
        "diagnose rows.parquet --ids id --truth {0}",
        "diagnose rows.parquet --score {0}",
        "diagnose {1} --json {0}",
        "screen rows.parquet --gate gate.json -o {0}",
        "check rows.parquet --gate gate.json --state {0}",
        "export {0} --gate gate.json -o new.onnx",
        "predict --model {0} --data text.csv -o new.csv",
    ],
)
@pytest.mark.parametrize("name", ["loop.csv", "n" * 300 + ".csv", "rows.parquet/a.csv"])
def test_names_that_lead_nowhere_are_reported(name, words, place, run):
    (place / "loop.csv").symlink_to("loop.csv")
    refuse(run, place, words.format(name, "rows.parquet").split(), "")


def test_names_that_are_not_utf_8_work_or_are_refused(place, run):
    odd = os.fsdecode(b"\xff\xfe")
    rows = pl.read_parquet(place / "rows.parquet").with_columns(label=pl.lit(0))
    rows.write_csv(place / "rows.csv")
    content = (place / "rows.csv").read_bytes()
    (place / f"{odd}.csv").write_bytes(content)
    (place / odd).mkdir()
    (place / odd / "a.csv").write_bytes(content)
    for words in (
        ["diagnose", f"{odd}.csv"],
        ["diagnose", odd],
        ["diagnose", "rows.csv", "--labels", odd],
        ["diagnose", "rows.csv", "--ids", "id", "--truth", f"{odd}.csv"],
        ["diagnose", "rows.csv", "--json", f"new{odd}.json"],
        ["diagnose", "rows.csv", "--html", f"new{odd}.html"],
        ["calibrate", "rows.csv", "--coverage", "0.5", "-o", f"gate{odd}.json"],
        ["screen", "rows.csv", "--gate", "gate.json", "-o", f"new{odd}.csv"],
        ["screen", "rows.csv", "--gate", "gate.json", "-o", f"folder{odd}"],
        ["screen", "rows.csv", "--gate", "gate.json", "--json", f"new{odd}"],
        ["check", "rows.csv", "--gate", "gate.json", "--state", f"state{odd}"],
    ):
        completed = run(*words, cwd=place)
        assert completed.returncode in (0, 1, 2, 3), (words, completed.stderr)
        assert "internal error" not in completed.stderr
        assert completed.stderr.count("\n") <= 1
        (completed.stdout + completed.stderr).encode()
    assert (place / f"{odd}.csv").read_bytes() == content


def test_pictures_of_a_folder_are_inputs(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "r0.png").write_bytes(b"a picture")
    for page, good in ((folder / "r0.png", False), (folder / "page.html", True)):
        options = {"file": tmp_path / "rows.csv", "html": page, "pictures": str(folder)}
        if good:
            check_output_paths(options)
        else:
            with pytest.raises(OutputError, match="the input itself"):
                check_output_paths(options)


def test_a_result_does_not_go_where_the_demo_writes(tmp_path):
    (tmp_path / "d").mkdir()
    options = {"save": tmp_path / "d", "json_path": str(tmp_path / "d" / "classes.txt")}
    with pytest.raises(OutputError, match="folder of outputs"):
        check_output_paths(options)
