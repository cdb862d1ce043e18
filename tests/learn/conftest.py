"""Programs in tests draw quickly, or not at all."""

from tests.figures import unarranged, undrawn  # noqa: F401
from tests.learn.tiny import quick_start  # noqa: F401
