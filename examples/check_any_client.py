"""Check a client that is not addendum's: record what it sends, then look at the prefix.

The client here is bare httpx2. The vendors' SDKs take the same transport:
`anthropic.Anthropic(http_client=httpx2.Client(transport=RecordingTransport(...)))`. Read the file
with `addendum check FILE`, or in a test with `assert_stable_prefix(FILE)`.
"""

import sys

import httpx2

from addendum.cache.recording import RecordingTransport

MARK = {"cache_control": {"type": "ephemeral"}}
PROMPT = "Remember what you are told. " * 200


def talk(base_url: str, path: str, *, prompts: tuple[str, ...] = (PROMPT, PROMPT)) -> None:
    """Send one request for each prompt; the history grows by a question and an answer."""
    transport = RecordingTransport(httpx2.HTTPTransport(), path)
    headers = {"x-api-key": "any", "anthropic-version": "2023-06-01"}
    messages = list[dict[str, object]]()
    with httpx2.Client(transport=transport, base_url=base_url, headers=headers) as client:
        for number, prompt in enumerate(prompts, 1):
            question = {"type": "text", "text": f"Question {number}?"}
            body = {
                "model": "claude-opus-5-5",
                "max_tokens": 100,
                "system": [{"type": "text", "text": prompt, **MARK}],
                "messages": [*messages, {"role": "user", "content": [{**question, **MARK}]}],
            }
            answer = client.post("/v1/messages", json=body).raise_for_status().json()
            messages.append({"role": "user", "content": [question]})
            messages.append({"role": "assistant", "content": answer["content"]})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: check_any_client.py BASE_URL FILE; `addendum lab` prints one")
    talk(sys.argv[1], sys.argv[2])
