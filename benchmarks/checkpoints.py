"""Times checkpoints: to save, to restore, and their bytes on disk.

    python -m benchmarks.checkpoints --against=/tmp/before --rounds=5

Every measurement runs in a fresh process, and the versions alternate, so that a busy
machine disturbs all of them alike. A state is a model, its AdamW optimizer and the
step: `small` is the model of the README's main job, `large` that of the paper's
Navier-Stokes runs. A save is timed until all its files are on the disk. The last line
printed is one JSON object; the Markdown report goes to `--output`.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.provenance import provenance

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_WIDTHS = {
    "small": {"features": 64, "num_layers": 4, "num_heads": 4, "shared": True},
    "large": {"features": 256, "num_layers": 8, "num_heads": 8, "shared": False},
}
_PARAMETERS = {"small": 145_321, "large": 11_232_073}
_PACKAGES = ("jax", "flax", "orbax-checkpoint", "tensorstore", "numpy")


def state(size: str) -> Any:
    """A training state of the model of a size."""
    from functools import partial

    import jax
    from flax import nnx

    from opjax import nn, training

    width = _WIDTHS[size]
    # Names of opjax 0.2 are those of `nn` itself.
    bases, mixers = getattr(nn, "bases", nn), getattr(nn, "mixers", nn)
    basis = partial(bases.SoftmaxBasis, num_basis=32, grid_shape=(32, 32))
    model = nn.OperatorTransformer(
        position=nn.ReferenceDistances(2, 8),
        feature_dim=1 if width["shared"] else 10,
        out_features=1,
        features=width["features"],
        num_layers=width["num_layers"],
        basis=partial(basis, num_heads=width["num_heads"]) if width["shared"] else None,
        attention=partial(
            nn.BasisAttention,
            num_heads=width["num_heads"],
            basis=None if width["shared"] else basis,
            mixer=mixers.FunctionalMap,
        ),
        rngs=nnx.Rngs(0),
    )
    count = sum(leaf.size for leaf in jax.tree.leaves(model))
    assert count == _PARAMETERS[size], count
    rule = training.adamw_onecycle(1e-3, 1000, weight_decay=1e-5, clip_norm=0.1)
    return training.init(model, rule)


def measure(size: str, repeats: int) -> dict[str, float]:
    """Medians of one process: seconds to save and to restore, bytes, parameters."""
    import jax

    try:
        from opjax.training import checkpoint
    except ImportError:  # opjax 0.2
        from opjax import checkpoint

    payload = state(size)
    saves, restores = [], []
    with tempfile.TemporaryDirectory(prefix="opjax-checkpoints-") as place:
        for step in range(repeats + 1):
            begin = time.perf_counter()
            path = checkpoint.save(place, step, payload)
            saves.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            restored = checkpoint.restore(place, payload)
            assert restored is not None
            jax.block_until_ready(restored.payload)
            restores.append(time.perf_counter() - begin)
        found = (file for file in path.rglob("*") if file.is_file())
        files = [file.stat().st_size for file in found]
    return {
        "save": statistics.median(saves[1:]),
        "restore": statistics.median(restores[1:]),
        "first_save": saves[0],
        "bytes": sum(files),
        "files": len(files),
    }


def _elsewhere(root: str, size: str, repeats: int) -> dict[str, float]:
    """`measure` in a fresh process, with the opjax of a checkout."""
    command = [sys.executable, "-W", "ignore", __file__]
    command += [f"--measure={size}", f"--repeats={repeats}"]
    path = os.pathsep.join([root, str(_ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=env, cwd="/", stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(found: dict[str, dict[str, list[dict[str, float]]]], where: Any) -> str:
    """The table: medians of processes, with the least and the most in brackets."""
    lines = ["| state | version | save, ms | restore, ms | MB | files |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: |"]
    for size, versions in found.items():
        for version, rounds in versions.items():
            cells = []
            for name in ("save", "restore"):
                times = [1e3 * one[name] for one in rounds]
                middle = statistics.median(times)
                cells.append(f"{middle:.0f} [{min(times):.0f}, {max(times):.0f}]")
            cells.append(f"{statistics.median(r['bytes'] for r in rounds) / 1e6:.3f}")
            cells.append(f"{statistics.median(r['files'] for r in rounds):.0f}")
            name = f"{size}, {_PARAMETERS[size]:,} parameters"
            lines.append(f"| {name} | {version} | {' | '.join(cells)} |")
    lines += ["", *(f"- {name}: {value}" for name, value in where.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs on the flags."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", help="folder of another checkout of opjax")
    parser.add_argument("--sizes", default="small,large")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each kind")
    parser.add_argument("--repeats", type=int, default=7, help="saves in a process")
    parser.add_argument("--output", type=pathlib.Path, help="file of the report")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure, given.repeats)))
        return
    where = provenance(_PACKAGES)
    roots = {"before": str(pathlib.Path(given.against).resolve())}
    roots = (roots if given.against else {}) | {"now": str(_ROOT)}
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for size in given.sizes.split(","):
        found[size] = {version: [] for version in roots}
        for _ in range(given.rounds):
            for version, root in roots.items():
                found[size][version].append(_elsewhere(root, size, given.repeats))
    text = report(found, where)
    print(text, file=sys.stderr)
    if given.output:
        given.output.write_text(text)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
