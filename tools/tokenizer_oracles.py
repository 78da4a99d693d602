"""The reference encoders behind tokenizer_vectors.py, one class for each kind of file: encode, decode, all ids."""

import base64
import json
import pathlib

# Moonshot's pattern, as tokenization_kimi.py writes it (moonshotai/Kimi-K2-Instruct).
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI_PATTERN = "|".join([r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}",
                         rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}", r"\p{N}{1,3}",
                         r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


class HuggingFace:
    def __init__(self, directory):
        from tokenizers import Tokenizer
        text = (pathlib.Path(directory) / "tokenizer.json").read_text(encoding="utf-8")
        self.full = Tokenizer.from_str(text)
        data = json.loads(text)
        data["added_tokens"] = []
        self.bare = Tokenizer.from_str(json.dumps(data))
        self.ids = sorted(self.full.get_vocab().values())

    def encode(self, texts, mode):
        tokenizer = self.full if mode == "parse" else self.bare
        return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode_batch(self, lists):
        return self.full.decode_batch(lists, skip_special_tokens=False)

    def decode(self, ids, with_special):
        return self.full.decode(ids, skip_special_tokens=not with_special).encode()


class Tiktoken:
    """As Moonshot's class sets it up: 256 special ids after the vocabulary."""

    def __init__(self, directory):
        import tiktoken
        config = json.loads((pathlib.Path(directory) / "tokenizer_config.json").read_text(encoding="utf-8"))
        rows = (pathlib.Path(directory) / "tiktoken.model").read_text(encoding="ascii").split()
        ranks = {base64.b64decode(token): int(rank) for token, rank in zip(rows[::2], rows[1::2])}
        names = {int(key): value["content"] for key, value in config["added_tokens_decoder"].items()}
        first = len(ranks)
        special = {names.get(i, f"<|reserved_token_{i}|>"): i for i in range(first, first + 256)}
        self.encoding = tiktoken.Encoding(name="file", pat_str=KIMI_PATTERN, mergeable_ranks=ranks, special_tokens=special)
        self.ids = list(range(first + 256))

    def encode(self, texts, mode):
        if mode == "text":
            return [self.encoding.encode(text, disallowed_special=()) for text in texts]
        return [self.encoding.encode(text, allowed_special="all") for text in texts]

    def decode_batch(self, lists):
        return [self.encoding.decode_bytes(ids).decode() for ids in lists]

    def decode(self, ids, with_special):
        # This encoder knows no decoding without special tokens.
        return self.encoding.decode_bytes(ids) if with_special else None


def open_directory(directory):
    return (HuggingFace if (pathlib.Path(directory) / "tokenizer.json").exists() else Tiktoken)(directory)


def write_tiktoken(directory, tokens):
    """`tokens`: bytes, in order of rank."""
    lines = (f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens))
    (pathlib.Path(directory) / "tiktoken.model").write_text("".join(lines), encoding="ascii")
    names = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|im_user|>", True),
             4: ("<|im_assistant|>", True), 11: ("<|tool_calls_section_begin|>", False), 254: ("[UNK]", True),
             255: ("[PAD]", True)}
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    config = {"added_tokens_decoder": {str(len(tokens) + i): {"content": content, "special": special, **flags}
                                       for i, (content, special) in names.items()},
              "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
              "bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]", "unk_token": "[UNK]",
              "tokenizer_class": "TikTokenTokenizer"}
    (pathlib.Path(directory) / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="ascii")
