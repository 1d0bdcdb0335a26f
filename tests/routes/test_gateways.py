"""Gateways, clouds and vendors: addresses, credentials and what their rows declare."""

from __future__ import annotations

import re

import pytest
from tests.wire.prompts import human, prompt

from addendum import encoding
from addendum.agent.context.exchange import rejected_fields
from addendum.cache.capture import route_of
from addendum.errors import ConfigurationError, MissingCredential
from addendum.lab.runner import run_scenario
from addendum.lab.scenario_file import find
from addendum.lab.server import open_lab
from addendum.log.values import Config
from addendum.prompt.rounds import _digest_id  # pyright: ignore[reportPrivateUsage]
from addendum.routes import context, credentials, fields, resolve, weaker
from addendum.routes.data import providers
from addendum.routes.signing import AccessKeys, signature
from addendum.wire.apis import facts, wire

VERTEX = {"CLOUD_ML_REGION": "us-east5", "ANTHROPIC_VERTEX_PROJECT_ID": "acme"}
NEW = (
    "openrouter azure azure-chat vertex-claude bedrock-claude moonshot deepseek-chat xai groq"
    " mistral zai qwen vllm sglang llamacpp"
).split()


def test_tool_changes_are_declared_where_somebody_documents_them() -> None:
    native = {
        (provider.name, model)
        for provider in providers().values()
        if provider.name in NEW
        for row in provider.rows
        if row.capabilities.tool_update
        for model in row.models
    }
    claude = ("opus-5-5", "fable-5-1", "mythos-5-1", "opus-5", "fable-5", "mythos-5", "opus-4-8")
    assert native == {
        *(("moonshot", f"kimi-k3{each}") for each in ("", ".1-pro", ".1-pro-highspeed")),
        *(("vertex-claude", f"claude-{each}") for each in claude),
        *(("bedrock-claude", f"anthropic.claude-{each}") for each in claude),
    }


def test_kimi_is_told_by_value_and_takes_nothing_back() -> None:
    has = resolve("moonshot:kimi-k3", environ={}).capabilities
    assert (has.tool_update, has.definitions) == ("addition-only", "by-value")
    assert (has.removals, has.readd, has.redefine) == ("text", "text", False)
    assert resolve("moonshot:kimi-k2.6", environ={}).capabilities.tool_update is None


@pytest.mark.parametrize(
    "said",
    [
        "Unrecognized request argument supplied: messages[4].tools",
        "tokenization failed",
        "Missing required parameter: 'messages[4].content'.",
        '{"loc": ["body", "messages", 4, "tools"], "msg": "Extra inputs are not permitted"}',
    ],
    ids=["argument", "template", "content", "path"],
)
def test_a_refusal_of_kimis_messages_goes_down_to_dispatch(said: str) -> None:
    route = resolve("moonshot:kimi-k3", environ={})
    now = context(route, "addition-only")
    softer = weaker(route, now, rejected_fields(said, fields(route, now)))
    assert softer is not None and softer.projection == "dispatch"


def test_claude_elsewhere_is_told_by_reference_with_the_older_flag() -> None:
    for name in ("vertex-claude:claude-opus-5", "bedrock-claude:anthropic.claude-opus-5"):
        route = resolve(name, environ={})
        told = context(route, "in-history")
        assert (told.definitions, told.removals, told.redefine) == ("by-reference", "block", False)
        assert told.betas == ("mid-conversation-tool-changes-2026-07-01",)
        assert told.tail == "kept"
        assert not facts(route).runs


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east5", "us-east5-aiplatform.googleapis.com"),
        ("global", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_claude_at_google_has_region_and_project_in_its_address(region: str, host: str) -> None:
    environ = {**VERTEX, "CLOUD_ML_REGION": region}
    route = resolve("vertex-claude:claude-sonnet-4-5@20250929", environ=environ)
    assert route.url == (
        f"https://{host}/v1/projects/acme/locations/{region}/publishers/anthropic/models/"
        "claude-sonnet-4-5%4020250929:streamRawPredict"
    )
    assert route.endpoint.vouched
    ((name, secret),) = credentials(route, environ={"GOOGLE_OAUTH_ACCESS_TOKEN": "t"})
    assert (name, secret.reveal()) == ("authorization", "Bearer t")


@pytest.mark.parametrize("missing", [*VERTEX])
def test_a_region_or_project_that_is_not_set_is_asked_for(missing: str) -> None:
    environ = {name: value for name, value in VERTEX.items() if name != missing}
    with pytest.raises(ConfigurationError, match=missing):
        _ = resolve("vertex-claude:claude-opus-5", environ=environ).url
    with pytest.raises(ConfigurationError, match="CLOUD_ML_REGION"):
        bad = {**VERTEX, "ANTHROPIC_VERTEX_PROJECT_ID": "a/b"}
        _ = resolve("vertex-claude:claude-opus-5", environ=bad).url


def test_claude_at_google_names_its_version_in_the_body_and_no_model() -> None:
    route = resolve("vertex-claude:claude-opus-5", environ=VERTEX)
    renderer = wire(route.wire).renderer(route)
    made = renderer.body(prompt(route.wire, human(1, "hi")), Config("x", "claude-opus-5"))
    body = encoding.decode(made)
    assert body["anthropic_version"] == "vertex-2023-10-16" and "model" not in body


def test_claude_in_bedrock_is_signed_for_its_own_service() -> None:
    route = resolve("bedrock-claude:anthropic.claude-opus-5", environ={"AWS_REGION": "us-west-2"})
    assert route.url == "https://bedrock-mantle.us-west-2.api.aws/anthropic/v1/messages"
    ((_, secret),) = credentials(route, environ={"AWS_BEARER_TOKEN_BEDROCK": "t"})
    assert secret.reveal() == "Bearer t"
    pytest.importorskip("requests_aws4auth")
    keys = AccessKeys("AKID", "secret")
    signed = dict(signature(route.url, b"{}", keys, route.endpoint, {}))
    assert "/us-west-2/bedrock-mantle/aws4_request" in signed["authorization"]


@pytest.mark.parametrize(
    ("name", "path"),
    [("azure:gpt-5", "/openai/v1/responses"), ("azure-chat:my", "/openai/v1/chat/completions")],
)
def test_azure_takes_a_resources_address_and_a_key_header(name: str, path: str) -> None:
    environ = {
        "AZURE_OPENAI_ENDPOINT": "https://acme.openai.azure.com/",
        "AZURE_OPENAI_API_KEY": "k",
    }
    route = resolve(name, environ=environ)
    assert route.url == f"https://acme.openai.azure.com{path}"
    ((header, secret),) = credentials(route, environ=environ)
    assert (header, secret.reveal()) == ("api-key", "k")
    whole = resolve(name, base_url="https://acme.openai.azure.com/openai/v1", environ={})
    assert whole.url == route.url
    with pytest.raises(ConfigurationError, match="AZURE_OPENAI_ENDPOINT"):
        _ = resolve(name, environ={}).url


@pytest.mark.parametrize("name", ["vllm:m", "sglang:m", "llamacpp:m"])
def test_a_server_of_ones_own_needs_no_key(name: str) -> None:
    route = resolve(name, environ={})
    assert route.endpoint.loopback and route.endpoint.vouched
    there = resolve(name, base_url="http://gpu.example:9000/v1", environ={})
    assert credentials(there, environ={}) == ()
    with pytest.raises(MissingCredential, match="XAI_API_KEY"):
        credentials(resolve("xai:grok-4.7", environ={}), environ={})


def test_every_vendor_has_a_key_of_its_own_name() -> None:
    for name in NEW:
        endpoint = providers()[name].endpoint
        assert endpoint.auth == "none" or endpoint.key_variables
        assert endpoint.path.startswith("/")


def test_ids_of_other_routes_are_made_to_fit() -> None:
    for name in NEW:
        pattern = providers()[name].id_pattern
        assert re.fullmatch(pattern, _digest_id("toolu_01", pattern))


def test_a_captured_request_is_nobodys_own_server() -> None:
    found = route_of("", "openai_chat", "my-model")
    assert found is None or found.provider not in ("vllm", "sglang", "llamacpp", "azure-chat")
    found = route_of("https://api.moonshot.ai/v1/chat/completions", "openai_chat", "kimi-k3")
    assert found is not None and found.name == "moonshot:kimi-k3"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "lab_name", "wire_name"),
    [
        ("anthropic-compatible:claude-sonnet-4-6", "anthropic", "anthropic_messages"),
        ("responses-compatible:gpt-5.5", "openai", "openai_responses"),
    ],
)
async def test_an_unknown_server_of_any_wire_is_a_route(
    name: str, lab_name: str, wire_name: str
) -> None:
    with pytest.raises(ConfigurationError, match="COMPATIBLE_BASE_URL"):
        _ = resolve(name, environ={}).url
    scenario = find("g2")
    async with open_lab(scenario.script()) as lab:
        run = await run_scenario(scenario, name, base_url=lab.base_url(lab_name))
    assert (run.context.wire, run.context.projection) == (wire_name, "dispatch")
    assert run.holds, run.violations[:3]
    assert run.report.totals.undeclared_misses == 0
