#!/usr/bin/env python3
"""OpenAI's own Python client against the front.

usage: test_openai_client.py FRONT_SERVER     starts that program
       test_openai_client.py http://HOST:PORT uses a running conductor

Exits 77 (skipped) when the package `openai` isn't installed.
"""
import string
import subprocess
import sys

try:
    import openai
except ImportError:
    print("skipped: the Python package 'openai' isn't installed, see"
          " tests/engines/install")
    sys.exit(77)

checks = 0


def check(what, ok):
    global checks
    checks += 1
    if not ok:
        sys.exit(f"failed: {what}")


def letters(n):
    return "".join(string.ascii_lowercase[i % 26] for i in range(n))


def check_completion(client, model, fake):
    reply = client.completions.create(model=model, prompt="Hello",
                                      max_tokens=8, temperature=0)
    check("object", reply.object == "text_completion")
    check("one choice", len(reply.choices) == 1)
    check("length", len(reply.choices[0].text) == 8)
    check("text", not fake or reply.choices[0].text == letters(8))
    check("finish_reason", reply.choices[0].finish_reason == "length")
    check("prompt_tokens", reply.usage.prompt_tokens == 5)
    check("completion_tokens", reply.usage.completion_tokens == 8)
    check("cached_tokens",
          reply.usage.prompt_tokens_details.cached_tokens >= 0)
    ids = client.completions.create(model=model, prompt=list(b"Hello"),
                                    max_tokens=8)
    check("ids equal text", ids.choices[0].text == reply.choices[0].text)
    batch = client.completions.create(model=model, prompt=["Hello", "Bye"],
                                      max_tokens=8)
    check("batch", [c.index for c in batch.choices] == [0, 1])
    check("batch text", batch.choices[0].text == reply.choices[0].text)
    return reply.choices[0].text


def check_stream(client, model, whole):
    text, usage, finish = "", None, None
    for chunk in client.completions.create(
            model=model, prompt="Hello", max_tokens=8, stream=True,
            stream_options={"include_usage": True}):
        for choice in chunk.choices:
            text += choice.text
            finish = choice.finish_reason or finish
        usage = chunk.usage or usage
    check("streamed text", text == whole)
    check("streamed finish", finish == "length")
    check("streamed usage", usage and usage.total_tokens == 13)


def check_chat(client, model):
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user",
                 "content": [{"type": "text", "text": "Hi"}]}]
    reply = client.chat.completions.create(model=model, messages=messages,
                                           max_completion_tokens=4)
    check("role", reply.choices[0].message.role == "assistant")
    check("content", len(reply.choices[0].message.content) == 4)
    text = ""
    for chunk in client.chat.completions.create(
            model=model, messages=messages, max_completion_tokens=4,
            stream=True):
        text += chunk.choices[0].delta.content or ""
    check("streamed chat", text == reply.choices[0].message.content)


def expect(kind, what, call):
    try:
        call()
    except kind as error:
        check(what, error.body and error.body.get("message"))
    else:
        check(what, False)


def check_errors(client, model):
    ask = client.completions.create
    expect(openai.NotFoundError, "another model",
           lambda: ask(model="none", prompt="a"))
    expect(openai.BadRequestError, "temperature",
           lambda: ask(model=model, prompt="a", temperature=0.7))
    expect(openai.BadRequestError, "empty prompt",
           lambda: ask(model=model, prompt=""))
    expect(openai.BadRequestError, "window",
           lambda: ask(model=model, prompt="a", max_tokens=10**6))
    expect(openai.BadRequestError, "SLO header",
           lambda: ask(model=model, prompt="a",
                       extra_headers={"x-slo-ttft-ms": "soon"}))


def run(url, fake):
    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0,
                       timeout=30) as client:
        model = client.models.list().data[0].id
        whole = check_completion(client, model, fake)
        check_stream(client, model, whole)
        check_chat(client, model)
        check_errors(client, model)
    print(f"{checks} checks passed, openai {openai.__version__}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1].startswith("http"):
        run(sys.argv[1].rstrip("/"), False)
        return
    with subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as server:
        port = server.stdout.readline().strip()
        try:
            run(f"http://127.0.0.1:{port}", True)
        finally:
            server.stdin.close()


main()
