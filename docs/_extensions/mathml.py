"""Equations as MathML, written into the pages when they are built: browsers show it, no script is loaded."""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert


def mathml(latex: str, display: str) -> str:
    """Convert LaTeX to MathML.

    Args:
        latex: without dollar signs.
        display: `inline` or `block`.

    >>> mathml("a_i", "inline")[:5]
    '<math'
    """
    return convert(latex, display=display)


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer; called by Sphinx."""

    def inline(writer: Any, node: Any) -> None:
        from docutils.nodes import SkipNode

        writer.body.append(mathml(node.astext(), "inline"))
        raise SkipNode

    def block(writer: Any, node: Any) -> None:
        from docutils.nodes import SkipNode

        writer.body.append(f'<div class="equation">{mathml(node.astext(), "block")}</div>\n')
        raise SkipNode

    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
