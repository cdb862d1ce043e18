"""Samples as a model receives them, with their normalisers and sizes."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from opjax import normalize, samples
from opjax.learn.config.start import StartOptions
from opjax.learn.named_types import HostArrays, Numbers
from opjax.learn.predict.description import Description, describe
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.scaling import Scaling
from opjax.learn.registry import operators
from opjax.learn.run import buckets
from opjax.learn.tasks import compared, points, quantities, scalars
from opjax.learn.tasks.channels import Match, match
from opjax.learn.tasks.differences import Decision, Difference
from opjax.learn.tasks.errors import Loss, SampleError
from opjax.learn.tasks.evaluation import Evaluation, Evaluator, Names, TestSet
from opjax.learn.tasks.field_losses import Scales, fields_of_training, without_constants
from opjax.learn.tasks.start import (
    check_options,
    check_scaling,
    check_sizes,
    started_normalizers,
)
from opjax.normalize import Normalizer
from opjax.samples import Sample, Splits, summaries
from opjax.samples.fields import Fields
from opjax.samples.normalizers import encode_stored, fit_normalizers
from opjax.samples.stored import Stored


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoding:
    """Which arrays are normalised.

    Attributes:
      points: map the box of the training meshes to [-1, 1] along its longest side, for
        coordinates in any unit.
      features: normalise every channel of the features.
      target: normalise every channel of the target.
      pointwise: normalise every point separately, on a grid that all samples share.

    Examples:
      >>> from opjax import learn
      >>> learn.Encoding(points=True, target=False)
      Encoding(points=True, features=True, target=False, pointwise=False)
    """

    points: bool = False
    features: bool = True
    target: bool = True
    pointwise: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ModelData:
    """Samples as a model receives them, with their normalisers and sizes.

    Attributes:
      config: as for `regression`.
      physical: samples in physical units.
      splits: the same samples divided by their scales.
      tested: test samples, decoded if the data set encodes their features.
      names: names of the channels.
      own: normalisers provided by the data set.
      fitted: normalisers fitted to the samples.
      sizes: sizes for the construction of a model.
      fields: fields of the target, if each has separate numbers.
      scales: of these fields.
      difference: the difference that the model learns, if it adds to a baseline.
      scaling: scaling of the samples, if any.
      by_form: whether the loss is computed per field, in units of its spread.
      found: the channels that the operator to start from knows, if others may be new.
    """

    config: Any
    physical: Splits
    splits: Splits
    tested: Sequence[Sample]
    names: Names
    own: dict[str, Normalizer]
    fitted: dict[str, Normalizer]
    sizes: operators.Sizes
    fields: Fields | None
    scales: Scales | None
    difference: Difference | None
    scaling: Scaling | None
    by_form: bool
    found: Match | None

    @classmethod
    def of(
        cls,
        config: Any,
        physical: Splits,
        names: Names,
        encoding: Encoding,
        loss: Loss,
        evaluation: Evaluation,
        *,
        scaling: Scaling | None,
        start: Learned | None,
        how: StartOptions,
        from_baseline: bool,
    ) -> "ModelData":
        """Scales the samples, fits normalisers, and finds the fields of the target."""
        same = how.init_channels == "same"
        if start is not None:
            check_scaling(start, scaling, channels=same)
        splits = physical if scaling is None else _scaled(scaling, physical, loss)
        seen = names if scaling is None else scaling.reduced_names()
        own, fitted = _normalizers(splits, encoding, loss, seen)
        tested: Sequence[Sample] = physical.test
        if "features" in own:
            tested = [_decoded(own["features"], sample) for sample in tested]
        evaluation.check(tested, names)
        if start is not None:
            check_options(start, config)
        sizes = operators.sizes(all_samples(splits), fitted | own)
        matched, kept = None, None
        if start is not None:
            axes = summaries.axes_of(splits.train)
            there = check_sizes(start, sizes, names, axes, channels=same)
            matched = None if same else match(start, sizes, seen)
            sizes = there if matched is None else matched.sizes
            fitted = started_normalizers(start, fitted, how, matched, seen)
            kept = start if same and how.init_normalizers == "keep" else None
        fields = scales = difference = None
        by_channel = "target" in fitted and not encoding.pointwise
        if by_channel and (loss.form is not None or sizes.out_features > 1):
            target = fitted["target"]
            fields = fields_of_training(splits.train, target, names, start=kept)
        if loss.form is not None and fields is not None:
            fitted["target"] = without_constants(fitted["target"], fields)
        if from_baseline:
            by_field = None if loss.form is None or loss.own is not None else fields
            difference = Difference.fit(splits, by_field, fitted.get("target"))
            fitted["target"] = difference.normalizer
        if fields is not None:
            scales = Scales(fields, fitted["target"])
        return cls(
            config=config,
            physical=physical,
            splits=splits,
            tested=tested,
            names=names,
            own=own,
            fitted=fitted,
            sizes=sizes,
            fields=fields,
            scales=scales,
            difference=difference,
            scaling=scaling,
            by_form=loss.form is not None,
            found=matched,
        )

    @property
    def normalizers(self) -> dict[str, Normalizer]:
        """All normalisers."""
        return self.fitted | self.own

    def error(self, loss: Loss) -> SampleError:
        """Returns the error of a sample."""
        alone = self.difference is None
        return SampleError(
            normalizers=self.normalizers,
            form=loss.form,
            scales=self.scales,
            field=self.sizes.out_features > 0,
            scalars=self.sizes.target_scalars > 0,
            shares=None if alone else np.ones(self.sizes.out_features),
        )

    def stacked(self, name: str) -> tuple[Any, ...]:
        """Returns buckets of the normalised samples of one split."""
        encode = encoder(self.fitted, target=self.by_form)
        part = getattr(self._beside, name)
        sizes = _padded_sizes(self.config, self._beside, name)
        batch_size = self.config.batch_size if name == "train" else 1
        if isinstance(part, Stored):
            return buckets.of(part, encode, batch_size=batch_size, sizes=sizes)
        stacks = samples.stack(part, batch_size=batch_size, sizes=sizes)
        return tuple(map(encode, stacks))

    @functools.cached_property
    def _beside(self) -> Splits:
        """The samples, with what the model starts from beside their targets."""
        difference = self.difference
        return self.splits if difference is None else difference.beside(self.splits)

    def test_set(self) -> TestSet:
        """The test samples."""
        return TestSet(
            self.tested,
            self.stacked("test"),
            self.config.batch_size,
            self.normalizers,
            self._rows("test"),
            self.scaling,
            None if self.difference is None else self.difference.parts[2],
        )

    def _rows(self, name: str) -> list[np.ndarray]:
        """Places of the samples of one part, but for training, in their buckets."""
        counts = summaries.num_points(getattr(self.splits, name))
        sizes = _padded_sizes(self.config, self.splits, name)
        return [rows for _, rows in samples.bucket_rows(counts, sizes=sizes)]

    def evaluator(
        self, test: TestSet, error: SampleError, evaluation: Evaluation
    ) -> Evaluator | Decision:
        """Evaluates on the test samples; first computes baseline factors if needed."""
        evaluate = Evaluator(
            test=test,
            error=error.measured,
            what=evaluation,
            fields=self.fields,
            names=self.names,
            scalars=self.sizes.target_scalars > 0,
        )
        if self.difference is None:
            return evaluate
        validation = dataclasses.replace(
            test,
            samples=self.splits.validation,
            buckets=self.stacked("validation"),
            rows=self._rows("validation"),
            starts=self.difference.parts[1],
        )
        return Decision(self.difference, validation, error, evaluate)

    def description(self, seen: list[str] | None) -> Description:
        """The description saved with the operator; `seen` contains sample digests."""
        return describe(
            self.physical.train,
            sizes=self.sizes,
            names=self.names,
            fields=self.fields,
            seen=seen,
            scaling=self.scaling,
        )

    def baselines(
        self, test: TestSet, loss: Loss, evaluation: Evaluation
    ) -> Callable[[], compared.Compared]:
        """Returns a function that compares with baselines without an operator."""
        asked, scaling, cases = evaluation.quantities, self.scaling, test.samples

        def of_fields(predicted: Sequence[np.ndarray]) -> Numbers:
            if scaling is not None:
                pairs = zip(predicted, cases, strict=True)
                predicted = [scaling.physical(*pair) for pair in pairs]
            return quantities.compare(asked, cases, predicted, self.names)[0]

        measure = compared.Measure(
            self.fields,
            joint=None if loss.form is not None else evaluation.numbers,
            scalars=scalars.names_of(self.names, self.sizes.target_scalars),
            physical=partial(scalars.physical, scaling, cases),
            quantities=of_fields if asked else None,
        )
        return partial(compared.compare, self.splits, measure)


def _scaled(scaling: Scaling, splits: Splits, loss: Loss) -> Splits:
    """Samples over their scales.

    Raises:
      ValueError: if the loss, or the samples, are not in physical units.
    """
    if loss.form is None:
        raise ValueError(
            "loss=joint is an error in physical units and does not support scales "
            "and angles; use another loss, or omit them."
        )
    if splits.normalizers:
        raise ValueError("Scales need samples in physical units, not encoded samples.")
    return scaling.splits(splits)


def _normalizers(
    splits: Splits, encoding: Encoding, loss: Loss, names: Names
) -> tuple[dict[str, Normalizer], dict[str, Normalizer]]:
    """Those that the samples have, and those that are fitted to them."""
    own = dict(splits.normalizers or {})
    fitted = fit_normalizers(
        splits.train,
        points=encoding.points,
        features=encoding.features and "features" not in own,
        target=encoding.target and "target" not in own,
        pointwise=encoding.pointwise,
        names=names,
        published=loss.form is None,
    )
    return own, fitted


def _padded_sizes(config: Any, splits: Splits, name: str) -> tuple[int, ...] | None:
    """Sizes that the samples of one part are padded to; None if all have one size.

    Those of the training where they fit, so that all parts share what is compiled.
    """
    part = getattr(splits, name)
    if not part:
        return None
    counts = summaries.num_points(part)
    batch_size, epochs = 1, 1
    if name == "train":
        batch_size, epochs = config.batch_size, points.epochs_of(config, counts)
    else:
        sizes = _padded_sizes(config, splits, "train")
        fitting = None if sizes is None else samples.fitting_sizes(counts, sizes)
        if fitting is not None:
            return fitting
    if len(set(counts)) == 1:
        return None
    number = config.num_buckets or samples.cheapest_num_buckets(
        counts, batch_size=batch_size, num_epochs=epochs
    )
    rows = samples.bucket_rows(counts, batch_size=batch_size, num_buckets=number)
    return tuple(size for size, _ in rows)


def encoder(
    fitted: Mapping[str, Normalizer], *, target: bool = False
) -> Callable[[Mapping[str, np.ndarray]], HostArrays]:
    """Returns a function that encodes stacked samples on the host."""
    on_host = {name: Normalizer(*map(np.asarray, one)) for name, one in fitted.items()}  # pyright: ignore
    return partial(encode_stored, normalizers=on_host, target=target)


def check(splits: Splits) -> None:
    """Raises an error unless all samples are consistent, see `samples.check`."""
    for name in ("train", "validation", "test"):
        part = getattr(splits, name)
        if name == "validation" and not part:  # the last epoch is taken
            continue
        if isinstance(part, Stored):  # checked in the first pass, and when read
            present = (summary.channels for summary in part.summaries)
            targets = all({"target", "target_scalars"} & c.keys() for c in present)
        else:
            try:
                samples.check(part)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name} samples: {error}") from None
            targets = all(
                sample.target is not None or sample.target_scalars is not None
                for sample in part
            )
        if not targets:
            raise ValueError(
                f"The {name} samples have no targets; set Sample.target or "
                "Sample.target_scalars."
            )
        samples.check_same_channels(splits.train[0], part[0], names=("train", name))


def all_samples(splits: Splits) -> Sequence[Sample]:
    """All samples of a benchmark."""
    parts = splits.train, splits.validation, splits.test
    if all(isinstance(part, Stored) for part in parts):
        return functools.reduce(Stored.__add__, parts)  # pyright: ignore
    return [sample for part in parts for sample in part]


def _decoded(normalizer: Normalizer, sample: Sample) -> Sample:
    """A sample whose features were encoded by its data set, in physical units."""
    features = normalize.decode(normalizer, jnp.asarray(sample.features))
    return sample._replace(features=np.asarray(features))
