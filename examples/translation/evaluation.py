"""How good translations are, and a report of it."""

import numpy as np

from examples.common.directions import direction


def accuracy(translations, references):
    """The share of translations that equal their reference."""
    return float(np.mean([a == b for a, b in zip(translations, references, strict=True)]))


def bleu(translations, references):
    """BLEU of all sentences, as sacrebleu returns it."""
    import sacrebleu

    return sacrebleu.metrics.BLEU().corpus_score(translations, [references])


def score(translations, references, arguments):
    """BLEU for files, and the share that is exactly right for dates."""
    if arguments.valid:
        return bleu(translations, references).score
    return accuracy(translations, references)


def bleu_report(sources, translations, references):
    """BLEU of all sentences and by the number of words in the source, with the signature."""
    import sacrebleu

    metric = sacrebleu.metrics.BLEU()
    report = {"all": metric.corpus_score(translations, [references]).score}
    report["signature"] = str(metric.get_signature())
    words = [len(source.split()) for source in sources]
    for low, high in ((1, 7), (8, 11), (12, 15), (16, 20), (21, 10**6)):
        chosen = [i for i, n in enumerate(words) if low <= n <= high]
        if chosen:
            name = f"{low}-{high} words" if high < 10**6 else f"{low} words and more"
            score = metric.corpus_score(
                [translations[i] for i in chosen], [[references[i] for i in chosen]]
            )
            report[name] = {"sentences": len(chosen), "BLEU": score.score}
    return report


def report(summary, test, translations):
    """Prints samples of the test set, the times and the scores."""
    print("\nSamples of the test set:")
    for i in range(min(6, len(translations))):
        print(f"  {test[0][i]}\n    -> {translations[i]}    (reference: {test[1][i]})")
    speed = (
        f"{summary['seconds_a_step']:.3f} s a step"
        if "seconds_a_step" in summary
        else f"{summary['seconds_an_epoch']:.0f} s an epoch"
    )
    print(
        f"\n{summary['attention']}: validation perplexity {summary['validation_perplexity']:.3f}, "
        f"{speed}, search {summary['search_seconds']:.0f} s"
    )
    if "ensemble" in summary:
        found = summary["ensemble"]
        for member in found["members"]:
            way = direction(member["backward"])
            print(f"seed {member['seed']}, {way}: {member['score']:.4g}")
        print(f"mean {found['mean']:.4g}, all together {found['score']:.4g}")
    if "BLEU" in summary:
        scores = dict(summary["BLEU"])
        print(f"BLEU {scores.pop('all'):.2f}  ({scores.pop('signature')})")
        for name, part in scores.items():
            print(f"  {name}: {part['BLEU']:.2f} ({part['sentences']} sentences)")
        return
    print(f"exactly right: {summary['exact']:.1%} of {len(translations):,} unseen dates")
    if "exact_without_attention" in summary:
        print(f"the same model without attention: {summary['exact_without_attention']:.1%}")
