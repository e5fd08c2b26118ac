"""Typesets LaTeX as MathML, which browsers show without scripts."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True}


def inline(translator, node):
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(translator, node):
    math = tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="equations" tabindex="0">{math}</div>')
    raise nodes.SkipNode
