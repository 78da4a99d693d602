#!/usr/bin/env python3
"""Holds the tokenizer against its reference encoders (tools/requirements-oracle.txt), which share no code with it:
Hugging Face's `tokenizers` for tokenizer.json, `tiktoken` for tiktoken.model.

    tokenizer_vectors.py --tool build/dev/tests/text_encode_tool --dir models/demo [--count 20000] [--seed 1]
    tokenizer_vectors.py --tool ... --dir models/demo --write tests/text/vectors_demo.json
    tokenizer_vectors.py --tool ... --properties     every code point against \\s, \\d and each \\p{..}
    tokenizer_vectors.py --tool ... --patterns       behaviors of Split, patterns, merges, on small vocabularies
    tokenizer_vectors.py --tool ... --characters     vocabularies of characters: normalizers, Metaspace, decoders, flags
    tokenizer_vectors.py --tool ... --tiktoken       small tiktoken files, and every code point of Kimi's pattern

Each string is encoded twice: with added tokens parsed, and as plain text (the library is then given a file without
added tokens); what the ids decode to is compared as well, and so are ids drawn at random. Prints the number of
mismatches, with the first few; exit status 1 if there are any.
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

import tokenizer_oracles as oracles

SPACES = [chr(c) for c in (0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x1F, 0x20, 0x85, 0xA0, 0x1680, 0x180E, 0x2000,
                           0x2003, 0x200A, 0x200B, 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF)]
JOINERS = ["\u200c", "\u200d", "\ufe0f", "\u0301", "\u0308", "\u20e3", "\u0e31", "\u093f", "\u05b8", "\u0651"]
WORDS = """the quick brown fox jumps over lazy dogs I'm you'll they've we'd it's DON'T CamelCase snake_case
 naïve café Zürich Straße ﬁne Ωμέγα привет Москва שלום مرحبا नमस्ते สวัสดี 你好 世界 漢字 かな カタカナ 한국어 ქართული
 ԲԱՐԵՒ አማርኛ 👍 👩‍👩‍👧‍👦 🏳️‍🌈 🩷 🫨 1️⃣ 12 1234567 3.14159 0x1F 1e-9 ١٢٣ ⅷ ² ½ $5 €9.99 #tag @user a@b.c https://x.y/z?q=1&r=2
 C++ #include <vector> int main(){return 0;} def f(x): -> != === && || // /* */ {{}} [[ ]] "quoted" 'single' `code`""".split()
LOOKALIKES = ["<｜User｜>", "<｜User|>", "<|User|>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<｜begin of sentence｜>",
              "<｜end▁of▁sentence｜>", "<｜", "｜>", "<｜User", "User｜>", "<｜｜>", "▁", "<<｜User｜>>", "<｜user｜>", "<｜▁pad▁｜>",
              "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜fim▁hole｜>", "<｜place▁holder▁no▁1｜>", "<｜place▁holder▁no▁10｜>",
              "[BOS]", "[EOS", "<|im_end|>", "<|im_user|>", "<|reserved_token_1510|>", "<|tool_calls_section_begin|>",
              "<s>", "</s>", "<unk>", "<0x41>", "<0xE5>", "<|im_start|>", "<|tool_call|>", "    ", "▁▁", "▁<s>",
              "注意力机制", "!?!", "a ԲԱՐԵՒ"]


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


def compare(label, texts, expected, found, decoded=None):
    """`decoded`: the texts of the expected ids; None where what is left out can't come back."""
    wrong = 0
    for i, (text, want, have) in enumerate(zip(texts, expected, found)):
        same = decoded is None or have.get("decoded") == decoded[i].encode().hex()
        if have.get("ids") != want or not same:
            wrong += 1
            if wrong <= 3:
                print(f"{label}: {text!r}\n  expected {want} {decoded[i] if decoded else ''!r}\n  found    {have}")
    print(f"{label}: {len(texts)} strings, {wrong} mismatches")
    return wrong


def compare_decoding(label, oracle, tool, directory, lists):
    """Lists of ids, whatever they are. `tokenizers` writes a broken run of byte tokens as U+FFFD, one for each byte; we
    keep the bytes, so such lists are only counted."""
    wrong = broken = 0
    for ids, have in zip(lists, ours(tool, directory, "decode", lists)):
        every = bytes.fromhex(have["all"])
        same = bytes.fromhex(have["streamed"]).decode() == every.decode(errors="replace")
        for want, bytes_ in ((oracle.decode(ids, True), every), (oracle.decode(ids, False), bytes.fromhex(have["plain"]))):
            if want is None:
                continue
            replaced = bytes_.decode(errors="replace").encode()
            if want == replaced:
                continue
            if b"\xef\xbf\xbd" in want and replaced != bytes_:
                broken += 1
            else:
                same = False
        if not same:
            wrong += 1
            if wrong <= 3:
                print(f"{label}: {ids}\n  expected {oracle.decode(ids, True)} {oracle.decode(ids, False)}\n  found    {have}")
    print(f"{label}: {len(lists)} lists of ids, {wrong} mismatches, {broken} broken")
    return wrong


def random_ids(oracle, encoded, count, seed):
    """Parts of encoded texts, put together anew, with single ids between."""
    rng = random.Random(seed)
    encoded = [ids for ids in encoded if ids]
    lists = []
    for _ in range(count):
        ids = []
        for _ in range(rng.randint(1, 4)):
            part = rng.choice(encoded)
            begin = rng.choice([0, 0, rng.randrange(len(part))])
            ids += part[begin:rng.choice([len(part), begin + rng.randint(1, 12)])] if rng.random() < 0.9 else [rng.choice(oracle.ids)]
        lists.append(ids)
    return lists


def check_directory(tool, directory, count, seed):
    texts = take(count, seed)
    oracle = oracles.open_directory(directory)
    wrong, parsed = 0, None
    for mode, label in (("parse", "added tokens parsed"), ("text", "as text")):
        expected = oracle.encode(texts, mode)
        parsed = parsed or expected
        wrong += compare(f"{directory}, {label}", texts, expected, ours(tool, directory, mode, texts),
                         oracle.decode_batch(expected))
    return wrong + compare_decoding(f"{directory}, ids", oracle, tool, directory,
                                    random_ids(oracle, parsed, count, seed + 1))


def write(directory, path, seed, limit):
    """A sample for the tests, of strings of each kind, as large as the limit allows."""
    oracle = oracles.open_directory(directory)
    texts = take(420, seed)
    rows, size = [], 0
    for text, parsed, plain in zip(texts, oracle.encode(texts, "parse"), oracle.encode(texts, "text")):
        values = {"text": text, "parsed": parsed}
        if parsed != plain:
            values["plain"] = plain
        # What decoding gives, where that is not the text.
        for key, ids in (("parsed_text", parsed), ("plain_text", plain)):
            decoded = oracle.decode_batch([ids])[0]
            if decoded != text:
                values[key] = decoded
        row = json.dumps(values, separators=(",", ":"))
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
        oracle = oracles.open_directory(directory)
        expected = oracle.encode(texts, "parse")
        return compare(label, texts, expected, ours(tool, directory, "parse", texts),
                       oracle.decode_batch(expected) if decodes else None)


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
                          "content": content, "single_word": False, "lstrip": rng.random() < 0.3,
                          "rstrip": rng.random() < 0.3,
                          "normalized": rng.random() < 0.5, "special": rng.random() < 0.5})
        base["added_tokens"] = added
        texts = ["".join(rng.choice("abé \u3000") for _ in range(rng.randint(1, 20))) for _ in range(100)]
        # Ids alone: we decode an added token to its content, also where its characters are of the byte-level alphabet.
        wrong += check_small(tool, f"added tokens {round_}", base, texts, False)
    return wrong


def character_tokenizer(rng):
    """A random vocabulary of characters with random settings, of those that published files have."""
    letters = ["a", "b", "é", "字", "▁", " ", "<"]
    vocab = {"<unk>": 0, "<s>": 1}
    for byte in range(256):
        if rng.random() < 0.9 or byte in b"ab":
            vocab[f"<0x{byte:02X}>"] = len(vocab)
    words, merges = [c for c in letters if rng.random() < 0.8] + ["a"], []
    for word in words:
        vocab.setdefault(word, len(vocab))
    for _ in range(rng.randint(0, 30)):
        pair = (rng.choice(words), rng.choice(words))
        if len("".join(pair)) < 9:
            merges.append(pair)
            words.append("".join(pair))
            vocab.setdefault("".join(pair), len(vocab))
    rng.shuffle(merges)
    prepend = {"type": "Prepend", "prepend": "▁"}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": rng.choice(["first", "always", "never"]),
              "split": rng.random() < 0.5}
    normalizer = rng.choice([{"type": "Sequence", "normalizers": [prepend, replace]},
                             {"type": "Sequence", "normalizers": [replace, prepend]}, replace, None])
    steps = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
             {"type": "Strip", "content": " ", "start": rng.randint(0, 2), "stop": 0}]
    decoder = rng.choice([{"type": "Sequence", "decoders": steps}, {"type": "Sequence", "decoders": steps[:3]}, spaces,
                          {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}])
    whole_words = rng.random() < 0.2
    added, extra = [], len(vocab)
    for content in sorted({"".join(rng.choice(["a", "▁", "b", " ", "<s>"]) for _ in range(rng.randint(1, 3)))
                           for _ in range(rng.randint(0, 4))} | {"<s>"}):
        if content not in vocab:
            extra += 1
        added.append({"id": vocab.get(content, extra - 1), "content": content, "single_word": False,
                      "lstrip": rng.random() < 0.2, "rstrip": rng.random() < 0.2,
                      # A special token that normalizing hides could be found as a whole word there, never here.
                      "normalized": rng.random() < 0.5 and not (whole_words and content == "<s>"),
                      "special": content == "<s>"})
    bytes_ = rng.random() < 0.7
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": spaces if normalizer is None else rng.choice([None, None, split("b")]),
            "post_processor": None, "decoder": decoder,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": rng.random() < 0.5, "byte_fallback": bytes_,
                      "ignore_merges": whole_words, "vocab": vocab, "merges": [list(m) for m in merges]}}


def check_characters(tool):
    rng = random.Random(10)
    pool = list("aab  b<>s") + ["é", "字", "▁", "👍", "ж", "\n", "\u3000", "<s>", "<0x41>", "</s>"]
    wrong = 0
    for round_ in range(200):
        data = character_tokenizer(rng)
        contents = [a["content"].replace(" ", "▁") for a in data["added_tokens"] if a["normalized"]]
        clash = any(a["rstrip"] and b["content"][0] == " " for a in data["added_tokens"] for b in data["added_tokens"])
        if clash or len(contents) != len(set(contents)):
            continue  # we refuse both: a token in the space that another takes, two that are one when normalized
        texts = [""] + ["".join(rng.choice(pool) for _ in range(rng.randint(1, 16))) for _ in range(150)]
        wrong += check_small(tool, f"characters {round_}", data, texts)
    return wrong


def check_tiktoken_files(tool, rng):
    """Random bytes as tokens, of which many can't be reached by merging: they count as whole words alone."""
    wrong = 0
    for round_ in range(40):
        tokens = {bytes([b]) for b in range(256)}
        tokens |= {"".join(rng.choice("abé字 1") for _ in range(rng.randint(1, 7))).encode() for _ in range(rng.randint(0, 200))}
        tokens |= {bytes(rng.choice(b"ab\xc3\xa9 ") for _ in range(rng.randint(2, 5))) for _ in range(rng.randint(0, 60))}
        tokens = sorted(tokens)
        rng.shuffle(tokens)
        with tempfile.TemporaryDirectory() as directory:
            oracles.write_tiktoken(directory, tokens)
            oracle = oracles.open_directory(directory)
            texts = ["".join(rng.choice(list("aaabb 1é字A") + LOOKALIKES[:3] + ["[BOS]"]) for _ in range(rng.randint(1, 40)))
                     for _ in range(100)]
            for mode in ("parse", "text"):
                expected = oracle.encode(texts, mode)
                wrong += compare(f"tiktoken {round_}, {mode}", texts, expected, ours(tool, directory, mode, texts),
                                 oracle.decode_batch(expected))
    return wrong


def check_tiktoken(tool):
    """Every code point beside a letter of each kind, where merges of two characters show how the text was split."""
    rng = random.Random(11)
    wrong = check_tiktoken_files(tool, rng)
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    kinds = ["a", "A", "字", "\u0301", "1", "!", " ", "\n", "ʰ", "ก", "'s", "'LL", "\u3000", "ǅ"]
    for begin in range(0, len(everything), 1 << 16):
        chosen = everything[begin:begin + (1 << 16)]
        # A few thousand characters, each with all kinds before it and after it as one token.
        chosen = rng.sample(chosen, 4000)
        tokens = {bytes([b]) for b in range(256)}
        for c in chosen:
            for n in range(1, len(c.encode()) + 1):
                tokens.add(c.encode()[:n])
        texts = [k + c + other for c in chosen for k in rng.sample(kinds, 2) for other in rng.sample(kinds, 2)]
        pairs = {x for text in texts for x in (text, text[:-1], text[1:])}
        tokens |= {pair.encode() for pair in pairs}
        with tempfile.TemporaryDirectory() as directory:
            oracles.write_tiktoken(directory, sorted(tokens))
            oracle = oracles.open_directory(directory)
            expected = oracle.encode(texts, "text")
            wrong += compare(f"Kimi's pattern, from {ord(everything[begin]):#x}", texts, expected,
                             ours(tool, directory, "text", texts), oracle.decode_batch(expected))
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
    parser.add_argument("--characters", action="store_true")
    parser.add_argument("--tiktoken", action="store_true")
    parser.add_argument("--limit", type=int, default=140_000, help="bytes of a written file")
    args = parser.parse_args()
    wrong = 0
    if args.dir and args.write:
        write(args.dir, args.write, args.seed, args.limit)
    elif args.dir:
        wrong += check_directory(args.tool, args.dir, args.count, args.seed)
    if args.properties:
        wrong += check_properties(args.tool)
    if args.patterns:
        wrong += check_patterns(args.tool)
    if args.characters:
        wrong += check_characters(args.tool)
    if args.tiktoken:
        wrong += check_tiktoken(args.tool)
    print(f"{wrong} mismatches")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
