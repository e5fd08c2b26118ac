"""Answers a test set, and reports the scores."""

from examples.question_answering.data import cut


def answer(answerer, data, size=60, chosen=None):
    """Answers all questions, or those `chosen` by number: a dictionary from ids to texts."""
    answers = {}
    for batch in data.batches(size, chosen=chosen):
        found = answerer.predict_on_batch(data.inputs(batch))
        for n, first, last in zip(batch, found["start"], found["end"], strict=True):
            answers[data.examples[n].id] = cut(data, n, first, last)
    return answers


def report(summary, examples, answers):
    """Prints samples of the test set, the times and the scores."""
    print("\nSamples of the test set:")
    for example in examples[:6]:
        print(f"  {example.question} -> {answers[example.id]}    (answer: {example.answers[0]})")
    print(
        f"\n{summary['attention']}: {summary['steps']:,} steps, {summary['epochs']:.1f} epochs, "
        f"{summary['seconds_a_step']:.2f} s a step, answering {summary['answer_seconds']:.0f} s"
    )
    print(
        f"exact match {summary['exact_match']:.2f}, F1 {summary['f1']:.2f} "
        f"of {summary['questions']:,} unseen questions"
    )
    if "without_attention" in summary:
        score = summary["without_attention"]
        print(
            f"the same model without attention: exact match {score['exact_match']:.2f}, "
            f"F1 {score['f1']:.2f}"
        )
