"""The page of models: a row for each name of the registry."""

import dataclasses
from typing import NamedTuple


class Source(NamedTuple):
    """What a model is, where it was published, and its column in `recipes.md`."""

    what: str
    paper: str
    column: str = ""


_CAO = "[Cao 2021](https://arxiv.org/abs/2105.14995)"
SOURCES = {
    "functional": Source(
        "least-squares map between learned bases",
        "[Xiao et al. 2026](https://arxiv.org/abs/2605.31559)",
        "functional",
    ),
    "transolver": Source(
        "softmax attention between learned slices",
        "[Wu et al. 2024](https://arxiv.org/abs/2402.02366)",
        "Transolver",
    ),
    "transolver_plus": Source(
        "Transolver++, slices with a temperature per point",
        "[Luo et al. 2025](https://arxiv.org/abs/2502.02414)",
    ),
    "flare": Source(
        "low-rank attention through latent queries",
        "[Puri et al. 2025](https://arxiv.org/abs/2508.12594)",
        "FLARE",
    ),
    "lno": Source(
        "attention in a latent space",
        "[Wang and Wang 2024](https://arxiv.org/abs/2406.03923)",
    ),
    "orthogonal": Source(
        "orthogonal attention layer, on a basis of the features",
        "[athena](https://github.com/nedtaylor/athena)",
    ),
    "galerkin": Source("Petrov-Galerkin projection, no softmax", _CAO, "Galerkin"),
    "linear": Source("softmax of queries and keys apart", "as in " + _CAO),
    "fourier": Source("scores of all pairs, no softmax", _CAO),
    "softmax": Source("scores of all pairs, in tiles", "standard"),
    "intention": Source(
        "regularised least squares over the points",
        "[Garnelo and Czarnecki 2023](https://arxiv.org/abs/2305.10203)",
    ),
    "performer": Source(
        "random features of the softmax",
        "[Choromanski et al. 2021](https://arxiv.org/abs/2009.14794)",
    ),
    "nystrom": Source(
        "landmarks of the softmax",
        "[Xiong et al. 2021](https://arxiv.org/abs/2102.03902)",
    ),
    "linformer": Source(
        "keys projected along the points",
        "[Wang et al. 2020](https://arxiv.org/abs/2006.04768)",
    ),
    "functional_schwarz": Source(
        "functional attention on overlapping boxes, and coarse",
        "ours; [Köhler and Rheinbach 2026](https://arxiv.org/abs/2606.18525)",
    ),
    "ono": Source(
        "orthogonal neural operator",
        "[Xiao et al. 2024](https://arxiv.org/abs/2310.12487)",
    ),
    "ono_original": Source("the same, with the authors' two streams", "as above"),
    "gnot": Source(
        "cross attention with experts, as later tables quote it",
        "[Hao et al. 2023](https://arxiv.org/abs/2302.14376)",
    ),
    "gnot_original": Source("the same, as in the authors' program", "as above"),
    "deeponet": Source(
        "branch and trunk networks",
        "[Lu et al. 2021](https://arxiv.org/abs/1910.03193)",
    ),
    "fno": Source(
        "Fourier neural operator",
        "[Li et al. 2021](https://arxiv.org/abs/2010.08895)",
        "FNO",
    ),
    "orthogonal_network": Source(
        "network of orthogonal layers", "[athena](https://github.com/nedtaylor/athena)"
    ),
    "galerkin2d": Source("Galerkin transformer between grids", _CAO),
    "linear2d": Source("the same, linear attention", _CAO),
    "fourier2d": Source("the same, Fourier-type attention", _CAO),
    "softmax2d": Source("the same, softmax attention", _CAO),
}
_HEAD = """# Models

Every name can be trained by `opjax-train --models=NAME` and by the programs of
`experiments`, with the same recipe, data and report. [Which model?](which.md) helps to
choose one.

Parameters are those of the preset `fast` with `--noequal_parameters`, for one input and
one output on a grid of 29 x 29 points. Errors are of Darcy flow on this grid by [one
recipe](results/recipes.md#one-recipe-for-all-models): medians of three seeds, about
equal parameters and equal epochs.

| name | what it computes | paper | points | time in the points | parameters | error |
| --- | --- | --- | --- | --- | --- | --- |
"""


def page() -> str:
    """The text of the page."""
    import jax
    from flax import nnx

    from benchmarks.recipe_table import one_recipe
    from opjax.learn.cli import train
    from opjax.learn.registry import operators
    from opjax.learn.registry.entries import Sizes

    preset = dataclasses.replace(train.PRESETS["fast"], equal_parameters=False)
    grid = Sizes(2, 1, 1, (29, 29), 841, ((0.0, 0.0), (1.0, 1.0)))
    errors, rows = one_recipe()["Darcy flow"], []
    for name, entry in operators.REGISTRY.items():
        config = dataclasses.replace(preset, models=(name,))

        def build(config=config):
            return operators.build(config, grid, rngs=nnx.Rngs(0))

        state = jax.tree.leaves(nnx.state(nnx.eval_shape(build), nnx.Param))
        count = sum(leaf.size for leaf in state)
        source = SOURCES[name]
        needs = "any"
        if entry.grid_axes:
            needs = f"grid, {' or '.join(f'{axes}-D' for axes in entry.grid_axes)}"
        elif entry.fixed_points:
            needs = "one number"
        growth = "square" if entry.quadratic else "linear"
        cells = [f"`{name}`", source.what, source.paper, needs, growth]
        error = f"{errors[source.column].median:.4f}" if source.column else ""
        cells += [f"{count / 1000:.0f}k", error]
        rows.append(f"| {' | '.join(cells)} |")
    return _HEAD + "\n".join(rows) + "\n"
