"""Typesets the equations of docstrings as MathML, which browsers show without scripts.

A line is an equation, and text after three spaces or more. The code form stays below.
"""

import re
from html import escape

TOKEN = re.compile(
    r"(?P<code>`[^`]*`|\"[^\"]*\")|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)"
    # `next_state` is one name, `sum_j` and `W_c` have an index.
    r"|(?P<name>[A-Za-z]{2,}(?:_[A-Za-z]{3,})+|[A-Za-z]+)|(?P<space>\s+)|(?P<sign>\.{2,3}|//|.)"
)
SIGNS = {"-": "−", ".": "⋅", "*": "⊙", "..": "…", "...": "…"}
NAMES = {"pi": "π"}
MARKS = {"~": "~", "^": "^"}


def typeset(lines):
    """The lines of equations as a block of HTML."""
    rows = [row(line) for line in lines if line.strip()]
    table = "".join(f"<mtr>{x}</mtr>" for x in rows)
    math = f'<math display="block"><mtable>{table}</mtable></math>'
    return f'<div class="equations" tabindex="0">{math}</div>'


def row(line):
    """A line: what is defined, its definition, and remarks."""
    # Before the sign, spaces align the code form.
    first, *rest = re.split(r" {3,}", re.sub(r" += ", " = ", line.strip(), count=1))
    left, equals, right = first.partition(" = ")
    if not equals and not line.startswith(" "):
        cells = [remark(first), *map(remark, rest)]
        return "".join(f"<mtd>{cell}</mtd>" for cell in cells)
    if not equals:
        left, right = "", left
    sign = "<mo>=</mo>" if equals else "<mphantom><mo>=</mo></mphantom>"
    cells = [formula(left), f"<mrow>{sign}{formula(right)}</mrow>", *map(remark, rest)]
    return "".join(f"<mtd>{cell}</mtd>" for cell in cells)


def remark(text):
    return formula(text) if " = " in text else f"<mtext>{escape(text.replace('`', ''))}</mtext>"


def formula(text):
    """A formula as MathML."""
    tokens = [(m.lastgroup, m.group()) for m in TOKEN.finditer(text.strip())]
    found, _ = sequence(tokens, 0, ())
    return f"<mrow>{found}</mrow>"


def sequence(tokens, n, ends):
    """What stands before one of the signs in `ends`, and the number of the token after it."""
    found = []
    while n < len(tokens) and tokens[n][1] not in ends:
        piece, n = item(tokens, n)
        found.append(piece)
    return "".join(found), n + 1


def item(tokens, n):
    """A name with all that hangs on it, a bracket, a number or a sign."""
    kind, text = tokens[n]
    following = tokens[n + 1][1] if n + 1 < len(tokens) else ""
    n += 1
    if kind == "space":
        return "<mspace width='0.25em'></mspace>", n
    if kind == "code":
        return f"<mtext>{escape(text.strip('`'))}</mtext>", n
    if kind == "number":
        return attached(f"<mn>{text}</mn>", tokens, n)
    if kind == "name":
        if text == "sum" and following == "_":
            return attached("<mo>∑</mo>", tokens, n)
        is_word = len(text) > 1 and text not in NAMES and following[:1] not in tuple("([_^~'")
        if is_word:
            return f"<mtext>{text}</mtext>", n
        return attached(f"<mi>{NAMES.get(text, text)}</mi>", tokens, n)
    if text in ("(", "["):
        close = {"(": ")", "[": "]"}[text]
        inner, n = sequence(tokens, n, (close,))
        return attached(f"<mrow><mo>{text}</mo>{inner}<mo>{close}</mo></mrow>", tokens, n)
    return f"<mo>{escape(SIGNS.get(text, text))}</mo>", n


def attached(base, tokens, n):
    """The base with marks above it, its indices and its exponent."""
    lower, upper = "", ""
    while n < len(tokens):
        sign = tokens[n][1]
        after = tokens[n + 1] if n + 1 < len(tokens) else ("", "")
        if sign == "'":
            upper, n = upper + "<mo>′</mo>", n + 1
        elif sign in MARKS and after[0] not in ("number", "name"):
            base, n = f"<mover>{base}<mo>{MARKS[sign]}</mo></mover>", n + 1
        elif sign in ("^", "_"):
            if after[1] == "{":
                inner, n = sequence(tokens, n + 2, ("}",))
            else:
                name = NAMES.get(after[1], after[1])
                tag = "mn" if after[0] == "number" else "mi"
                inner, n = f"<{tag}>{escape(name)}</{tag}>", n + 2
            lower, upper = (lower + inner, upper) if sign == "_" else (lower, upper + inner)
        elif sign == "[":
            inner, n = sequence(tokens, n + 1, ("]",))
            lower += f"<mo>,</mo>{inner}" if lower else inner
        else:
            break
    if lower and upper:
        base = f"<msubsup>{base}<mrow>{lower}</mrow><mrow>{upper}</mrow></msubsup>"
    elif lower:
        base = f"<msub>{base}<mrow>{lower}</mrow></msub>"
    elif upper:
        base = f"<msup>{base}<mrow>{upper}</mrow></msup>"
    return base, n
