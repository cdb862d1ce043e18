"""Programs: members, variants, folders, reports and descriptions, on a linear model."""

import dataclasses
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from absl import flags

from opjax import learn
from opjax.learn import DataOptions, RunOptions, TrainingOptions, option
from opjax.learn.cli import command_line, describe, help_page
from opjax.learn.report import figures
from opjax.learn.tasks import outcome

SCALES = {"small": 0.0, "large": 0.5}


@dataclasses.dataclass(frozen=True)
class Config(RunOptions, DataOptions, TrainingOptions):
    """A line through points."""

    models: tuple[str, ...] = option(("small",), "Starts", choices=SCALES, members=True)
    noises: tuple[float, ...] = option((0.0,), "Noises", minimum=0, members=True)

    def variants(self):
        return {
            f"{noise:g}": dataclasses.replace(self, noises=(noise,))
            for noise in self.noises
        }


PRESETS = {
    "quick": Config(num_train=6, num_validation=2, num_test=3, num_epochs=2),
    "long": Config(preset="long", num_epochs=5),
}
QUICK = PRESETS["quick"]


def loss(model, batch):
    return jnp.sum((batch["x"] @ model["w"] - batch["y"]) ** 2)


def metric(model, sample):
    return (sample["x"] @ model["w"] - sample["y"]) ** 2


def data(count, noise, seed):
    x = np.random.default_rng(seed).normal(size=(count, 2)).astype(np.float32)
    return ({"x": x, "y": (x.sum(axis=1) + noise).astype(np.float32)},)


class Line:
    """A task that counts how often it is made."""

    def __init__(self, **changes):
        self.made, self.changes = [], changes

    def __call__(self, config, cache_dir):
        self.made.append((config.noises, config.num_train))
        (noise,) = config.noises
        test = data(config.num_test, noise, 2)

        def build(config, rngs):
            return {"w": jnp.full(2, SCALES[config.model] + config.seed, jnp.float32)}

        def evaluate(model, folder):
            errors = np.asarray(jax.vmap(metric, (None, 0))(model, test[0]))
            outcome.write(folder, errors=errors, rows=[], samples=[], predicted=[])
            return {"error": float(errors.mean()), "names": ["no", "number"]}

        task = learn.Task(
            train=data(config.num_train, noise, 0),
            validation=data(config.num_validation, noise, 1),
            test=test,
            build=build,
            loss=loss,
            metric=metric,
            evaluate=evaluate,
            probe=lambda model: {"size": jnp.sum(model["w"] ** 2)},
            source="a line",
        )
        return dataclasses.replace(task, **self.changes)


def program(line, **given):
    return learn.Program("line", PRESETS, line, **given)


def times(path):
    return {f: f.stat().st_mtime_ns for f in path.glob("*/metrics.jsonl")}


def test_a_study_trains_models_with_variants_and_seeds_and_can_be_extended(
    tmp_path, capsys
):
    line = Line()
    config = dataclasses.replace(QUICK, noises=(0.0, 0.5), seeds=(0, 1))
    result = program(line).run(config, workdir=tmp_path)
    assert json.loads(capsys.readouterr().out) == result
    assert line.made == [((0.0,), 6), ((0.5,), 6)]  # once for every variant
    names = ["small_0-0", "small_0-1", "small_0.5-0", "small_0.5-1"]
    assert sorted(path.parent.name for path in times(tmp_path)) == names
    members = json.loads((tmp_path / "members.json").read_text())
    errors = [row["error"] for row in members["small_0.5"]]
    np.testing.assert_allclose(result["error_small_0.5"], np.median(errors))
    assert result["error_small_0.5_range"] == [min(errors), max(errors)]
    assert result["error"] == result["error_small_0"]
    assert result["size"] > 0
    assert result["parameters"] == 2
    assert (result["data"], result["seeds"]) == ("a line", [0, 1])
    drawn = [len(call.args[1]) for call in figures.draw.call_args_list]
    assert drawn == [1, 1, 1, 1, 4]  # each member, and all of them together
    before = times(tmp_path)

    more = dataclasses.replace(config, models=("small", "large"), seeds=(1,))
    extended = program(line).run(more, workdir=tmp_path)
    after = times(tmp_path)
    assert before.items() <= after.items()
    assert {p.parent.name for p in after.keys() - before.keys()} == {
        "large_0-1",
        "large_0.5-1",
    }
    assert extended["error_small_0.5"] == errors[1]
    assert program(line).run(config, workdir=tmp_path)["error"] == result["error"]
    with pytest.raises(ValueError, match="num_epochs: 2 there, 3 now"):
        program(line).run(dataclasses.replace(config, num_epochs=3), workdir=tmp_path)


@pytest.mark.nightly
def test_without_validation_samples_the_last_epoch_counts(tmp_path):
    config = dataclasses.replace(QUICK, num_validation=0)
    result = program(Line(validation=())).run(config, workdir=tmp_path / "none")
    assert "validation" not in result
    rows = json.loads((tmp_path / "none" / "members.json").read_text())
    assert rows["small_0"][0]["best_epoch"] == config.num_epochs
    assert "of which the last counts" in (tmp_path / "none" / "tables.md").read_text()
    last = program(Line(metric=None)).run(QUICK, workdir=tmp_path / "last")
    assert result["error"] == last["error"]


@pytest.mark.nightly
def test_the_tables_repeat_the_run_and_programs_add_to_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def report(finished):
        assert finished.num_train == 6
        return learn.Report(result={"best": list(finished.results)[0]})

    config = dataclasses.replace(QUICK, eps=1e-6)
    result = program(Line(), title="A line", report=report).run(config)
    assert result["best"] == "small_0"
    assert result["workdir"] == str(tmp_path / "runs" / "line-quick-eps1e-06")
    text = (tmp_path / "runs" / "line-quick-eps1e-06" / "tables.md").read_text()
    assert text.startswith("# A line\n\n6 training and 3 test samples, 2 epochs")
    command = "python -m experiments.line --preset=quick --eps=1e-06"
    assert f"- command: `{command}`" in text
    assert "| small_0 | 2 | 1 |" in text


def test_what_diverges_is_an_error_or_a_result(tmp_path):
    line = Line(optimizer=lambda config, total: optax.sgd(1e30), diverge=True)
    result = program(line).run(QUICK, workdir=tmp_path / "a")
    assert result["parameters"] == 0
    assert "1 diverged" in (tmp_path / "a" / "tables.md").read_text()
    line.changes["diverge"] = False
    with pytest.raises(FloatingPointError, match="Step"):
        program(line).run(QUICK, workdir=tmp_path / "b")


@pytest.mark.nightly
def test_replicas_are_one_member(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Steps(RunOptions, learn.StepOptions):
        def members(self):
            return {("both", None): self}

    def make_task(config, cache_dir):
        def sample(key, step):
            x = jax.random.normal(jax.random.fold_in(key, step), (4, 2), jnp.float32)
            return {"x": x, "y": x.sum(axis=1)}

        def evaluate(model, folder):
            with np.load(folder / "losses.npz") as file:
                return {"loss": float(file["losses"][:, -1].mean())}

        rates = jnp.asarray([0.01, 0.02], jnp.float32)
        return learn.FreshTask(
            draw=sample,
            loss=loss,
            build=lambda config, rngs: {"w": jnp.zeros((2, 2), jnp.float32)},
            evaluate=evaluate,
            optimizer=lambda config, total, rate: optax.sgd(rate),
            replicas=learn.Replicas((3,), rates),
        )

    steps = Steps(models=("line",), num_steps=5)
    program = learn.Program("steps", {"quick": steps}, make_task)
    result = program.run(steps, workdir=tmp_path)
    assert result["loss"] < 8
    assert result["parameters"] == 2
    assert (tmp_path / "both" / "losses.npz").exists()
    found = program.describe(steps, workdir="runs/given")
    assert (found["steps"], found["parameters"]) == (5, 2)
    assert found["workdir"] == "runs/given"


def test_a_description_makes_few_samples_and_trains_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = Line()
    config = dataclasses.replace(
        PRESETS["long"], models=("small", "large"), seeds=(0, 1, 2)
    )
    found = program(line).describe(config)
    assert line.made == [((0.0,), 2)]
    assert found["models"] == ["small_0", "large_0"]
    assert found["parameters"] == 2
    assert found["steps"] == 5 * 200 // 2
    assert found["samples"] == {"train": 200, "validation": 20, "test": 50}
    assert found["data"] == "a line"
    assert found["memory_mib"] > 0
    rows = found["members"]
    total = 3 * (rows["small_0"]["seconds"] + rows["large_0"]["seconds"])
    np.testing.assert_allclose(found["seconds"], total)
    assert found["workdir"] == "runs/line-long-small+large-seeds0+1+2"
    assert not list(tmp_path.iterdir())
    json.dumps(found, allow_nan=False)


def test_other_work_has_a_folder_and_a_last_line_too(tmp_path):
    def work(config, directory, cache_dir):
        return learn.Report(text="| a table |", result={"slope": 2.0}, head="Times.")

    other = learn.Program(
        "times", PRESETS, work=work, describe_work=lambda config: {"seconds": 1.0}
    )
    result = other.run(QUICK, workdir=tmp_path)
    assert result["slope"] == 2.0
    assert result["preset"] == "quick"
    assert result["seconds"] >= 0
    assert "| a table |" in (tmp_path / "tables.md").read_text()
    assert other.describe(QUICK)["seconds"] == 1.0


def test_help_has_groups_choices_and_the_real_folder():
    values = flags.FlagValues()
    groups = command_line.define_flags(PRESETS, program="line", flag_values=values)
    assert list(groups) == [
        "This program",
        "Data",
        "What to run",
        "Training",
        "Updates",
        "Folders and output",
    ]
    assert groups["Data"][:2] == ["data_dir", "data_seed"]  # as they were declared
    text = help_page.page("Lines.", groups, values)
    titles = [line for line in text.splitlines() if line.endswith(":")]
    assert titles == [f"{group}:" for group in groups]
    assert text.startswith("Lines.\n\nUsage: ")
    assert "--model=" not in text  # another name
    assert "Starts: small, large (default small)" in text
    assert "(quick 6, long 200)" in text
    assert "(default runs/line-quick, with" in " ".join(text.split())


def test_help_names_what_is_seldom_needed_and_helpfull_explains_it():
    values = flags.FlagValues()
    groups = command_line.define_flags(PRESETS, program="line", flag_values=values)
    short = help_page.page("Lines.", groups, values, full=False)
    full = help_page.page("Lines.", groups, values)
    for name in (name for names in groups.values() for name in names):
        assert f"--{name}" in short or f"--[no]{name}" in short
        assert f"  --{name}=" in full or f"  --[no]{name}\n" in full
    assert "  --beta2=" not in short
    assert "  --learning_rate=" in short


def test_time_by_operations_grows_with_them_and_is_known_before_compilation():
    def chain(count, x):
        for _ in range(count):
            x = x @ x
        return x

    x = jnp.ones((64, 64))
    short, long = (
        describe.estimated_seconds(jax.jit(partial(chain, n)).lower(x)) for n in (1, 40)
    )
    assert 0 < short < long


def test_describe_answers_before_it_compiles(capsys):
    program(Line()).describe(dataclasses.replace(QUICK, num_epochs=6))
    lines = capsys.readouterr().err.splitlines()
    (first,) = [line for line in lines if line.startswith("Samples: ")]
    assert " train" in first
    assert "steps" in first
    assert "Compiling a step" in first
