#!/usr/bin/env python3
"""What `mla plan` predicts by a table of `mla tune`, beside what `mla bench model` measures: prompts and output of
checkpoints on this machine. Needs nothing but the program.

    mla tune --threads 1 --output table.json
    plan_check.py --mla build/mla --table table.json MODEL...

Each line says by how much the prediction is off, as a share of what was measured: -20 % is too short a time.
"""

import argparse
import json
import statistics
import subprocess


def run(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def predicted(options, model, context, threads):
    plan = run(options.mla, "plan", model, "--tune-table", options.table, "--context", context, "--threads", threads, "--json")
    return plan["models"][0]["times"]


def measured(options, model, prompt, context, tokens, threads):
    return run(options.mla, "bench", "model", model, "--tune-table", options.table, "--threads", threads, "--json", "--quiet",
               "--prompt", prompt, "--context", context, "--tokens", tokens, "--repeats", options.repeats)


def line(model, what, guess, seconds, errors):
    error = guess / seconds - 1
    errors.append(error)
    print(f"| {model} | {what} | {guess * 1e3:,.1f} ms | {seconds * 1e3:,.1f} ms | {error:+.0%} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--mla", default="build/mla")
    parser.add_argument("--table", required=True)
    parser.add_argument("--prompts", type=int, nargs="*", default=[64, 512, 2048])
    parser.add_argument("--contexts", type=int, nargs="*", default=[64, 2048])
    parser.add_argument("--tokens", type=int, default=16, help="of output that are timed")
    parser.add_argument("--repeats", type=int, default=3, help="of each prompt")
    options = parser.parse_args()
    with open(options.table) as file:
        threads = json.load(file)["threads"]

    errors = []
    print("| model | | predicted | measured | error |\n|---|---|---|---|---|")
    for model in options.models:
        name = model.rstrip("/").split("/")[-1]
        for prompt in options.prompts:
            speed = measured(options, model, prompt, 0, 1, threads)["prompt_tokens_per_second"]["median"]
            line(name, f"prompt of {prompt:,}", predicted(options, model, prompt, threads)["first_token_seconds"], prompt / speed,
                 errors)
        for context in options.contexts:
            speed = measured(options, model, 16, context, options.tokens, threads)["decode_tokens_per_second"]["median"]
            line(name, f"a token after {context:,}", predicted(options, model, context, threads)["token_seconds"], 1 / speed, errors)
    sizes = [abs(e) for e in errors]
    print(f"\nerror: median {statistics.median(sizes):.0%}, largest {max(sizes):.0%}, of {len(sizes)}")


if __name__ == "__main__":
    main()
