#!/usr/bin/env python3
"""Holds a running `mla serve` to OpenAI's own Python client, unchanged.

    python3 -m venv VENV && VENV/bin/pip install openai
    mla serve models/demo --port 8080 &
    VENV/bin/python tools/server_client_check.py http://127.0.0.1:8080

Needs a server without keys that nobody else uses. Chat is checked where the model has a template. Prints a line a
check; exit code 1 where one fails.
"""
import json
import sys
import time
import urllib.request

import openai

failed = 0


def check(name, holds, found=""):
    global failed
    failed += not holds
    print(f"{'ok  ' if holds else 'FAIL'} {name}" + (f": {found}" if not holds else ""))


def raises(name, kind, call):
    try:
        call()
        check(name, False, "no exception")
    except kind as error:
        check(name, True)
        return error
    except Exception as error:  # noqa: BLE001
        check(name, False, repr(error))
    return None


def stats(base):
    with urllib.request.urlopen(base + "/stats") as answer:
        return json.load(answer)


def used(base):
    pages = stats(base)["pages"]
    return pages["total"] - pages["free"] - pages["idle"]


def completions(client, model, base):
    greedy = {"model": model, "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    whole = client.completions.create(**greedy, logprobs=3)
    choice = whole.choices[0]
    check("completion has text", len(choice.text) > 0)
    check("usage adds up", whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens)
    check("logprobs are of each token", len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) ==
          whole.usage.completion_tokens)
    check("greedy takes the likeliest", all(p == max(top.values()) for p, top in
                                            zip(choice.logprobs.token_logprobs, choice.logprobs.top_logprobs)))
    stream = list(client.completions.create(**greedy, stream=True, stream_options={"include_usage": True}))
    check("stream equals the whole", "".join(c.choices[0].text for c in stream if c.choices) == choice.text)
    check("usage ends the stream", stream[-1].usage.completion_tokens == whole.usage.completion_tokens)
    several = client.completions.create(**(greedy | {"prompt": ["Once", "The"]}), n=2)
    check("prompts times samples", [c.index for c in several.choices] == [0, 1, 2, 3])
    stop = choice.text[4:8]
    cut = client.completions.create(**greedy, stop=[stop]).choices[0]
    check("stop text", cut.text == choice.text[:choice.text.index(stop)] and cut.finish_reason == "stop", cut.text)
    echo = client.completions.create(**(greedy | {"max_tokens": 0}), echo=True, logprobs=1).choices[0]
    check("echo scores the prompt", echo.text == greedy["prompt"] and echo.logprobs.token_logprobs[0] is None and
          all(p < 0 for p in echo.logprobs.token_logprobs[1:]))
    seeded = [client.completions.create(**(greedy | {"temperature": 1.0}), seed=s).choices[0].text for s in (1, 1, 2)]
    check("a seed repeats", seeded[0] == seeded[1] and seeded[0] != seeded[2])


def chat(client, model):
    ask = {"model": model, "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 12,
           "temperature": 0}
    try:
        whole = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2)
    except openai.BadRequestError as error:
        check("no chat template is said by name", error.code == "no_chat_template", repr(error))
        return
    check("chat answers", whole.choices[0].message.role == "assistant")
    check("chat logprobs", len(whole.choices[0].logprobs.content[0].top_logprobs) == 2)
    stream = client.chat.completions.create(**ask, stream=True)
    text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    check("chat stream equals the whole", text == (whole.choices[0].message.content or ""), text)


def errors(client, model, base):
    error = raises("a bad value", openai.BadRequestError,
                   lambda: client.completions.create(model=model, prompt="x", temperature=-1))
    check("... names its field", error is not None and error.param == "temperature")
    raises("another model", openai.NotFoundError, lambda: client.completions.create(model="other", prompt="x"))
    raises("a prompt past the context", openai.BadRequestError,
           lambda: client.completions.create(model=model, prompt=[5] * 1_000_00))
    raises("an unknown path", openai.NotFoundError, lambda: client.embeddings.create(model=model, input="x"))
    raises("no server", openai.APIConnectionError, lambda: openai.OpenAI(
        base_url="http://127.0.0.1:9/v1", api_key="-", max_retries=0).models.list())


def cancel(client, model, base):
    stream = client.completions.create(model=model, prompt="Once", max_tokens=1500, stream=True,
                                       extra_body={"ignore_eos": True})
    next(iter(stream))
    check("pages are in use", used(base) > 0)
    stream.close()
    deadline = time.time() + 5
    while used(base) > 0 and time.time() < deadline:
        time.sleep(0.01)
    check("a client that leaves frees its pages", used(base) == 0)


def main():
    base = sys.argv[1].rstrip("/")
    client = openai.OpenAI(base_url=base + "/v1", api_key="-", max_retries=0)
    models = client.models.list().data
    check("models", len(models) == 1)
    model = models[0].id
    completions(client, model, base)
    chat(client, model)
    errors(client, model, base)
    cancel(client, model, base)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
