#!/usr/bin/env python3
"""Trains the small tokenizers that tests/text keeps, with Hugging Face's `tokenizers`.

    tokenizer_fixtures.py --text FILE... --tiktoken tests/text/tiktoken --byte-fallback tests/text/byte_fallback

The texts were models/demo/heldout.txt, README.md, README.zh.md and docs/*.md: any text will do, but vectors_*.json go
with the files that are there.
"""

import argparse
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tokenizer_oracles as oracles
from tokenizer_vectors import WORDS, byte_characters

SAMPLES = [" ".join(WORDS), "你好，世界！今天天气很好，我们去公园散步吧。人工智能模型的注意力机制。语言模型，词表，编码。",
           "Crème brûlée, naïveté, Ångström, mañana, Übergröße, œuvre, résumé, façade, jalapeño.",
           "👍👍👍 🎉🎉 🏳️‍🌈 😀😀😀 0123456789 2024 1999 100000 3.14159 I'm you'll they've we'd it's DON'T"] * 4


def kimi_like(lines):
    """The vocabulary of a byte-level model trained behind Kimi's split, in order of its merges, and some words whole."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(oracles.KIMI_PATTERN), "isolated"),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    byte_of = {c: b for b, c in byte_characters().items()}
    by_id = sorted((i, token) for token, i in tokenizer.get_vocab().items())
    tokens = [bytes(byte_of[c] for c in token) for _, token in by_id]
    # No merges lead to these: they are found as whole words alone.
    return tokens + [w for w in ("注意力机制".encode(), "!?!".encode(), " ԲԱՐԵՒ".encode()) if w not in tokens]


def minicpm_like(lines):
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    trained.normalizer = normalizer
    # Words for training; the file has no pre-tokenizer, so that a text is one piece.
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trained.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<unk>", "<s>", "</s>"] + bytes_, limit_alphabet=300, show_progress=False))
    # Byte tokens come out of the training as added ones, which they are not.
    data = json.loads(trained.to_str())
    data["added_tokens"], data["pre_tokenizer"] = [], None
    tokenizer = Tokenizer.from_str(json.dumps(data))
    flags = {"normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
    tokenizer.add_special_tokens([AddedToken(t, **flags) for t in ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken("<|tool_call|>", **{**flags, "normalized": True}), AddedToken("    ", **flags)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--tiktoken", metavar="DIR")
    parser.add_argument("--byte-fallback", metavar="DIR")
    args = parser.parse_args()
    lines = SAMPLES + [line for file in args.text for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines(True)]
    if args.tiktoken:
        pathlib.Path(args.tiktoken).mkdir(parents=True, exist_ok=True)
        oracles.write_tiktoken(args.tiktoken, kimi_like(lines))
    if args.byte_fallback:
        directory = pathlib.Path(args.byte_fallback)
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(json.loads(minicpm_like(lines).to_str()), ensure_ascii=False, separators=(",", ":"))
        (directory / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
        config = {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>",
                  "tokenizer_class": "LlamaTokenizer", "unk_token": "<unk>"}
        (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
