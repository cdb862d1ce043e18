"""Breaks the numerics, one place at a time: `python -m tests.faults.mutations`.

Named after what is wrong afterwards, with the files of tests where one has to fail.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Mutation(NamedTuple):
    """What is broken: `old` becomes `new` in a file, and `tests` have to fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str


def _of(file: str, tests: str, *rows: tuple[str, str, str]) -> Iterator[Mutation]:
    files = " ".join(f"tests/{name}.py" for name in tests.split())
    files += " -m 'not nightly'"
    return (Mutation(name, f"opjax/{file}.py", *texts, files) for name, *texts in rows)


_KEEP = "(active(weights)[:, None], scores, lowest)"
NUMERICS = (
    *_of(
        "projection",
        "test_basis",
        (
            "mean: masses keep the size of the weights",
            "(self.masses / unit)",
            "(self.masses)",
        ),
        (
            "least squares without its ridge",
            "system = self.gram + jnp.asarray(ridge, self.gram.dtype) * identity",
            "system = self.gram",
        ),
        (
            "basis at masked points",
            "    basis = select(basis, weights)\n    column",
            "    column",
        ),
        (
            "values at masked points",
            "weighted = column * select(values, weights)",
            "weighted = column * values",
        ),
        (
            "Gram matrix without weights",
            "product((column * basis).T, basis)",
            "product(basis.T, basis)",
        ),
        (
            "masked points are counted",
            "jnp.sum(active(weights).astype(weights.dtype))",
            "jnp.asarray(weights.shape[0], weights.dtype)",
        ),
        (
            "masses without weights",
            "weights.astype(basis.dtype) @ basis",
            "jnp.sum(basis, axis=0)",
        ),
    ),
    *_of(
        "linalg",
        "test_linalg",
        (
            "convex: the Gram matrix is whole",
            "gram = scale * _product(a, a.T)",
            "gram = _product(a, a.T)",
        ),
        (
            "dual form of the wrong system",
            "x = solve(_system(a.T, *factors)",
            "x = solve(_system(2 * a.T, *factors)",
        ),
        (
            "condition of a tall matrix",
            "squares[-1] if k <= d else",
            "squares[-1] if True else",
        ),
        (
            "triangle on the wrong side",
            "symmetrize_input=False)\n    return _tri",
            "symmetrize_input=False).T\n    return _tri",
        ),
    ),
    *_of(
        "basis",
        "test_basis",
        (
            "softmax over points",
            "(scores / temperature, axis=1)",
            "(scores / temperature, axis=0)",
        ),
        ("temperature multiplies", "scores / temperature", "scores * temperature"),
        ("Gumbel noise with the other sign", "noise = -jnp.log(", "noise = jnp.log("),
        ("waves of half the frequency", "angle = 2 * jnp.pi", "angle = jnp.pi"),
        ("one hat too many", "0, 1) * (m - 1)", "0, 1) * m"),
        (
            "orthonormal without weights",
            "_orthonormal(basis, root * basis, method)",
            "root * _orthonormal(basis, basis, method)",
        ),
        (
            "columns of any sign",
            "signs = jnp.sign(jnp.diagonal(r))",
            "signs = jnp.ones(len(r), r.dtype)",
        ),
        (
            "derivative of Q without its rotation",
            "(lower - lower.T - products)",
            "(lower - products)",
        ),
    ),
    *_of(
        "quadrature",
        "test_quadrature",
        ("trapezoids end with a whole", "mul(0.5)", "mul(1.0)"),
        ("corners of a simplex", "volumes / (k + 1), k + 1", "volumes / k, k + 1"),
        ("cells of the wrong dimension", "square ** (p / 2)", "square ** p"),
        ("areas without the factorial", "/ math.factorial(k)", "/ k"),
    ),
    *_of(
        "attention/functional",
        "test_attention",
        (
            "queries and keys change places",
            "    q, k, v = coefficients_of(",
            "    k, q, v = coefficients_of(",
        ),
        (
            "intention weighted twice",
            "root = jnp.sqrt(jnp.where(active(weights), weights, 1))",
            "root = (jnp.where(active(weights), weights, 1))",
        ),
        (
            "intention of a Gram matrix without ridge",
            "system = gram + jnp.asarray(ridge, gram.dtype) * identity",
            "system = gram",
        ),
    ),
    *_of(
        "attention/linear",
        "attention/test_linear",
        (
            "keys over features",
            "softmax_means(value, key,",
            "softmax_means(value, jax.nn.log_softmax(key, axis=1),",
        ),
        (
            "keys without weights",
            "softmax_means(value, key, quadrature_weights=weights)",
            "softmax_means(value, key)",
        ),
        (
            "queries over points",
            "jax.nn.softmax(query, axis=1)",
            "jax.nn.softmax(query, axis=0)",
        ),
        ("Galerkin without weights", "@ integrand(value, weights)", "@ value"),
    ),
    *_of(
        "attention/flare",
        "attention/test_flare",
        (
            "no scale",
            "scale * (points @ latents.T)",
            "(points @ latents.T)",
        ),
        (
            "masked points have the highest score",
            f"scores = jnp.where{_KEEP}",
            "lowest",
        ),
        ("shares over points", "(scores(query), axis=1)", "(scores(query), axis=0)"),
    ),
    *_of(
        "attention/linformer",
        "attention/test_linformer",
        (
            "keys projected as values",
            "zip(projections, (key, value), strict=True)",
            "zip(projections[::-1], (key, value), strict=True)",
        ),
    ),
    *_of(
        "attention/normalized",
        "attention/test_normalized",
        ("no division by masses", "jnp.where(masses > 0, masses, 1)[:, None]", "1"),
    ),
    *_of(
        "attention/pairwise",
        "attention/test_pairwise test_attention",
        (
            "scores of another scale",
            "scaled = query.shape[1] ** -0.5 * query",
            "scaled = query.shape[1] ** -1.0 * query",
        ),
        ("pairs without weights", "scores = offsets + _scores(", "scores = _scores("),
        (
            "integrals without weights",
            "integrands = integrand(value, weights)",
            "integrands = value",
        ),
    ),
    *_of(
        "attention/orthogonal",
        "attention/test_orthogonal",
        (
            "gains without the one",
            "return 1 + jax.nn.softmax(scores, axis=0)",
            "return jax.nn.softmax(scores, axis=0)",
        ),
        (
            "gains over channels",
            "jax.nn.softmax(scores, axis=0)",
            "jax.nn.softmax(scores, axis=1)",
        ),
    ),
    *_of(
        "attention/orthonormal",
        "attention/test_orthonormal",
        (
            "sums in place of means",
            "sums.integrals / sums.unit.astype(value.dtype)",
            "sums.integrals",
        ),
        (
            "covariance over all points",
            "products / jnp.where(total > 0, total, 1)",
            "products / features.shape[0]",
        ),
    ),
    *_of(
        "attention/performer",
        "attention/test_performer",
        ("twice the energy", "0.5 * jnp.sum(x**2", "jnp.sum(x**2"),
        ("features of another scale", "x.shape[1] ** -0.25", "x.shape[1] ** -0.5"),
        (
            "features without weights",
            "key_features = weights[:, None].astype(value.dtype) * key_features",
            "pass",
        ),
        (
            "rotations not uniform",
            "signs = jnp.sign(jnp.diagonal(r, axis1=1, axis2=2))",
            "signs = jnp.ones_like(jnp.diagonal(r, axis1=1, axis2=2))",
        ),
    ),
    *_of(
        "attention/nystrom",
        "attention/test_nystrom",
        ("another iteration", "13 * identity", "12 * identity"),
    ),
    *_of(
        "nn/mixers",
        "nn/attention/test_mixers",
        ("unit is a trace", "jnp.sum(wide**2) / key.shape[0]", "jnp.sum(wide**2)"),
        (
            "additive ridge",
            "ridge = opjax.Convex(self.ridge if own is None else own)",
            "ridge = self.ridge if own is None else own",
        ),
        (
            "Galerkin sum over modes",
            "(query, key, value) / key.shape[0]",
            "(query, key, value)",
        ),
        (
            "ridge validated the other way",
            "return query, key, opjax.gcv_ridge(key.T, query.T)",
            "return query, key, opjax.gcv_ridge(query.T, key.T)",
        ),
    ),
    *_of(
        "nn/attention/basis",
        "nn/attention/test_basis nn/attention/test_steps",
        (
            "equal weights sum to n",
            "return jnp.full(x.shape[0], 1 / x.shape[0], x.dtype)",
            "return jnp.ones(x.shape[0], x.dtype)",
        ),
        (
            "no bias at the end",
            "return y if bias is None else y + bias[None, :]",
            "return y",
        ),
    ),
    *_of(
        "nn/attention/points",
        "nn/attention/test_pointwise nn/attention/test_inputs",
        (
            "instance norm without weights",
            "axis=points, epsilon=self.epsilon, weights=weights)",
            "axis=points, epsilon=self.epsilon)",
        ),
        (
            "head norm without bias",
            "return y * scale + bias",
            "return y * scale",
        ),
        (
            "coordinates at the end",
            "return jnp.concatenate([rows, made], axis=2)",
            "return jnp.concatenate([made, rows], axis=2)",
        ),
        (
            "norm of the wrong partner",
            '"query" if self.normalizes_queries else "value"',
            '"value" if self.normalizes_queries else "query"',
        ),
    ),
    *_of(
        "nn/attention/key_sums",
        "nn/attention/test_softmaxed nn/attention/test_pointwise",
        (
            "sums over the points in place of means",
            "integrals / jnp.where(weight > 0, weight, 1).astype(integrals.dtype)",
            "integrals",
        ),
        (
            "one map of the input without its bias",
            "else offset + bias @ functions",
            "else offset",
        ),
    ),
    *_of(
        "nn/attention/sums",
        "nn/attention/test_pointwise nn/attention/test_steps",
        (
            "equal weights of points sum to n",
            "equal = 1 if self.equal_weights_cancel() else 1 / max(x.shape[0], 1)",
            "equal = 1",
        ),
    ),
    *_of(
        "nn/layers/norm",
        "nn/layers/test_norm nn/models/test_latent_models",
        ("variance not centred", "rsqrt(mean(centred**2)", "rsqrt(mean(x**2)"),
        ("root of a sum", "squares = jnp.mean(x**2", "squares = jnp.sum(x**2"),
        ("layer norm without bias", "return y * scale + bias", "return y * scale"),
    ),
    *_of(
        "nn/layers/embedding",
        "nn/layers/test_embedding",
        (
            "gradient at a reference point",
            "jnp.sqrt(jnp.where(coincide, 1, squares))",
            "jnp.sqrt(squares)",
        ),
        ("other frequencies of time", "10000.0 ** (", "1000.0 ** ("),
    ),
    *_of(
        "nn/layers/linear",
        "nn/layers/test_linear",
        ("no residual inside", "x = x + y if adds else y", "x = y"),
        (
            "no residual at the end",
            "return x + y if self.output_residual else y",
            "return y",
        ),
    ),
    *_of(
        "nn/layers/experts",
        "nn/layers/test_experts",
        (
            "gates are equal",
            'jnp.einsum("ne,enc->nc", gates.astype(values.dtype), values)',
            "jnp.mean(values, axis=0)",
        ),
    ),
    *_of(
        "nn/layers/scalers",
        "nn/layers/test_scalers",
        ("middle grid by the sum", "round(math.sqrt(n * m))", "(n + m) // 2"),
        ("no shortcut", "y = y + (x if self.shortcut", "y = (x if self.shortcut"),
    ),
    *_of(
        "nn/models/gnot",
        "nn/models/test_gnot numerics/test_models",
        (
            "gates over points",
            "mesh_points.astype(z.dtype)), axis=1)",
            "mesh_points.astype(z.dtype)), axis=0)",
        ),
        ("inputs without weights", "input_weights=(weights,)", "input_weights=(None,)"),
        ("no time", "with_time(f, time, self.time_embedding)", "f"),
    ),
    *_of(
        "nn/models/ono",
        "nn/models/test_ono",
        (
            "covariance of another mesh is ignored",
            "if covariance is None:\n            covariance",
            "if True:\n            covariance",
        ),
        (
            "covariance of one sample",
            "own if self.batch_axis is None else lax.pmean(own, self.batch_axis)",
            "own",
        ),
    ),
    *_of(
        "nn/models/encoder",
        "nn/models/test_operator nn/models/test_encoder",
        ("attention not added", "        z = z + attended\n", "        z = attended\n"),
        ("second norm left out", "self.mlp(self.mlp_norm(z))", "self.mlp(z)"),
    ),
    *_of(
        "nn/models/latent",
        "nn/models/test_latent_models numerics/test_models",
        (
            "latents without weights",
            "self.scores(trunk), quadrature_weights=quadrature_weights",
            "self.scores(trunk)",
        ),
        (
            "queries at the mesh points",
            "trunk = self.trunk(self._positions(query_points, time))",
            "pass",
        ),
        (
            "decoder reads with the encoder's scores",
            "self.scores if self.decoder_scores is None else self.decoder_scores",
            "self.scores",
        ),
    ),
    *_of(
        "nn/models/deeponet",
        "nn/models/test_deeponet",
        ("no bias", "values + self.bias[...][None, :]", "values"),
        ("masked sensors", "return select(values, weights)", "return values"),
    ),
    *_of(
        "nn/models/chunks",
        "nn/models/test_chunks",
        (
            "backward without what sums know",
            "of_z = _put(of_z, more + _row(of_z, number), number)",
            "of_z = _put(of_z, _row(of_z, number), number)",
        ),
        (
            "the map has no gradient",
            "((_add(of_block, more), of_shared), before)",
            "((of_block, of_shared), before)",
        ),
    ),
    *_of(
        "normalize",
        "test_normalize",
        ("biased always", "axis=axes) / total if unbiased else 0", "axis=axes) * 0"),
        (
            "squares without weights",
            "np.sum(kept * (values - mean) ** 2",
            "np.sum((values - mean) ** 2",
        ),
        (
            "mean is not added",
            "return (inner * std + mean).astype(",
            "return (inner * std).astype(",
        ),
    ),
    *_of(
        "samples/draw",
        "learn/test_points datasets/test_samples",
        (
            "fewer points, less mass",
            'drawn["quadrature_weights"] = factor * drawn["quadrature_weights"]',
            "pass",
        ),
        (
            "padding is drawn",
            "order = order + (~active(weights)).astype(order.dtype)",
            "pass",
        ),
    ),
    *_of(
        "samples/from_arrays",
        "datasets/test_points",
        ("axes of a grid swapped", '*axes, indexing="ij"', '*axes, indexing="xy"'),
    ),
    *_of(
        "samples/normalizers",
        "datasets/test_normalizers",
        ("constant channels by their noise", "np.where(varying, std, 1)", "std"),
        (
            "box from its corner",
            "np.asarray((low + high) / 2, np.float64)",
            "np.asarray(low, np.float64)",
        ),
    ),
    *_of(
        "samples/padding",
        "datasets/test_samples",
        (
            "weights of a padded mesh",
            "1 / sample.num_points, sample.mesh_points.dtype",
            "1 / size, sample.mesh_points.dtype",
        ),
        (
            "a size too small",
            "(points > lower) & (points <= size)",
            "(points > lower) & (points < size)",
        ),
    ),
    *_of(
        "samples/fields",
        "learn/test_fields learn/test_field_losses",
        (
            "constant channels count",
            "channel for channel in channels if varying[channel]",
            "channel for channel in channels",
        ),
    ),
    *_of(
        "samples/division",
        "datasets/test_division",
        (
            "test samples are validated on",
            "return rows[:kept], rows[kept:]",
            "return rows[:kept], rows[: len(rows) - kept]",
        ),
        (
            "training samples are tested on",
            "train, test = cls._cut(",
            "_, test = cls._cut(",
        ),
        (
            "always the same seed",
            "np.random.default_rng(shares.seed)",
            "np.random.default_rng(0)",
        ),
        (
            "validation is cut by the training number",
            "most = shares.num_train, shares.num_validation,",
            "most = shares.num_train, shares.num_train,",
        ),
    ),
    *_of(
        "learn/tasks/field_losses",
        "learn/test_field_losses learn/test_fields",
        (
            "size without the mean",
            "offset[channels] = mean[channels] / field.spread",
            "pass",
        ),
        (
            "channels weigh alike",
            "ratio[channels] = std[channels] / field.spread",
            "ratio[channels] = 1",
        ),
        (
            "values at masked points of a loss",
            "error = jnp.where(keep, values, 0) * ratio",
            "error = values * ratio",
        ),
        ("variation is forgotten", "sizes.variation**2 + FLOOR**2", "FLOOR**2"),
        ("variation not centred", "sums.square / mass - mean", "sums.square / mass"),
        ("error of one device", "sums = jax.lax.psum(sums, axis_name)", "pass"),
    ),
    *_of(
        "learn/tasks/errors",
        "learn/test_evaluation",
        (
            "numbers weigh as fields",
            "error + scalars.WEIGHT * self._of_scalars",
            "error + self._of_scalars",
        ),
    ),
    *_of(
        "learn/tasks/evaluation",
        "learn/test_evaluation",
        (
            "errors in the order of buckets",
            "order = np.argsort(np.concatenate(self.places))",
            "order = np.arange(len(np.concatenate(self.places)))",
        ),
    ),
    *_of(
        "learn/run/batches",
        "learn/test_batches learn/test_fitting",
        (
            "batches of the first epoch",
            "if drawn is None or drawn[0] != epoch:",
            "if drawn is None:",
        ),
        (
            "always the first batches",
            "first = step % self.per_epoch\n        which",
            "first = 0\n        which",
        ),
    ),
    *_of(
        "learn/run/loop",
        "learn/test_fitting",
        (
            "the last model is the best",
            "if value < progress.best_metric:",
            "if True:",
        ),
        (
            "mean of one epoch too many",
            "begin = (self.step - 1) // self.batches.per_epoch",
            "begin = self.step // self.batches.per_epoch",
        ),
    ),
    *_of(
        "learn/tasks/time",
        "learn/test_time learn/test_noise",
        ("noise on constants", "noise[how.history * how.channels :] = 0", "pass"),
        (
            "last frame only",
            "return errors[-1] if last else jnp.mean(errors)",
            "return errors[-1]",
        ),
    ),
    *_of(
        "learn/tasks/time_data",
        "learn/test_time learn/test_train_samples datasets/test_series",
        (
            "increments of the first frame",
            "values[window.start + found.history - 1]",
            "values[window.start]",
        ),
        (
            "scale of frames for increments",
            "std = np.where(deviation > 1e-6 * std, deviation, std)",
            "pass",
        ),
    ),
    *_of(
        "training/optimizers",
        "test_training",
        (
            "rise at the wrong place",
            "turn, end = pct_start * total_steps - 1",
            "turn, end = pct_start * total_steps",
        ),
        (
            "decay without the rate",
            "/ (jnp.sqrt(v / u2) + eps) + decay * p)",
            "/ (jnp.sqrt(v / u2) + eps)) - decay * p",
        ),
        ("second moment not corrected", "jnp.sqrt(v / u2)", "jnp.sqrt(v)"),
    ),
    *_of(
        "training/averages",
        "test_weight_average",
        ("average starts at zero", "total / jnp.where(weight > 0, weight, 1)", "total"),
    ),
)
