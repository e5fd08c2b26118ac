"""Turns our docstrings into reStructuredText: sections, names of ours and signatures."""

import importlib
import inspect
import re

SECTIONS = (
    *("Args", "Arguments", "Attributes", "Weights", "Call arguments", "Returns", "Raises"),
    *("Example", "Sizes", "Reference", "References", "Yields"),
)
# The parts of the package whose names are public. Other modules serve the package itself.
PUBLIC = (
    *("layers", "attention", "decoder", "seq2seq", "text", "search", "ops", "alignment"),
    *("bags", "plotting", "faithfulness", "tuning", "distribution"),
)
# Modules whose docstring is on the index of the reference.
DESCRIBED = ("keras_attention.search",)
ITEM = re.compile(r"(`[^`]+`|\*{0,2}\w+)(, (`[^`]+`|\*{0,2}\w+))*: ")


def setup(app):
    names = public_names("keras_attention")

    def process(app, what, name, thing, options, lines):
        lines[:] = convert(lines, names)

    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", signature)
    return {"parallel_read_safe": True}


def public_names(package):
    """From the public names of a package to the shortest paths that lead to them."""
    found = {}
    for part in ("", *PUBLIC):
        module = importlib.import_module(f"{package}.{part}".rstrip("."))
        for name in module.__all__:
            found.setdefault(name, f"{module.__name__}.{name}")
    return found


def signature(app, what, name, thing, options, signature, returned):
    """The arguments of a layer, which Keras hides."""
    if what != "class" or issubclass(thing, tuple):
        return None
    parameters = list(inspect.signature(thing.__init__).parameters.values())[1:]
    parameters = [x.replace(annotation=x.empty) for x in parameters]
    return str(inspect.Signature(parameters)), None


def convert(lines, names):
    """The lines of a docstring as reStructuredText."""
    found, section, n = [], None, 0
    while n < len(lines):
        line = lines[n]
        title, colon, rest = line.partition(":")
        if colon and title in SECTIONS:
            section = title
            found += ["", f".. rubric:: {title}", ""]
            more, n = take(lines, n + 1, lambda x: x.strip() and not x.startswith(" "))
            found += [marked(" ".join([rest.strip(), *more]), names), ""]
        elif line.lstrip().startswith(">>>"):
            block, n = take(lines, n, lambda x: x.strip())
            found += ["", *dedented(block), ""]
        elif line.startswith("    ") and section in (None, "Sizes"):
            block, n = take(lines, n, lambda x: not x or x.startswith("    "))
            found += ["", ".. code-block:: text", "", *block, ""]
        elif line.startswith("    "):
            block, n = take(lines, n, lambda x: not x or x.startswith("    "))
            found += entries(dedented(block), names)
        elif line.strip():
            block, n = take(lines, n, lambda x: x.strip() and not x.startswith(("    ", ">>>")))
            found += [marked(" ".join(block), names), ""]
            section = None
        else:
            n += 1
    return found


def take(lines, n, belongs):
    """The lines from n on that belong together, and the number of the line after them."""
    end = n
    while end < len(lines) and belongs(lines[end]):
        end += 1
    return lines[n:end], end


def dedented(block):
    least = min((len(x) - len(x.lstrip()) for x in block if x.strip()), default=0)
    return [x[least:] for x in block]


def entries(block, names):
    """A section: its entries as a list, other text as paragraphs, code as it is."""
    found, n = [], 0
    while n < len(block):
        if block[n].startswith(">>>"):
            part, n = take(block, n, lambda x: x.strip())
            found += ["", *part, ""]
        elif ITEM.match(block[n]):
            more, end = take(block, n + 1, lambda x: x.startswith("    "))
            text = " ".join([block[n], *(x.strip() for x in more)])
            found += ["", f"* {entry(text, names)}", ""]
            n = end
        elif block[n].strip():
            part, n = take(block, n, lambda x: x.strip() and not ITEM.match(x))
            found += ["", marked(" ".join(x.strip() for x in part), names), ""]
        else:
            n += 1
    return found


def entry(text, names):
    """An entry, with its names in bold."""
    head = ITEM.match(text).group().removesuffix(": ")
    rest = text[len(head) + 2 :]
    bold = ", ".join(f"**{escaped(x.strip('`'))}**" for x in head.split(", "))
    return f"{bold}: {marked(rest, names)}"


def marked(text, names):
    """Marks code and names of ours, and escapes what reStructuredText would read as its own."""
    parts = re.split(r"(`[^`]+`|https?://[^\s,;)]*[^\s,;).])", text)
    return "".join(code(part, names) if n % 2 else escaped(part) for n, part in enumerate(parts))


def code(part, names):
    if part.startswith("http"):
        return part
    content = part.strip("`")
    if content in DESCRIBED:
        return f":py:mod:`{content}`"
    name = content.removeprefix("keras_attention.").rpartition(".")[2]
    if name in names and names[name].endswith(content):
        return f":py:obj:`{content} <{names[name]}>`"
    return f"``{content}``"


def escaped(text):
    return re.sub(r"[*|\\]|(?<=\w)_(?=\W|$)", lambda m: "\\" + m.group(), text)
