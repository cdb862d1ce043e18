"""The result of a run: a model, and how its data are read."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from opjax import files
from opjax.files.formats import OnePath
from opjax.learn.config.reading import read_options
from opjax.learn.predict.description import Channels, Description, Stepping
from opjax.learn.predict.scaling import Scaling
from opjax.learn.predict.starting import Start
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Sizes
from opjax.normalize import Normalizer, is_single
from opjax.samples import Sample, base, columns
from opjax.samples.fields import Fields, component_names, fields_of

MeshFile = Sample | OnePath  # a sample, or a file with one


class Learned(NamedTuple):
    """An operator with its normalisers and its description.

    Attributes:
      model: the model, which maps encoded arrays.
      normalizers: normalisers of `mesh_points`, `features` and `target`, if any.
      description: description of the operator.
      folder: folder from which it was loaded.
      start: the baseline that it adds to, if any.
    """

    model: Any
    normalizers: dict[str, Normalizer]
    description: Description
    folder: pathlib.Path
    start: Start | None = None

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the run."""
        return self.description.config

    @property
    def channels(self) -> Channels:
        """Numbers of channels of the arrays of a sample."""
        return self.description.channels

    @property
    def channel_names(self) -> dict[str, list[str]]:
        """Names of the channels, by array."""
        return self.description.names

    @property
    def name(self) -> str:
        """Name of the model in the registry."""
        return self.config["models"][0]

    @property
    def sizes(self) -> Sizes:
        """Sizes of the samples that the operator was built for."""
        return self.description.sizes

    @property
    def stepping(self) -> Stepping:
        """How the operator advances fields in time.

        Raises:
          ValueError: if it was not trained on series.
        """
        if self.description.time is None:
            raise ValueError(
                "The operator was not trained on series; train it with --time=unrolled."
            )
        return self.description.time

    @property
    def scaling(self) -> Scaling | None:
        """The physical scales that cases are divided by, if any."""
        return self.description.scaling

    def reduced(self, sample: Sample) -> Sample:
        """Returns a case divided by its scales, as the normalisers receive it.

        Raises:
          ValueError: if a scale is not positive or is unknown. The message names the
            case.
        """
        return sample if self.scaling is None else self.scaling.reduce(sample)

    def reduced_values(self, values: np.ndarray, sample: Sample) -> np.ndarray:
        """Returns a field in physical units divided by its scales."""
        scaling = self.scaling
        return values if scaling is None else scaling.reduced_values(values, sample)

    def physical(
        self, values: np.ndarray, sample: Sample, role: str = "target"
    ) -> np.ndarray:
        """Returns predictions for a case over its scales in physical units."""
        scaling = self.scaling
        return values if scaling is None else scaling.physical(values, sample, role)

    def factor(self, sample: Sample) -> np.ndarray:
        """Returns the scales of the output of a case, `(q,)`; ones without scales."""
        count = self.channels.target
        if self.scaling is None:
            return np.ones(count, np.float32)
        return self.scaling.factor(sample, count)

    def fields_of(self, sample: Sample) -> Fields:
        """Returns `fields` with their spread in the physical units of a case."""
        fields, scaling = self.fields, self.scaling
        return fields if scaling is None else scaling.fields(sample, fields)

    @property
    def fields(self) -> Fields:
        """Fields of the output function, with their training spread.

        If cases are scaled, this is the spread of scaled fields, see `fields_of`.
        Operators of opjax 0.2 did not store which channels are constant.
        """
        if self.description.fields is not None:
            return self.description.fields
        count = self.channels.target
        std = np.ones(count)
        if "target" in self.normalizers:
            spread = np.asarray(self.normalizers["target"].std, np.float64)
            std = np.broadcast_to(
                spread.reshape(-1, spread.shape[-1]).mean(0), (count,)
            )
        names = self.channel_names.get("target")
        return fields_of(names, std, np.ones(count, bool))

    @property
    def component_names(self) -> list[str]:
        """Names of the output channels, such as `U_x` for a vector `U`."""
        names = self.channel_names.get("target")
        return component_names(names, self.channels.target)

    @property
    def written_names(self) -> list[str]:
        """Names of the output channels in files of predictions."""
        count = self.channels.target
        names = self.channel_names.get("target") or ["target"] * count
        return ["prediction" if n == "target" else f"prediction_{n}" for n in names]

    @property
    def fixed_points(self) -> bool:
        """Whether the operator supports only one grid or one number of points."""
        entry, config = operators.entry(self.name), self.config
        options = operators.options_of(self.name)
        on_grid = self.sizes.grid_shape is not None
        convolves = config.get("convolution", False) and "convolution" in options
        own = entry.options is None  # nobody knows, so be careful
        tied = bool(entry.grid_axes or convolves or own)
        return entry.fixed_points or on_grid and tied

    def one(self, mesh: MeshFile, *, facets: bool = False) -> Sample:
        """Returns the sample, or the only sample of a file.

        Args:
          mesh: a sample, or a file.
          facets: also read the facets of boundaries, see `files.ReadOptions`.

        Raises:
          OSError: if the file cannot be read.
          ValueError: if it is damaged or contains several samples.
        """
        if isinstance(mesh, Sample):
            self.check_plane(mesh)
            return columns(mesh)
        several = self.read(mesh, facets=facets)
        if len(several) != 1:
            raise ValueError(
                f"{mesh} contains {len(several)} samples; read them with "
                "`trained.read` and predict one at a time."
            )
        self.check_plane(several[0])
        return several[0]

    def check_plane(self, sample: Sample) -> None:
        """Raises ValueError for a mesh in another plane of space than in training."""
        there = f"the training meshes of the operator in {self.folder}"
        base.check_plane(sample.name, sample.axes, there, self.description.axes)

    def read(
        self,
        paths: OnePath | Sequence[str],
        *,
        point_dim: int | None = None,
        facets: bool = False,
    ) -> list[Sample]:
        """Reads samples in the same way as the training samples; targets are optional.

        Args:
          paths: as for `files.read`.
          point_dim: as for `files.read`; by default, as in training.
          facets: read the facets of boundaries, even if training did not.
        """
        options = self.read_options(point_dim=point_dim)
        options = dataclasses.replace(options, facets=facets or options.facets)
        several = files.read(paths, options)
        normalizer = self.normalizers.get("scalars")
        if normalizer is None or not is_single(normalizer):
            return several
        # One file does not tell how much its scalars vary.
        return [
            one._replace(scalars=np.asarray(one.scalars, np.float32)) for one in several
        ]

    def read_options(self, *, point_dim: int | None = None) -> files.ReadOptions:
        """Returns the options to read samples in the same way as in training.

        Args:
          point_dim: as for `files.read`; by default, as in training.
        """
        options = read_options(self.config)
        # Meshes one cell thick are flat only for operators that learned flat ones.
        in_space = 3 if self.channels.mesh_points == 3 else None
        return dataclasses.replace(
            options,
            point_dim=point_dim or options.point_dim or in_space,
            stacked=False,
            need_target=False,
        )
