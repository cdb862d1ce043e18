"""Programs in tests draw quickly."""

from tests.figures import unarranged  # noqa: F401
