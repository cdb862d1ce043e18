"""The output of an operator for one mesh, evaluated at any point."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from opjax import streaming
from opjax.learn.predict import prediction
from opjax.learn.predict.learned import Learned, MeshFile
from opjax.samples import Sample


class Field(NamedTuple):
    """The output function of an operator for one mesh, from `Trained.field`.

    Points interact only through the coefficients of the layers, which are computed from
    the mesh. At the points of the mesh, values equal those of `trained(mesh)`. A value
    at another point costs only the evaluation of the layers at that point. An operator
    with input features needs the features at that point.

    Attributes:
      trained: the operator.
      coefficients: coefficients of all layers, `(l, h, k, d)`.
      time: time, for an operator with a time embedding.
      scalars: scalars of the mesh, `(s,)`, if the operator has scalar inputs.
      numbers: numbers of the mesh for the physical scales.

    Examples:
      >>> import numpy as np
      >>> from opjax import learn, samples
      >>> points = np.random.default_rng(0).uniform(size=(8, 9, 2))
      >>> cases = samples.from_arrays(mesh_points=points, target=points[..., 0])
      >>> trained = learn.train(cases, preset="smoke", num_epochs=1)
      >>> field = trained.field(cases[0])
      >>> field.at(np.array([[0.5, 0.5]], "f4")).shape  # a probe, no point of the mesh
      (1, 1)
    """

    trained: Learned
    coefficients: np.ndarray
    time: float | None = None
    scalars: np.ndarray | None = None
    numbers: Mapping[str, float] | None = None

    def at(
        self,
        points: MeshFile | np.ndarray,
        features: np.ndarray | None = None,
        *,
        chunk_size: int = 2**14,
    ) -> np.ndarray:
        """Evaluates the field, in physical units.

        Args:
          points: evaluation points, `(m, p)`, for example another mesh, a slice or a
            line; or a sample or file with points and features, whose weights have no
            effect.
          features: the input function at these points, `(m, c)`, if the operator has
            one.
          chunk_size: number of points that are evaluated at once.

        Returns:
          Values of the output function, float32 of shape `(m, q)`.

        Raises:
          OSError: if the file cannot be read.
          ValueError: if points or features do not fit the operator.
        """
        if isinstance(points, np.ndarray):
            sample = Sample(points, features=features, name="points")
        elif features is None:
            sample = self.trained.one(points)
        else:
            raise ValueError("Pass features only with an array of points.")
        sample = sample._replace(scalars=self.scalars, numbers=self.numbers)
        prediction.check(self.trained, sample, weights=False)
        reduced = self.trained.reduced(sample)
        arrays: dict[str, Any] = {"mesh_points": reduced.mesh_points}
        if reduced.features is not None:
            arrays["features"] = reduced.features
        if reduced.scalars is not None:
            arrays["scalars"] = reduced.scalars
        parts = streaming.evaluate(
            prediction.of_function(self.trained.model),
            self.coefficients,
            prediction.encoded(self.trained, arrays),
            chunk_size=chunk_size,
            time=self.time,
        )
        values = prediction.decoded(self.trained, np.concatenate(list(parts)))
        return self.trained.physical(values, sample)
