"""Tables of test errors, with the errors of the paper beside ours."""

import numpy as np

from examples.stories import reading
from examples.stories.training import best_of

# Errors in percent on tasks 1 to 20, from tables 1 and 2 of the paper: position encoding, linear
# start, 1,000 questions for each task. Keys: hops, one model for all tasks, random noise.
PUBLISHED = {
    (3, False, True): """0 8.3 40.3 2.8 13.1 7.6 17.3 10 13.2 15.1
        .9 .2 .4 1.7 0 1.3 51 11.1 82.8 0""",
    (3, False, False): """.1 12.8 58.8 11.6 15.7 8.7 20.3 12.7 17 18.6
        0 .1 .3 2 0 1.6 49 10.1 85.6 0""",
    (1, True, False): """.8 62 76.9 22.8 11 7.2 15.9 13.2 5.1 10.6
        8.4 .4 6.3 36.9 46.4 47.4 44.4 9.6 90.7 0""",
    (2, True, False): """0 15.6 31.6 2.2 13.4 2.3 25.4 11.7 2 5
        1.2 0 .2 8.1 .5 51.3 41.2 10.3 89.9 .1""",
    (3, True, True): """0 11.4 21.9 13.4 14.4 2.8 18.3 9.3 1.9 6.5
        .3 .1 .2 6.9 0 2.7 40.4 9.4 88 0""",
}
# A task counts as failed above this error.
FAILED = 5.0


def report(corpus, models, arguments, settings):
    """Prints a table for each number of hops. Returns the best results by task and hops."""
    chosen = {}
    for hop_count in arguments.hops:
        rows, entries = {}, []
        for group, numbers in corpus.groups.items():
            repeats = range(1, arguments.repeats + 1)
            found = models.entries(group, hop_count, corpus.fingerprints[group], repeats)
            if all(entry["diverged"] for entry in found):
                raise SystemExit(
                    f"task {group}: all {len(found)} models diverged. Choose a lower "
                    "--learning-rate and another --output."
                )
            best = chosen[group, hop_count] = best_of(found)
            entries += found
            for number in numbers:
                errors = [entry["test_errors"][number] for entry in found]
                rows[number] = best["test_errors"][number], errors
        paper = published(hop_count, corpus, settings, arguments)
        print_table(corpus, hop_count, rows, paper, arguments)
        steps, compiles = ([e[name] for e in entries] for name in ("step_ms", "compile_seconds"))
        print(
            f"a step takes {np.min(steps):.2f} to {np.max(steps):.2f} ms when compiled; compiling "
            f"takes {np.max(compiles):.1f} s at most"
        )
    return chosen


def published(hop_count, corpus, settings, arguments):
    """The errors of the paper by task. Empty if the paper has no such model or tasks."""
    same = settings["linear_start"] and settings["encoding"] != "bag"
    same = same and settings["tying"] == "adjacent" and arguments.size == "1k" and arguments.data
    key = hop_count, "joint" in corpus.groups, settings["noise"] > 0
    if not same or key not in PUBLISHED:
        return {}
    names = [name.replace("-", " ") for name in reading.NAMES]
    errors = zip(names, PUBLISHED[key].split(), strict=True)
    found = {str(n): (name, float(error)) for n, (name, error) in enumerate(errors, 1)}
    official = {n: error for n, (name, error) in found.items() if corpus.names.get(n) == name}
    return official if set(corpus.names) <= set(official) else {}


def print_table(corpus, hop_count, rows, paper, arguments):
    kind = "one model for all tasks" if "joint" in corpus.groups else "a model for each task"
    best = f", best of {arguments.repeats} by training error" if arguments.repeats > 1 else ""
    print(f"\ntest errors in %, {kind}, {hop_count} hops{best}")
    spread = "   all repeats" if arguments.repeats > 1 else ""
    width = max(map(len, [*corpus.names.values(), "failed, over 5%"]))
    print(f"{'':{width + 4}}   ours" + ("  paper" if paper else "") + spread)
    for number, (error, errors) in rows.items():
        line = f"{number:>3} {corpus.names[number]:{width}} {error:6.1f}"
        line += f" {paper[number]:6.1f}" if paper else ""
        if spread:
            line += f"   {np.mean(errors):5.1f} ± {np.std(errors, ddof=1):.1f}"
        print(line)
    ours = [error for error, _ in rows.values()]
    theirs = [paper[number] for number in rows] if paper else []
    for name, measure, form in (("mean", np.mean, "6.1f"), ("failed, over 5%", _failed, "6d")):
        line = f"{'':3} {name:{width}} {measure(ours):{form}}"
        print(line + (f" {measure(theirs):{form}}" if theirs else ""))


def _failed(errors):
    return int(np.sum(np.array(errors) > FAILED))
