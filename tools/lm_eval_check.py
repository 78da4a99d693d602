#!/usr/bin/env python3
"""Runs a small task of lm-evaluation-harness against a running `mla serve`, by its local-completions model, and holds
the log-likelihoods that it got to those of `mla run --json` for the same ids.

    python3 -m venv VENV && VENV/bin/pip install "lm-eval[api]"
    mla serve models/demo --port 8080 --mode absorb &
    VENV/bin/python tools/lm_eval_check.py http://127.0.0.1:8080 --mla build/mla --model models/demo

Exit code 1 where one differs: an engine gives the same bits to a request alone and in company (mode absorb), and what
lies between is decimal digits.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

QUESTIONS = [
    ("In the beginning God created the heaven and the", [" earth", " sea", " king"], 0),
    ("And God said, Let there be", [" light", " darkness", " bread"], 0),
    ("The LORD is my", [" house", " shepherd", " sword"], 1),
    ("And it came to pass in those", [" men", " days", " hands"], 1),
    ("Thou shalt not", [" steal", " eat of every", " kill"], 2),
]
TASK = """
task: mla_own
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
"""


def log_likelihood(mla, model, ids, begin):
    """Of ids[begin:], behind those before."""
    run = [mla, "run", model, "--ids", ",".join(map(str, ids)), "--mode", "absorb", "--max-tokens", "0", "--json",
           "--prompt-logprobs", "--quiet"]
    told = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    return sum(told["prompt_logprobs"][begin - 1:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("base")
    parser.add_argument("--mla", required=True)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_DATASETS_OFFLINE"] = "1"
    os.environ.setdefault("OPENAI_API_KEY", "-")
    import lm_eval
    from lm_eval.tasks import TaskManager
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "data.jsonl")
        with open(data, "w") as out:
            for question, choices, answer in QUESTIONS:
                out.write(json.dumps({"question": question, "choices": choices, "answer": answer}) + "\n")
        with open(os.path.join(folder, "mla_own.yaml"), "w") as out:
            out.write(TASK.format(data=data))
        name = os.path.basename(os.path.normpath(options.model))
        results = lm_eval.simple_evaluate(
            model="local-completions", tasks=["mla_own"], log_samples=True, bootstrap_iters=0,
            task_manager=TaskManager(include_path=folder),
            model_args=f"model={name},base_url={options.base}/v1/completions,tokenizer={options.model},"
                       f"tokenizer_backend=huggingface,tokenized_requests=True,num_concurrent=4,max_length=1024")
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    failed = 0
    compared = 0
    for sample in results["samples"]["mla_own"]:
        for (context, continuation), response in zip(
                ([a["arg_0"], a["arg_1"]] for a in sample["arguments"].values()) if isinstance(sample["arguments"], dict)
                else sample["arguments"], sample["filtered_resps"]):
            whole = tokenizer.encode(context + continuation)
            begin = len(tokenizer.encode(context))
            expected = log_likelihood(options.mla, options.model, whole, begin)
            found = float(response[0])
            compared += 1
            # Ten decimals and a sum in another order.
            if abs(found - expected) > 1e-5:
                failed += 1
                print(f"FAIL {context!r} {continuation!r}: {found}, mla run {expected}")
    print(f"{compared} log-likelihoods compared, {failed} differ; {results['results']['mla_own']}")
    sys.exit(1 if failed or compared != sum(len(c) for _, c, _ in QUESTIONS) else 0)


if __name__ == "__main__":
    main()
