#!/usr/bin/env python3
"""Drives the page of a running `mla serve` in a headless Chromium: sends, streams, stops, and watches the live panel.

    python3 -m venv VENV && VENV/bin/pip install playwright
    mla serve models/demo --port 8080 &
    VENV/bin/python tools/server_page_check.py http://127.0.0.1:8080 [FOLDER_FOR_SCREENSHOTS]

On the demo start the server with `--kernels portable --weights f32`: it answers faster than a browser is driven else.
Takes the system's Chromium (Debian's package of that name). Prints a line a check; exit code 1 where one fails.
"""
import re
import sys

from playwright.sync_api import expect, sync_playwright

failed = 0


def check(name, holds, found=""):
    global failed
    failed += not holds
    print(f"{'ok  ' if holds else 'FAIL'} {name}" + (f": {found}" if not holds else ""))


def last(page):
    return page.locator(".turn.assistant").last


def send(page, text, tokens):
    page.fill("#max_tokens", str(tokens))
    page.fill("#input", text)
    page.press("#input", "Enter")


def sends_and_streams(page):
    send(page, "Tell me of the", 700)
    expect(page.locator(".turn.user").last).to_contain_text("Tell me of the")
    expect(last(page).locator(".text")).not_to_be_empty()
    early = last(page).locator(".text").inner_text()
    expect(page.locator("#stop")).to_be_disabled(timeout=60000)
    whole = last(page).locator(".text").inner_text()
    check("the text grows while it comes", len(whole) > len(early) and whole.startswith(early.rstrip()), (early, whole))
    check("usage is told", "tokens in" in last(page).locator(".note").inner_text())


def stops(page):
    send(page, "Tell me of the", 100000)
    expect(last(page).locator(".text")).not_to_be_empty()
    expect(page.locator("#queue")).to_have_text(re.compile("^1"), timeout=3000)
    check("the panel shows what runs", True)
    page.keyboard.press("Escape")
    expect(page.locator("#stop")).to_be_disabled()
    expect(last(page).locator(".note")).to_contain_text("stopped")
    expect(page.locator("#queue")).to_have_text("0, 0", timeout=5000)
    check("a stopped answer frees the server", True)


def shows_probabilities(page):
    page.check("#probabilities")
    send(page, "Once upon a", 12)
    expect(page.locator("#stop")).to_be_disabled(timeout=60000)
    token = last(page).locator(".token").first
    token.focus()
    page.keyboard.press("Space")
    expect(page.locator("#token")).to_be_visible()
    rows = page.locator("#tops tr").count()
    check("a token's alternatives are shown", rows >= 5, rows)
    shares = [float(t.split()[0]) for t in page.locator("#tops td:last-child").all_inner_texts()]
    check("they are probabilities in order", shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 100.5, shares)
    page.uncheck("#probabilities")


def panel_moves(page):
    expect(page.locator("#forms i").nth(5)).to_be_attached(timeout=5000)  # the panel asks once a second
    check("forms of steps are drawn", page.locator("#forms i").count() > 5)
    check("tokens a second is a number", float(page.locator("#rate").inner_text()) >= 0)
    check("pages are told", "pages" in page.locator("#pages").inner_text())


def labels(page):
    for field in page.locator("input, textarea, select").all():
        name = field.evaluate("e => e.labels.length ? e.labels[0].innerText.trim() : ''")
        check(f"label of {field.get_attribute('id')}", name != "")


def requests_stay_at_home(base, seen):
    away = [url for url in seen if not url.startswith(base) and not url.startswith("data:")]
    check("no outside requests", not away, away)


def main():
    base = sys.argv[1].rstrip("/")
    shots = sys.argv[2] if len(sys.argv) > 2 else None
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme="light")
        seen, faults = [], []
        page.on("request", lambda r: seen.append(r.url))
        page.on("pageerror", lambda e: faults.append(str(e)))
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        page.goto(base + "/")
        sends_and_streams(page)
        shows_probabilities(page)
        panel_moves(page)
        labels(page)
        if shots:
            page.evaluate("document.querySelector('aside').scrollTop = 0")
            page.screenshot(path=shots + "/page-light.png")
        stops(page)
        requests_stay_at_home(base, seen)
        check("no script error", not faults, faults)
        phone = browser.new_page(viewport={"width": 390, "height": 780}, color_scheme="dark")
        phone.goto(base + "/")
        phone.fill("#input", "Tell me of the")
        phone.click("#send")
        expect(phone.locator(".turn.assistant .text")).not_to_be_empty()
        expect(phone.locator("#stop")).to_be_disabled(timeout=60000)
        wide = phone.evaluate("document.documentElement.scrollWidth")
        check("a phone needs no scrolling to the side", wide <= 390, wide)
        if shots:
            phone.screenshot(path=shots + "/page-phone.png")
        browser.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
