#!/usr/bin/env python3
"""Holds the tokenizer against Hugging Face's `tokenizers` (tools/requirements-oracle.txt), which shares no code with it.

    tokenizer_vectors.py --tool build/dev/tests/text_encode_tool --dir models/demo [--count 20000] [--seed 1]
    tokenizer_vectors.py --tool ... --dir models/demo --write tests/text/vectors_demo.json
    tokenizer_vectors.py --tool ... --properties     every code point against \\s, \\d and each \\p{..}
    tokenizer_vectors.py --tool ... --patterns       behaviors of Split, patterns, merges, on small vocabularies

Each string is encoded twice: with added tokens parsed, and as plain text (the library is then given a file without
added tokens). Prints the number of mismatches, with the first few; exit status 1 if there are any.
"""

import argparse
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer

SPACES = [chr(c) for c in (0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x1F, 0x20, 0x85, 0xA0, 0x1680, 0x180E, 0x2000,
                           0x2003, 0x200A, 0x200B, 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF)]
JOINERS = ["\u200c", "\u200d", "\ufe0f", "\u0301", "\u0308", "\u20e3", "\u0e31", "\u093f", "\u05b8", "\u0651"]
WORDS = """the quick brown fox jumps over lazy dogs I'm you'll they've we'd it's DON'T CamelCase snake_case
 naïve café Zürich Straße ﬁne Ωμέγα привет Москва שלום مرحبا नमस्ते สวัสดี 你好 世界 漢字 かな カタカナ 한국어 ქართული
 ԲԱՐԵՒ አማርኛ 👍 👩‍👩‍👧‍👦 🏳️‍🌈 🩷 🫨 1️⃣ 12 1234567 3.14159 0x1F 1e-9 ١٢٣ ⅷ ² ½ $5 €9.99 #tag @user a@b.c https://x.y/z?q=1&r=2
 C++ #include <vector> int main(){return 0;} def f(x): -> != === && || // /* */ {{}} [[ ]] "quoted" 'single' `code`""".split()
LOOKALIKES = ["<｜User｜>", "<｜User|>", "<|User|>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<｜begin of sentence｜>",
              "<｜end▁of▁sentence｜>", "<｜", "｜>", "<｜User", "User｜>", "<｜｜>", "▁", "<<｜User｜>>", "<｜user｜>", "<｜▁pad▁｜>",
              "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜fim▁hole｜>", "<｜place▁holder▁no▁1｜>", "<｜place▁holder▁no▁10｜>"]


def assigned():
    """Code points that Python's Unicode (14 in 3.11) assigns: the two libraries' versions differ after that."""
    return [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]


def strings(count, seed):
    rng = random.Random(seed)
    points = assigned()
    by_block = {}
    for c in points:
        by_block.setdefault(c >> 7, []).append(c)
    blocks = list(by_block.values())

    def pieces(pool, low, high, joint=""):
        return joint.join(rng.choice(pool) for _ in range(rng.randint(low, high)))

    def random_points():
        return "".join(chr(rng.choice(points)) for _ in range(rng.randint(1, 24)))

    def one_block():
        return "".join(chr(rng.choice(rng.choice([rng.choice(blocks), [0x20], [0x61]]))) for _ in range(rng.randint(1, 24)))

    def prose():
        return "".join(rng.choice(WORDS) + rng.choice([" ", " ", " ", "", "  ", "\n", ", ", ". "])
                       for _ in range(rng.randint(1, 30)))

    def code():
        return "\n".join("    " * rng.randint(0, 3) + pieces(WORDS, 1, 6, rng.choice([" ", "", "."]))
                         for _ in range(rng.randint(1, 6)))

    def ascii_noise():
        return "".join(chr(rng.choice(range(128))) for _ in range(rng.randint(1, 40)))

    def mixture():
        pools = [WORDS, SPACES, JOINERS, LOOKALIKES, [str(d) for d in range(10)], list("aZ.,'!-_ \n\r")]
        return "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 30)))

    def runs():
        pool = SPACES + JOINERS + list("a1.'\n\r ") + ["é", "字", "👍"]
        return "".join(rng.choice(pool) * rng.randint(1, 9) for _ in range(rng.randint(1, 8)))

    kinds = [random_points, one_block, prose, code, ascii_noise, mixture, runs]
    yield from ["", " ", "\n", "a", "\u0000", "\ufeff", "\U0010fffd"] + LOOKALIKES + WORDS
    while True:
        yield rng.choice(kinds)()


def take(count, seed):
    return list(itertools.islice(strings(count, seed), count))


def ours(tool, directory, mode, texts):
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    done = subprocess.run([tool, str(directory), mode], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    if len(answers) != len(texts):
        sys.exit(f"{tool}: expected {len(texts)} answers, found {len(answers)}")
    return answers


def without_added(directory):
    data = json.loads((pathlib.Path(directory) / "tokenizer.json").read_text(encoding="utf-8"))
    data["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(data))


def theirs(tokenizer, texts):
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def compare(label, texts, expected, found, decodes=True):
    wrong = 0
    for text, want, have in zip(texts, expected, found):
        if have.get("ids") != want or (decodes and not have["same"]):
            wrong += 1
            if wrong <= 3:
                print(f"{label}: {text!r}\n  expected {want}\n  found    {have}")
    print(f"{label}: {len(texts)} strings, {wrong} mismatches")
    return wrong


def check_directory(tool, directory, count, seed):
    texts = take(count, seed)
    full = Tokenizer.from_file(str(pathlib.Path(directory) / "tokenizer.json"))
    wrong = compare(f"{directory}, added tokens parsed", texts, theirs(full, texts), ours(tool, directory, "parse", texts))
    plain = theirs(without_added(directory), texts)
    return wrong + compare(f"{directory}, as text", texts, plain, ours(tool, directory, "text", texts))


def write(directory, path, seed, limit=140_000):
    """A sample for the tests, of strings of each kind, as large as the limit allows."""
    full = Tokenizer.from_file(str(pathlib.Path(directory) / "tokenizer.json"))
    texts = take(420, seed)
    rows, size = [], 0
    for text, parsed, plain in zip(texts, theirs(full, texts), theirs(without_added(directory), texts)):
        row = json.dumps({"text": text, "parsed": parsed, "plain": plain} if parsed != plain else
                         {"text": text, "parsed": parsed}, separators=(",", ":"))
        size += len(row) + 2
        if size > limit:
            break
        rows.append(row)
    pathlib.Path(path).write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
    print(f"{path}: {len(rows)} strings")


def byte_characters():
    keep = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    rest = [b for b in range(256) if b not in keep]
    return {b: chr(b) for b in keep} | {b: chr(0x100 + i) for i, b in enumerate(rest)}


def small_tokenizer(stages, alphabet="", longest=1, merges=None, ignore_merges=False, added=()):
    """All bytes, and every merge within the alphabet up to a length: a piece's borders then show in its ids."""
    table = byte_characters()
    vocab = {c: i for i, c in enumerate(table.values())}
    spelled = ["".join(table[b] for b in letter.encode()) for letter in alphabet]
    if merges is None:
        merges, words = [], list(spelled)
        for _ in range(longest - 1):
            pairs = [(a, b) for a in words for b in spelled]
            words = [a + b for a, b in pairs]
            merges += pairs
    for a, b in merges:
        vocab.setdefault(a + b, len(vocab))
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added), "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": stages}, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": ignore_merges, "vocab": vocab, "merges": [list(m) for m in merges]}}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def check_small(tool, label, data, texts, decodes=True):
    with tempfile.TemporaryDirectory() as directory:
        text = json.dumps(data)
        (pathlib.Path(directory) / "tokenizer.json").write_text(text, encoding="utf-8")
        return compare(label, texts, theirs(Tokenizer.from_str(text), texts), ours(tool, directory, "parse", texts), decodes)


def check_properties(tool):
    names = ("L Lu Ll Lt Lm Lo M Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp Cc Cf Co "
             "Han Hiragana Katakana Hangul").split()
    sets = [rf"\p{{{n}}}" for n in names] + [r"\P{L}", r"\p{^N}", r"\s", r"\S", r"\d", r"\D", r"\h", ".", r"[^\s\p{L}\p{N}]",
                                             r"[\S\n]", "(?i:[sdmtk'])", "(?i:s)", "(?i:k)"]
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    texts = ["".join(everything[i:i + 1024]) for i in range(0, len(everything), 1024)]
    return sum(check_small(tool, f"members of {s}", small_tokenizer([split(s, "Removed"), BYTE_LEVEL]), texts, False)
               for s in sets)


PATTERNS = [r"a", r"a+", r"a*", r"", r"a|b+", r"\s+(?!\S)|\s+", r"\s*[\r\n]+", r"\s+$", r"^a", r"a$", r"^", r"$", r"(?<=a)b",
            r"(?<!a)b", r"(?=b)", r"(?:ab)+", r"(ab|a)b?", r"a{2}", r"a{,2}", r"a{1,2}", r"a{2,}", r"a+?b", r"a++b", r"a?+a",
            r"(?>a|ab)b", r"[^a]+", r"[^\S\n]+", r"\n^", r" ?b+", r"\Aa", r"b\z", r"a*$", r"(?i:A|'S)", r"[ab]+\n", r".+", r"\x61",
            r"[\x{61}-b]+", r"\u0062", r"\n+|1{1,3}", r" ?\p{L}+", r"[a\-b]", r"[-a]+", r"[a-]+"]


def check_patterns(tool):
    rng = random.Random(7)
    alphabet = "ab \n1"
    texts = [""] + ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 12))) for _ in range(400)]
    wrong = 0
    for pattern in PATTERNS:
        for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
            for invert in (False, True):
                data = small_tokenizer([split(pattern, behavior, invert), BYTE_LEVEL], alphabet, 4)
                wrong += check_small(tool, f"{pattern!r} {behavior} {invert}", data, texts, False)
    for literal in ("a", "ab", " ", "", "$^.*[a]"):
        wrong += check_small(tool, f"String {literal!r}",
                             small_tokenizer([split(literal, "Isolated", False, "String"), BYTE_LEVEL], alphabet, 4), texts)
    for prefix, regex, digits in itertools.product((False, True), repeat=3):
        stages = [{"type": "Digits", "individual_digits": digits}, split("b"),
                  dict(BYTE_LEVEL, add_prefix_space=prefix, use_regex=regex)]
        wrong += check_small(tool, f"Digits {digits}, ByteLevel prefix {prefix} regex {regex}",
                             small_tokenizer(stages, alphabet, 4), texts, not prefix)
    return wrong + check_merges(tool) + check_added(tool)


def check_merges(tool):
    """Random vocabularies, with merges in random order, doubled ones among them."""
    rng = random.Random(8)
    wrong = 0
    for round_ in range(60):
        words, merges = ["a", "b", "c"], []
        for _ in range(rng.randint(1, 30)):
            merges.append((rng.choice(words), rng.choice(words)))
            if len("".join(merges[-1])) < 9 and "".join(merges[-1]) not in words:
                words.append("".join(merges[-1]))
        rng.shuffle(merges)
        merges += rng.sample(merges, rng.randint(0, min(2, len(merges))))
        texts = ["".join(rng.choice("abc") for _ in range(rng.randint(1, 60))) for _ in range(100)] + words
        data = small_tokenizer([BYTE_LEVEL], merges=merges, ignore_merges=round_ % 2 == 1)
        wrong += check_small(tool, f"merges {round_}", data, texts)
    return wrong


def check_added(tool):
    """Added tokens that begin alike, hold one another, and come in both passes."""
    rng = random.Random(9)
    wrong = 0
    for round_ in range(40):
        contents = {"".join(rng.choice("abé") for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(1, 8))}
        base = small_tokenizer([split("b"), BYTE_LEVEL], "ab", 3)
        ids, added = base["model"]["vocab"], []
        for content in sorted(contents):
            added.append({"id": ids.get(content, len(ids) + len([a for a in added if a["content"] not in ids])),
                          "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": rng.random() < 0.5, "special": rng.random() < 0.5})
        base["added_tokens"] = added
        texts = ["".join(rng.choice("abé") for _ in range(rng.randint(1, 20))) for _ in range(100)]
        wrong += check_small(tool, f"added tokens {round_}", base, texts)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--dir")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--properties", action="store_true")
    parser.add_argument("--patterns", action="store_true")
    args = parser.parse_args()
    wrong = 0
    if args.dir and args.write:
        write(args.dir, args.write, args.seed)
    elif args.dir:
        wrong += check_directory(args.tool, args.dir, args.count, args.seed)
    if args.properties:
        wrong += check_properties(args.tool)
    if args.patterns:
        wrong += check_patterns(args.tool)
    print(f"{wrong} mismatches")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
