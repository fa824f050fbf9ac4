"""A figure as text for a page: vector lines that follow the page's theme, heavy parts as pixels."""

import base64
import io
import re
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from .style import DARK, FAINT, INK, MUTED, PAPER, RASTER_DPI

NEUTRALS = {INK: "var(--ink)", MUTED: "var(--muted)", FAINT: "var(--line)", PAPER: "var(--paper)"}
# Text stays text, and the same figure gives the same file.
SVG_RC: Any = {"svg.fonttype": "none", "svg.hashsalt": "stochflow"}


def to_svg(figure: Figure, prefix: str) -> str:
    """Inline SVG: neutral colours, of a light page or a dark one, become the page's variables; `prefix` makes ids
    unique in the page."""
    buffer = io.StringIO()
    with matplotlib.rc_context(SVG_RC):
        figure.savefig(buffer, format="svg", dpi=RASTER_DPI, transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r"font: ([^;\"]*?)'[^;\"]*", r"font: \1var(--sans)", svg)
    for colour, variable in NEUTRALS.items():
        svg = svg.replace(colour, variable).replace(DARK[colour], variable)
    return svg


def to_png(figure: Figure) -> str:
    """The figure as a data URL of a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=RASTER_DPI)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
