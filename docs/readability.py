"""How hard the README and the pages of the site are to read: python docs/readability.py.

It prints, for each page and for all of them, Flesch's reading ease (more is easier; 30 to 50 is
usual for technical texts) and the words per sentence. `--hardest 15` prints the longest sentences,
`--sample 60` some at random.
"""

import argparse
import pathlib
import random
import re

import textstat

ROOT = pathlib.Path(__file__).parents[1]
# What is no prose, and what takes its place, in this order.
REPLACED = [
    (r"^(```|~~~|:::).*?^\1", ""),  # blocks of code
    (r"\$\$.*?\$\$", ""),
    (r"<!--.*?-->", ""),
    (r"^(\||#+ |\[[^\]\n]*\]:|\([\w-]+\)=|:\w+:)[^\n]*$", ""),  # tables, headings, targets
    (r"!\[[^\]]*\]\([^)]*\)", ""),
    (r"\[([^\]]*)\]\([^)]*\)", r"\1"),
    (r"\{[\w:]+\}(?=`)", ""),
    (r"\*{1,2}(?=\S)|(?<=\S)\*{1,2}", ""),
    (r"^\s*([-*+]|\d+\.) ", "\n"),  # an item is a paragraph
]
CODE = re.compile(r"`[^`]+`|\$[^$\n]+\$|<?https?:[^\s>]*>?")
# A dot that ends no sentence: in numbers, versions, names of files and code.
DOT = "\N{ONE DOT LEADER}"


def prose(text):
    """The sentences of a page in Markdown, without tables, headings, addresses and blocks."""
    for pattern, new in REPLACED:
        text = re.sub(pattern, new, text, flags=re.DOTALL | re.MULTILINE)
    text = CODE.sub(lambda found: found.group().replace(".", DOT), text)
    text = re.sub(r"(?<=\w)\.(?=\w)|(?<=et al)\.", DOT, text)
    sentences = []
    for paragraph in re.split(r"\n\s*\n", text):
        sentences += re.split(r"(?<=[.!?]) ", " ".join(paragraph.split()))
    return [x for x in sentences if len(x.split()) > 2]


def spoken(sentence):
    """A sentence as it is measured, with a word of one syllable for code."""
    sentence = CODE.sub("name", sentence).replace(DOT, "")
    return re.sub(r"[.:!?]", "", sentence) + "."


def row(name, sentences):
    """AttendOptions ease, words per sentence and the number of words."""
    text = [spoken(x) for x in sentences]
    words = sum(len(x.split()) for x in text)
    ease = textstat.flesch_reading_ease(" ".join(text))
    return f"{name:<40}{ease:>6.1f}{words / len(text):>7.1f}{words:>8}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="another checkout")
    parser.add_argument("--hardest", type=int, default=0, metavar="N")
    parser.add_argument("--sample", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    paths = [options.root / "README.md", *sorted(options.root.glob("docs/**/*.md"))]
    pages = {str(path.relative_to(options.root)): prose(path.read_text("utf-8")) for path in paths}
    print(f"{'page':<40}{'ease':>6}{'words':>7}{'of all':>8}")
    for name, sentences in pages.items():
        if sentences:
            print(row(name, sentences))
    print(row("all pages", [x for sentences in pages.values() for x in sentences]))
    everything = [(x, name) for name, sentences in pages.items() for x in sentences]
    longest = sorted(everything, key=lambda x: -len(spoken(x[0]).split()))[: options.hardest]
    drawn = random.Random(options.seed).sample(everything, options.sample)
    for sentence, name in [*longest, *drawn]:
        words = len(spoken(sentence).split())
        print(f"\n{name}, {words} words:\n  {sentence.replace(DOT, '.')}")


if __name__ == "__main__":
    main()
