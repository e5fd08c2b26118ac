"""A command that is killed and started again ends with the files of one that was not."""

import io
import json
import signal
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest

from examples.common import dates
from examples.translation.shards import write_shards
from tests import ROOT
from tests.examples import arrays_in
from tests.helpers import wait_for

pytestmark = pytest.mark.slow
# Each has at least four epochs. The last argument names the folder of the state of the first model.
SMALL = {
    "question_answering": (
        "--units 3 --batch-size 40 --steps 30 --save-every 5 --flow none", "none/checkpoint"),
    "speech": (
        "listen --attention monotonic --units 8 --utterances 40 --longest 3 --lengths 2 "
        "--epochs 5 --batch-size 8 --beam 2", "listen/checkpoint"),
    "translation": (
        "--attention none --units 6 --embedding 5 --vocabulary 99 --batch-size 8 --steps 60 "
        "--save-every 10 --beam 2 --dropout 0.3", "checkpoint-none-1"),
}  # fmt: skip


def arguments_of(task, folder):
    """The options of a small run, for the translation with shards of dates."""
    options, checkpoint = SMALL[task]
    if task == "translation":
        pytest.importorskip("grain", reason="it reads the shards")
        sides, few = dates.make_pairs((300, 8), seed=3)
        for name, pair in (("train", sides), ("few", few)):
            for side, texts in zip("ab", pair, strict=True):
                (folder / f"{name}.{side}").write_text("\n".join(texts) + "\n", encoding="utf-8")
        write_shards([folder / "train.a", folder / "train.b"], folder / "shards")
        few = f"{folder / 'few.a'} {folder / 'few.b'}"
        options += f" --shards {folder / 'shards'} --valid {few} --test {few}"
    return [sys.executable, "-m", f"examples.{task}", *options.split()], checkpoint


def files_of(output):
    [path] = output.rglob("model.keras")
    with zipfile.ZipFile(path) as archive, archive.open("model.weights.h5") as stored:
        weights = arrays_in(h5py.File(io.BytesIO(stored.read())))
    [summary] = output.rglob("summary.json")
    return json.loads(summary.read_text(encoding="utf-8")), weights


@pytest.mark.parametrize("task", SMALL)
def test_a_killed_command_ends_with_the_same_weights(task, tmp_path):
    command, checkpoint = arguments_of(task, tmp_path)
    options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def run(folder):
        done = subprocess.run([*command, "--output", folder], **options, check=False)
        assert done.returncode == 0, done.stdout
        return done.stdout

    run(whole)
    with subprocess.Popen([*command, "--output", killed], **options) as process:
        wait_for((killed / checkpoint / "last.weights.h5").exists)
        process.send_signal(signal.SIGKILL)
    assert "Resuming after epoch" in run(killed)
    (summary, weights), (others, expected) = files_of(killed), files_of(whole)
    assert summary == others
    assert weights.keys() == expected.keys()
    for name, x in weights.items():
        np.testing.assert_array_equal(x, expected[name], err_msg=name)
