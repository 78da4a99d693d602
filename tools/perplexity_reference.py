"""Perplexity figures of the demo from the PyTorch model in float64, for tests/cli/perplexity_test.cc.

    python3 tools/perplexity_reference.py models/demo models/demo/heldout.txt 2048,2048 512,512 256,96
    head -c 7170 models/demo/heldout.txt > excerpt.txt
    python3 tools/perplexity_reference.py models/demo excerpt.txt 512,512 256,256 128,48
    head -c 3291 models/demo/heldout.txt > chapter.txt
    python3 tools/perplexity_reference.py models/demo chapter.txt 128,128

Needs what tools/demo_training/requirements.txt lists. Prints a line for each pair WINDOW,STRIDE: tokens scored,
nats a token, its standard error, bits a byte. Windows as in Hugging Face's guide to perplexity of fixed-length models:
BOS at the front of the text alone; windows begin at multiples of the stride; a token is scored in the first window that
holds it, never as a window's first.
"""
import math
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "demo_training"))
import bpe  # noqa: E402
from golden import load  # noqa: E402


def windows(tokens, window, stride):
    scored = 0
    for begin in range(0, tokens, stride):
        end = min(begin + window, tokens)
        yield begin, end, max(scored, begin + 1)
        scored = end
        if end == tokens:
            return


def main(folder, text, *settings):
    model, tokenizer = load(pathlib.Path(folder)), bpe.load(pathlib.Path(folder) / "tokenizer.json")
    ids = [0] + tokenizer.encode(open(text, encoding="utf-8", newline="").read())
    # A letter of the byte-level alphabet is a byte.
    length = {id: len(token) for token, id in tokenizer.vocab.items()}
    sizes = [length.get(i, 0) for i in ids]
    for window, stride in (map(int, setting.split(",")) for setting in settings):
        losses, size = [], 0
        for begin, end, first in windows(len(ids), window, stride):
            if first >= end:
                continue
            with torch.no_grad():
                logits = model(torch.tensor([ids[begin:end]]))[0]
            logprobs = logits.log_softmax(-1)
            losses += [-float(logprobs[i - begin - 1, ids[i]]) for i in range(first, end)]
            size += sum(sizes[first:end])
        mean = sum(losses) / len(losses)
        variance = sum((x - mean) ** 2 for x in losses) / (len(losses) - 1)
        print(f"window {window} stride {stride}: {len(losses)} tokens, {mean:.9f} nats, "
              f"standard error {math.sqrt(variance / len(losses)):.9f}, {sum(losses) / math.log(2) / size:.9f} bits a byte")


if __name__ == "__main__":
    main(*sys.argv[1:])
