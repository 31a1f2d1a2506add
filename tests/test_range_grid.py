"""Every rule, alias and operator over the whole range of the formats: values, slopes and curvatures against mpmath."""

from __future__ import annotations

BOUNDS = {
    # Units in the last place, of the value, the slopes and the curvatures.
    "float32": (4.0, 10.0, 20.0),
    "float64": (4.0, 10.0, 20.0),
    # Computed in float32, and rounded once.
    "float16": (1.0, 1.0, 1.0),
}
