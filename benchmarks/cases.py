"""The table of all cases: what is computed, at which sizes, in which passes, and beside what.

`build` names a function of `ours.py`, which takes the sizes. A peer is another case of this table,
or "PyTorch" (`plain_torch.py`), "plain JAX" (`plain_jax.py`), "plain Keras" or "keras-hub" (both
`plain_keras.py`): the function of the same name there computes the same.
"""

from typing import NamedTuple

FORWARD, GRADIENTS = "forward", "with gradients"
BOTH = FORWARD, GRADIENTS
TORCH, JAX, KERAS = ("PyTorch",), ("plain JAX",), ("plain Keras",)


class Case(NamedTuple):
    build: str
    sizes: dict
    peers: tuple = TORCH
    passes: tuple = (GRADIENTS,)
    columns: tuple = ()  # the columns that have it, if not all


def bts(batch, steps, units, **others):
    return {"batch": batch, "steps": steps, "units": units, **others}


def decoder(batch, steps, units, attention, cell="GRU", layers=1, **others):
    return bts(batch, steps, units, attention=attention, cell=cell, layers=layers, **others)


MATCHING = bts(32, 128, 256)
LAYERS = {
    "additive, one step": Case("additive_step", bts(64, 50, 512)),
    "additive": Case("additive", bts(16, 128, 256)),
    "dot": Case("luong", {**MATCHING, "score": "dot"}),
    "general": Case("luong", MATCHING),
    "general, attentional vector": Case("luong", {**MATCHING, "vector": True}),
    "general, sparsemax": Case("luong", {**MATCHING, "normalizer": "sparsemax"}),
    "local-m": Case("luong", {**MATCHING, "alignment": "local-m"}),
    "local-p": Case("luong", {**MATCHING, "alignment": "local-p"}),
    "BiDAF": Case("bidaf", {"batch": 8, "context": 400, "query": 30, "units": 100}),
    "pooling": Case("pooling", bts(64, 200, 200)),
    "bag": Case("bag", bts(4, 50_000, 256, features=512)),
    "hierarchical": Case("hierarchical", {"batch": 16, "sentences": 20, "words": 25, "units": 100}),
    "memory hop": Case("memory_hop", bts(64, 50, 128)),
}
# The encoders are torch.nn.GRU on both sides, instead of Keras's GRU on ours.
LAYERS["hierarchical, torch.nn.GRU"] = Case(
    "hierarchical",
    {**LAYERS["hierarchical"].sizes, "torch_gru": True},
    columns=("on PyTorch", "torch.compile"),
)

DECODERS = {"translator": Case("translator", bts(32, 50, 512, words=8000))}
DECODERS |= {
    f"{layers if layers > 1 else ''}{cell}, {attention or 'no attention'}, {steps} steps": Case(
        "decoder", decoder(32, steps, 512, attention, cell, layers)
    )
    for cell, layers in (("GRU", 1), ("LSTM", 1), ("LSTM", 2))
    for attention in (None, "Bahdanau", "Luong", "Luong, fed")
    for steps in (20, 50)
}

# A translator searches as many random sentences, which are as long as captions.
TRANSLATOR = {"words": 8000, "units": 512}
COMPILED, ON_TENSORFLOW = ("TF graph", "TF-XLA", "JAX"), ("TF eager", "TF graph", "TF-XLA")
SEARCHING = bts(64, 20, 256, words=8000, longest=30)  # no hypothesis ends early
SEARCHES = {
    f"{name} search": Case("search", {**SEARCHING, "beams": n}, (*TORCH, "keras-hub"), (FORWARD,))
    for name, n in (("greedy", 1), ("beam", 5))
}
GENERATED = {**TRANSLATOR, "count": 1000}
SEARCHES |= {
    name: Case("generate", {**GENERATED, "models": n}, ("bare search",), (FORWARD,), COMPILED)
    for name, n in (("generate", 1), ("generate, in both directions", 2))
}

THREE_SIZES = {
    f"B{b} T{t} U{u}": bts(b, t, u) for b, t, u in ((16, 128, 256), (2, 512, 256), (32, 50, 512))
}
SCORES = {
    f"additive score{end}, {name}": Case(
        "score", {**sizes, "compiling": compiling}, KERAS, BOTH, columns
    )
    for name, sizes in THREE_SIZES.items()
    for end, compiling, columns in (("", None, ()), (", nothing compiled", False, ON_TENSORFLOW))
}
BESIDE_KERAS = {
    f"{layer}, {name}": Case(build, {**sizes, **options}, KERAS, BOTH)
    for name, sizes in THREE_SIZES.items()
    for layer, build, options in (
        ("BahdanauAttention", "additive", {}),
        ("LuongAttention, dot", "luong", {"score": "dot"}),
    )
}
BESIDE_KERAS |= {
    # Beside a cell that projects the keys at every step.
    "AttentionRNN, B32 T100 U512": Case(
        "decoder", decoder(32, 100, 512, "Bahdanau", projects=True), KERAS, BOTH
    ),
    # Beside one that tiles and concatenates, with the sizes of the paper.
    "BiDAFAttentionFlow, B8 T400 J30 d100": Case("bidaf", LAYERS["BiDAF"].sizes, KERAS, BOTH),
}
BAGS = {
    f"bag of {n:,}": Case("bag", bts(1, n, 256, features=512), KERAS)
    for n in (1_000, 50_000, 200_000)
}


def window(score, alignment, steps):
    # All scores of the longest memory take a gigabyte, and copies of them more than there is.
    peers = (f"global, {score}, {steps:,} steps",) if steps <= 4096 else ()
    sizes = bts(1, steps, 64, score=score, alignment=alignment)
    return Case("luong", sizes, peers if alignment != "global" else (), BOTH)


WINDOWS = {
    f"{alignment}, {score}, {steps:,} steps": window(score, alignment, steps)
    for score in ("general", "concat")
    for steps in (1024, 4096, 16384)
    for alignment in ("local-m", "local-p", "global")
    if alignment != "global" or steps <= 4096
}

# Sizes close to those of Tacotron 2.
STATEFUL = {"length": 100, "attention_units": 128, "attends": "previous"}
STATES = {
    name: Case("decoder", decoder(32, 50, 512, name, **STATEFUL), ("additive decoder",))
    for name in (
        *("location-sensitive", "coverage", "monotonic", "monotonic, chunks of 4", "stepwise"),
        *("forward", "forward, agent", "GMM V2b", "dynamic convolution", "4 heads"),
        *("4 heads of all units", "4 location-sensitive heads"),
    )
}
TWO_GRUS = decoder(32, 50, 256, "Bahdanau", layers=2)
STACKS = {
    "input feeding": Case("decoder", {**TWO_GRUS, "feeding": True}, ("in the recurrence",)),
    "DecoderStack": Case("stack", bts(32, 50, 256, cell="GRU", layers=2), ("in the recurrence",)),
}

UNTRAINED = {
    f"{name}, without training=True": Case(
        "decoder", {**DECODERS[name].sizes, "trains": False}, (name,), columns=COMPILED
    )
    for name in ("GRU, Bahdanau, 50 steps", "2LSTM, Luong, fed, 50 steps")
}
EAGER = {
    f"50 eager calls, {call}": Case("eager", {"call": call}, KERAS, (FORWARD,), ("TF eager",))
    for call in ("BahdanauAttention", "BahdanauAttention, with a mask", "dot", "a decoder's step")
}
TRAINING = {
    f"Seq2Seq, {what}": Case("seq2seq", {**TRANSLATOR, "what": what}, (), (FORWARD,), COMPILED)
    for what in ("a training step", "generate")
}

# These names have batch x queries x memory steps. `gpu_programs.py` counts what these cases do.
ON_GPU = JAX + TORCH
LSTMS = decoder(32, 30, 512, "Luong, fed", "LSTM", 2)
LANGUAGE = {"batch": 64, "words": 8000, "units": 512, "length": 30}
GPU = {
    "additive, 16 x 128 x 128, U 256": Case("additive", bts(16, 128, 256), ON_GPU),
    "additive, 2 x 2,048 x 2,048, U 256": Case("additive", bts(2, 2048, 256), ON_GPU),
    "general, 32 x 128 x 128, D 256": Case("luong", MATCHING, ON_GPU),
}
GPU |= {
    f"{alignment}, {batch} x {steps:,} x {steps:,}, D {units}": Case(
        "luong", bts(batch, steps, units, alignment=alignment), ON_GPU if steps < 8192 else JAX
    )
    for batch, steps, units in ((8, 512, 256), (2, 8192, 64))
    for alignment in ("local-p", "local-m")
}
GPU |= {
    "pooling, 64 x 200, D 200": Case("pooling", bts(64, 200, 200), ON_GPU),
    "gated pooling, 4 x 50,000, D 512, U 256": Case("bag", LAYERS["bag"].sizes, ON_GPU),
    "GRU, Bahdanau, 32 x 50 x 50, U 512": Case("decoder", decoder(32, 50, 512, "Bahdanau"), ON_GPU),
    "2 LSTM, Luong, fed, 32 x 30 x 30, U 512": Case("decoder", LSTMS, ON_GPU),
    "GRU, location-sensitive, 32 x 50 x 50, U 512": Case(
        "decoder", decoder(32, 50, 512, "location-sensitive"), JAX
    ),
    "stack of 4 LSTM, 32 x 50 x 50, U 1,024": Case("stack", bts(32, 50, 1024), JAX),
}
GPU = {name: case._replace(passes=BOTH) for name, case in GPU.items()}
GPU |= {
    f"{kind} search, 64{beams}, 8,000 words, U 512": Case(
        "language_search", {**LANGUAGE, "width": width}, JAX, (FORWARD,), ("JAX",)
    )
    for kind, width, beams in (("greedy", 1, ""), ("beam", 5, " x 5"))
}
COUNTED = tuple(GPU)
GPU["stack of 4 LSTM with cuDNN, 32 x 50 x 50, U 1,024"] = Case(
    "stack", bts(32, 50, 1024, cudnn="auto"), JAX, BOTH, ("JAX",)
)
GPU["translator, 256 x 50 x 50, U 1,024"] = Case("translator", bts(256, 50, 1024, words=32_000))

# Only peers of other cases, and cases of memory.
PEERS = {
    "bare search": Case("generate", {**GENERATED, "models": 0}, (), (FORWARD,), COMPILED),
    "additive decoder": Case("decoder", decoder(32, 50, 512, "Bahdanau", **STATEFUL), ()),
    "in the recurrence": Case("decoder", TWO_GRUS, ()),
    "additive self-attention, 16,384 steps": Case("self_attention", bts(1, 16384, 64), ()),
}

GROUPS = {
    **{"layers": LAYERS, "decoders": DECODERS, "additive score": SCORES, "keras": BESIDE_KERAS},
    **{"bags": BAGS, "windows": WINDOWS, "states": STATES, "stacks": STACKS, "eager": EAGER},
    **{"untrained": UNTRAINED, "seq2seq": TRAINING, "search": SEARCHES, "gpu": GPU, "peers": PEERS},
}
CASES = {name: case for group in GROUPS.values() for name, case in group.items()}

SPEED = [name for name in GROUPS if name not in ("search", "gpu", "peers")]
MEMORY = [
    *("BahdanauAttention, B2 T512 U256", "LuongAttention, dot, B2 T512 U256"),
    *("local-p, general, 16,384 steps", "AttentionRNN, B32 T100 U512"),
    *("BiDAFAttentionFlow, B8 T400 J30 d100", "bag of 50,000"),
    "additive self-attention, 16,384 steps",
]
