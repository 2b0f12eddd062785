"""The figure that shows itself in notebooks, however it was made. The only file that imports matplotlib at once, so others import it late."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A matplotlib figure that a notebook shows as a picture, without pyplot."""

    def _repr_png_(self) -> bytes:
        """Return the figure as PNG."""
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=110)
        return out.getvalue()
