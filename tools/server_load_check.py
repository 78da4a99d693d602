#!/usr/bin/env python3
"""Loads a running `mla serve` from many clients at once, well-behaved and not, and holds it to its promises.

    mla serve models/demo --port 8080 --mode absorb --max-sequences 16 --cache-pages 96 &
    tools/server_load_check.py http://127.0.0.1:8080 --mla build/mla --model models/demo --seconds 600

Streams of mixed lengths, of which a share is cut off by the client in the middle and a share is wrong; beside them
slow and half-open sockets, endless heads, and bytes that are no HTTP. Every finished output must be that of `mla run`
of the same request (mode absorb: no bit depends on reuse or company), /health must answer within a second throughout,
and when all is over no page may be held and memory must be where it was after the first tenth. Standard library alone.
Prints a line a check; exit code 1 where one fails.
"""
import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
import urllib.request

WORDS = "the of and in a to that he was his with for it as had is on at by not but they from her she all LORD king".split()
failed = 0


def check(name, holds, found=""):
    global failed
    failed += not holds
    print(f"{'ok  ' if holds else 'FAIL'} {name}" + (f": {found}" if found != "" else ""), flush=True)


def make_requests(count, rng):
    shared = " ".join(rng.choice(WORDS) for _ in range(120))
    requests = []
    for i in range(count):
        prompt = " ".join(rng.choice(WORDS) for _ in range(rng.choice((2, 20, 60, 200))))
        if rng.random() < 0.4:
            prompt = shared + " " + prompt
        body = {"prompt": prompt, "max_tokens": rng.choice((1, 8, 40, 120)), "ignore_eos": True,
                "temperature": rng.choice((0, 0.9)), "seed": i}
        requests.append(body)
    return requests


def expected_text(mla, model, body):
    run = [mla, "run", model, body["prompt"], "--mode", "absorb", "--max-tokens", str(body["max_tokens"]), "--ignore-eos",
           "--temperature", str(body["temperature"]), "--seed", str(body["seed"]), "--json", "--quiet"]
    return json.loads(subprocess.run(run, check=True, capture_output=True).stdout)["text"]


class Load:
    def __init__(self, host, port, requests, options):
        self.host, self.port, self.requests, self.options = host, port, requests, options
        self.rng = random.Random(options.seed)
        self.counts = {"finished": 0, "left": 0, "refused": 0, "full": 0, "wrong": 0}
        self.outputs = {}
        self.worst_health = 0.0
        self.faults = []

    async def connect(self):
        return await asyncio.open_connection(self.host, self.port)

    def bytes_of(self, path, data):
        return (f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n"
                f"Content-Length: {len(data)}\r\n\r\n").encode() + data

    async def one(self):
        index = self.rng.randrange(len(self.requests))
        body = dict(self.requests[index], stream=True)
        kind = self.rng.random()
        bad = kind > 0.95
        data = json.dumps(body).encode()
        if bad:
            data = self.rng.choice((json.dumps(dict(body, temperature=-5)).encode(), data[:-1], data + b"\xff", b"[]",
                                    json.dumps(dict(body, prompt=[10**9])).encode()))
        reader, writer = await self.connect()
        writer.write(self.bytes_of("/v1/completions", data))
        await writer.drain()
        if kind < 0.10:
            await reader.read(self.rng.randrange(1, 2000))
            writer.transport.abort()
            self.counts["left"] += 1
            return
        got = await reader.read()
        writer.close()
        if bad:
            self.counts["refused"] += got.startswith(b"HTTP/1.1 400")
            if not got.startswith(b"HTTP/1.1 400"):
                self.faults.append(got[:200])
            return
        if got.startswith(b"HTTP/1.1 429"):
            self.counts["full"] += 1
            await asyncio.sleep(0.2)
            return
        if b"data: [DONE]" not in got:
            self.faults.append(got[:300])
            return
        text = "".join(json.loads(line[6:])["choices"][0]["text"]
                       for line in got.decode().replace("\r\n", "\n").split("\n") if line.startswith("data: {"))
        self.counts["finished"] += 1
        before = self.outputs.setdefault(index, text)
        self.counts["wrong"] += before != text

    async def streams(self, end):
        while time.time() < end:
            try:
                await self.one()
            except (ConnectionError, asyncio.IncompleteReadError) as fault:
                self.faults.append(repr(fault))

    async def troublemaker(self, end):
        while time.time() < end:
            try:
                reader, writer = await self.connect()
                kind = self.rng.randrange(5)
                if kind == 0:  # a head that comes a byte at a time
                    for byte in b"GET /health HTTP/1.1\r\nX: y":
                        writer.write(bytes([byte]))
                        await asyncio.sleep(0.05)
                elif kind == 1:  # a head without an end
                    for _ in range(400):
                        writer.write(b"X-A: " + b"y" * 200 + b"\r\n")
                        await asyncio.sleep(0)
                elif kind == 2:  # no HTTP
                    writer.write(bytes(self.rng.randrange(256) for _ in range(300)))
                elif kind == 3:  # opened and left alone
                    await asyncio.sleep(2)
                else:  # a stream that nobody reads
                    body = json.dumps({"prompt": "the", "max_tokens": 400, "ignore_eos": True, "stream": True, "logprobs": 20})
                    writer.write(self.bytes_of("/v1/completions", body.encode()))
                    await asyncio.sleep(2)
                writer.transport.abort()
            except (ConnectionError, BrokenPipeError):
                pass
            await asyncio.sleep(0.05)

    async def health(self, end):
        while time.time() < end:
            begin = time.time()
            reader, writer = await self.connect()
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            got = await reader.read()
            writer.close()
            self.worst_health = max(self.worst_health, time.time() - begin)
            if not got.startswith(b"HTTP/1.1 200"):
                self.faults.append(got[:200])
            await asyncio.sleep(0.1)

    async def run(self, seconds):
        end = time.time() + seconds
        await asyncio.gather(self.health(end), *[self.streams(end) for _ in range(self.options.streams)],
                             *[self.troublemaker(end) for _ in range(self.options.troublemakers)])

    async def hold_idle(self, count):
        held = []
        for _ in range(count):
            try:
                held.append(await self.connect())
            except OSError:
                break
        begin = time.time()
        await self.health(begin + 0.5)
        for _, writer in held:
            writer.transport.abort()
        return len(held)


def metrics(base):
    with urllib.request.urlopen(base + "/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("base")
    parser.add_argument("--mla", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--troublemakers", type=int, default=8)
    parser.add_argument("--requests", type=int, default=80)
    parser.add_argument("--idle", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    base = options.base.rstrip("/")
    host, port = base.split("//")[1].split(":")
    requests = make_requests(options.requests, random.Random(options.seed))
    load = Load(host, int(port), requests, options)

    asyncio.run(load.run(options.seconds / 10))
    early = metrics(base)
    asyncio.run(load.run(options.seconds * 9 / 10))
    time.sleep(3)
    loaded = metrics(base)
    held = asyncio.run(load.hold_idle(options.idle))
    time.sleep(3)
    late = metrics(base)

    check("requests", load.counts["finished"] > 0, load.counts)
    check("no error of the server's", not load.faults, load.faults[:3] if load.faults else "")
    check("same request, same output", load.counts["wrong"] == 0)
    check("/health within a second", load.worst_health < 1, f"{load.worst_health:.3f} s at worst")
    check("idle connections beyond the bound", held > 0, f"{held} opened")
    check("no page is held", late['mla_pages{state="used"}'] == 0, late['mla_pages{state="used"}'])
    grown = loaded["mla_resident_bytes"] - early["mla_resident_bytes"]
    check("memory is flat", grown < 4 * 2**20,
          f"{loaded['mla_resident_bytes'] / 2**20:.1f} MiB, {grown / 2**20:+.1f} since the first tenth; "
          f"{late['mla_resident_bytes'] / 2**20:.1f} after the idle connections, whose memory the allocator keeps")
    print(f"     preemptions {late['mla_preemptions_total']:.0f}, hits {late['mla_prefix_hits_total']:.0f}, "
          f"output tokens {late['mla_output_tokens_total']:.0f}")
    wrong = [i for i, text in load.outputs.items() if expected_text(options.mla, options.model, requests[i]) != text]
    check(f"{len(load.outputs)} different outputs are those of mla run", not wrong, wrong if wrong else "")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
