"""Prints the time of every case beside what a user would pick instead.

    python benchmarks/speed.py [--only NAME ...] [--columns NAME ...] [--record FILE]
    python benchmarks/speed.py --only translator --beside FOLDER
    python benchmarks/speed.py --only search --peers keras-hub
    python benchmarks/speed.py --only seq2seq --first
    python benchmarks/speed.py --only gpu --columns JAX "on PyTorch"
    python benchmarks/speed.py --picture speed.png

The cases, their groups, sizes and peers are in `cases.py`; groups for a GPU and of searches run
only if they are named. The table has the median time of the peer, if that is plain PyTorch or plain
JAX, and our median times with their ratios to the peer: in a TensorFlow graph, on TensorFlow with
XLA, on JAX, and on PyTorch as the backend of Keras. Other peers run in the same column: plain
Keras, the samplers of keras-hub with our step, or another case. "with gradients" is forward and
backward, with gradients of all weights and inputs. `harness.py` says how it measures. All cases
take an hour on two cores.

--beside: the peer is the package in another checkout of this repository, in the same column, with
    the cases as they are defined there. A case that it does not have stays empty.
--first: CPU seconds of the first run, which traces and compiles, in a process of its own.
--picture: draws the cases of the page on speed instead, which takes about five minutes.
"""

from cases import SPEED
from harness import COLUMNS, make_parser, run_all

# The bars of the picture, and what they compare.
BARS = {
    "additive score, B16 T128 U256": "additive score\n/ sum(v * tanh(q + k))",
    "BahdanauAttention, B2 T512 U256": "BahdanauAttention\n/ keras AdditiveAttention",
    "LuongAttention, dot, B2 T512 U256": "LuongAttention, dot\n/ keras Attention",
    "local-p, concat, 4,096 steps": "LuongAttention, local-p\n/ the same, global",
    "AttentionRNN, B32 T100 U512": "AttentionRNN\n/ a cell that projects the keys",
    "BiDAFAttentionFlow, B8 T400 J30 d100": "BiDAFAttentionFlow\n/ concatenated similarity",
}
LENGTHS = 1024, 4096, 16384


def draw(found, path):
    """Draws ratios as bars, and how the time of windows grows with the length."""
    from matplotlib import pyplot as plt

    found = {name.partition(" | ")[0]: medians for name, medians in found.items()}
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 5.5), width_ratios=(3, 2), layout="constrained"
    )
    for n, column in enumerate(("TF graph", "TF-XLA", "JAX")):
        ratios = []
        for name in BARS:
            medians = found[f"{name}, with gradients"]
            (base,) = (x for key, x in medians.items() if key.startswith(f"{column}, "))
            ratios.append(medians[column] / base)
        bars = left.barh([m + 0.27 * (n - 1) for m in range(len(BARS))], ratios, 0.25, label=column)
        left.bar_label(bars, [f" {x:.2f}" for x in ratios], fontsize=9)
    left.set(xlabel="time, forward and backward, as a share of the alternative's")
    left.set_yticks(range(len(BARS)), BARS.values(), fontsize=9)
    left.axvline(1, color="black", linewidth=0.8)
    left.invert_yaxis()
    left.legend(loc="lower right", fontsize=9)
    for alignment, color in (("local-m", "green"), ("local-p", "blue"), ("global", "red")):
        for score, line in (("general", "-"), ("concat", "--")):
            name = f"{alignment}, {score}, {{:,}} steps, with gradients"
            steps = [n for n in LENGTHS if name.format(n) in found]
            times = [1000 * found[name.format(n)]["TF graph"] for n in steps]
            style = {"marker": "o", "color": f"tab:{color}", "label": f"{alignment}, {score}"}
            right.plot(steps, times, line, **style)
    right.set(xscale="log", yscale="log", xlabel="steps T", ylabel="ms, forward and backward")
    right.set_xticks(LENGTHS, [f"{n:,}" for n in LENGTHS])
    right.set_title("local and global attention, U 64, TensorFlow, graph", fontsize=10)
    right.legend(fontsize=9)
    figure.savefig(path, dpi=130)


def main():
    parser = make_parser(__doc__)
    parser.add_argument("--first", action="store_true", help="the first run alone")
    parser.add_argument("--picture", metavar="FILE", help="draw what the page on speed shows")
    arguments = parser.parse_args()
    if arguments.first:
        run_all(arguments, ["seq2seq"], "first", "CPU s", 1.0)
    elif arguments.picture:
        arguments.columns = [x for x in COLUMNS if x in ("TF graph", "TF-XLA", "JAX")]
        draw(run_all(arguments, [*BARS, "windows"]), arguments.picture)
    else:
        run_all(arguments, SPEED)


if __name__ == "__main__":
    main()
