"""Prints test errors in tables; writes and checks all files of a model."""

import numpy as np

from examples.common.files import save_figure
from examples.common.training import write_model
from examples.stories.data import answer_key
from keras_attention.plotting import Hops, plot_hops


def best_of(entries):
    """The model with the lowest training error, as in the paper, or None if all diverged."""
    finite = [entry for entry in entries if entry["train_loss"] is not None]
    return min(finite, key=lambda e: (e["train_error"], e["train_loss"]), default=None)


def report(tasks, entries, hops, arguments):
    """Prints a table of the test errors. Returns the best of the results of each `Task`."""
    names, rows, chosen = {}, {}, [best_of(found) for found in entries]
    for task, found, best in zip(tasks, entries, chosen, strict=True):
        if best is None:
            wrong = f"task {task.name}: all {len(found)} models diverged"
            raise SystemExit(f"{wrong}. Lower the learning rate, and choose another --output.")
        names |= task.names
        for n in task.names:
            rows[n] = best["test_errors"][n], [entry["test_errors"][n] for entry in found]
    repeats = arguments.repeats
    best = f", best of {repeats} by training error" if repeats > 1 else ""
    print(f"\ntest errors in %, {hops} hops{best}")
    width = max(map(len, names.values()))
    print(f"{'':{width + 4}}   ours" + "   all repeats" * (repeats > 1))
    for n, (error, errors) in rows.items():
        spread = f"   {np.mean(errors):5.1f} ± {np.std(errors, ddof=1):.1f}" if repeats > 1 else ""
        print(f"{n:>3} {names[n]:{width}} {error:6.1f}{spread}")
    print(f"    {'mean':{width}} {np.mean([error for error, _ in rows.values()]):6.1f}")
    return chosen


def save(task, reader, folder):
    """Writes and checks the `.keras` file of a trained model, and a picture of four questions."""
    # Of different tasks if there are several.
    numbers, samples = list(task.test), []
    print()
    for n in range(4):
        number = numbers[n * len(numbers) // 4]
        question = task.asked[number][n % len(task.asked[number])]
        inputs = list(task.test[number].select([n % len(task.asked[number])]).inputs(task.sizes[2]))
        if n == 0:
            write_model(reader, folder / "model.keras", inputs)
        found = reader.predict_on_batch(inputs)
        count = int(inputs[0][0].any(axis=1).sum())  # empty places come first
        lines, weights = question.story[-count:], found["hop_weights"][0][:, -count:]
        answer = task.encoder.listed[found["probabilities"][0, 1:-1].argmax()]  # as in `answers`
        facts = question.facts if count == len(question.story) else ()
        expected = answer_key(question.answer)
        samples.append(Hops(lines, weights, question.text, answer, expected, facts))
    save_figure(folder / "hops.png", plot_hops(*samples))
    print(f"{folder / 'hops.png'}: which sentences each hop read for these questions")
