#!/usr/bin/env python3
"""LangChain's standard suite for chat models, through langchain-openai: langchain_test.py CHORAL [pytest arguments]. The demo's model
answers; without CHORAL_DEMO_MODEL, 77: skipped.

The suite asks for protocol and for wits. The protocol must hold whoever answers, and where wits are wanted (to find the number in a
question) the same test is run again with a form that leaves no other answer, so that everything around the model is still checked.
"""

import os
import sys
from typing import Literal

import served

pytest = served.need("pytest")
served.need("langchain_tests")
from langchain_core.exceptions import OutputParserException  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from langchain_tests.integration_tests import ChatModelIntegrationTests, chat_models  # noqa: E402

# What a model of 135 million parameters cannot do, or does on one machine and not on another. Each may fail over its words, and is said
# when it passes.
BEYOND_THE_MODEL = {
    "test_tool_calling": "the call has the right form, but maybe not the number that the question names",
    "test_tool_calling_async": "as test_tool_calling",
    "test_agent_loop": "nothing forces the call, and this model was never taught to make one",
    "test_unicode_tool_call_integration": "it seldom repeats a Chinese name",
    "test_json_mode": "any object is JSON; it does not keep to the keys that the question asks for",
}
# What this server does not do or the suite does not ask here. Each must be skipped by the suite itself.
NOT_ASKED = {
    "test_pdf_inputs": "the server reads text", "test_audio_inputs": "the server reads text", "test_image_inputs": "the server reads text",
    "test_image_tool_message": "the server reads text", "test_pdf_tool_message": "the server reads text",
    "test_anthropic_inputs": "langchain-openai speaks OpenAI's form", "test_stream_time": "it replays recordings, which there are none of",
}


class OneCall(ChatOpenAI):
    """The suite counts the calls; how many a model makes is its own choice unless it is told."""

    def bind_tools(self, tools, **fields):
        return super().bind_tools(tools, **{"parallel_tool_calls": False, **fields})


class TestStandard(ChatModelIntegrationTests):
    chat_model_class = OneCall
    has_tool_choice = True
    supports_json_mode = True
    supports_model_override = True
    model_override_value = "yoda"

    @property
    def chat_model_params(self):
        # Without the penalty a model this small says one thing again and again, until it is cut off.
        return {"model": "smollm2", "base_url": os.environ["CHORAL_TEST_URL"], "api_key": "none", "temperature": 0, "frequency_penalty": 1,
                "max_retries": 0, "max_tokens": 256, "stream_usage": True}


@tool
def magic_function(input: Literal[3]) -> int:
    """Applies a magic function to an input."""
    return input + 2


@tool
def unicode_customer(customer_name: Literal["你好啊集团", "こんにちは株式会社"], description: Literal["x"]) -> str:
    """Create a customer with a Unicode name."""
    return customer_name + description


class TestProtocol(TestStandard):
    """The tests of BEYOND_THE_MODEL again, where the schema allows nothing but what they wait for."""

    test_json_mode = None  # its protocol is test_structured_output's, where a schema gives the keys

    @pytest.fixture(autouse=True)
    def forms(self, monkeypatch):
        monkeypatch.setattr(chat_models, "magic_function", magic_function)

    def test_agent_loop(self, model):
        """A call that is forced, its result, and an answer to that."""
        asked = [chat_models.HumanMessage("What is the value of magic_function(3)?")]
        call = model.bind_tools([magic_function], tool_choice="any").invoke(asked)
        assert [(c["name"], c["args"]) for c in call.tool_calls] == [("magic_function", {"input": 3})]
        assert call.response_metadata["finish_reason"] == "tool_calls"
        result = magic_function.invoke(call.tool_calls[0])
        assert isinstance(result, chat_models.ToolMessage) and result.tool_call_id == call.tool_calls[0]["id"]
        answer = model.bind_tools([magic_function]).invoke([*asked, call, result])
        assert isinstance(answer, chat_models.AIMessage) and not answer.tool_calls and answer.content

    @pytest.mark.parametrize("name", ["你好啊集团", "こんにちは株式会社"])
    def test_unicode_tool_call_integration(self, model, name):
        forced = model.bind_tools([unicode_customer], tool_choice="any")
        whole = forced.invoke(f"Create a customer named '{name}'.")
        full = None
        for chunk in forced.stream(f"Create a customer named '{name}'."):
            full = chunk if full is None else full + chunk
        for message in (whole, full):
            assert [set(c["args"]) for c in message.tool_calls] == [{"customer_name", "description"}]
            assert message.tool_calls[0]["args"]["customer_name"] in ("你好啊集团", "こんにちは株式会社")


# One loop for all tests: clients of one address share their connections.
ASYNCIO = [flag for name in ("mode=auto", "default_test_loop_scope=session", "default_fixture_loop_scope=session")
           for flag in ("-o", f"asyncio_{name}")]


class Ledger:
    """Which tests were skipped, expected to fail, and passed against that."""

    def __init__(self):
        self.outcomes = {}

    def pytest_collection_modifyitems(self, items):
        beyond = [item for item in items if item.originalname in BEYOND_THE_MODEL]
        items[:] = [item for item in items if item in beyond or item.cls.__name__ == "TestStandard"]
        for item in beyond:
            if item.cls.__name__ == "TestStandard":  # any other error is the protocol's
                item.add_marker(pytest.mark.xfail(reason=BEYOND_THE_MODEL[item.originalname], raises=(AssertionError, OutputParserException)))

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("::")[-1].split("[")[0]
        if report.skipped and not hasattr(report, "wasxfail"):
            self.outcomes.setdefault("skipped", set()).add(name)
        elif report.when == "call":
            self.outcomes.setdefault("expected to fail" if hasattr(report, "wasxfail") else report.outcome, set()).add(name)


def main():
    served.CHORAL, *arguments = sys.argv[1:]
    demo = os.environ.get("CHORAL_DEMO_MODEL")
    if not demo:
        print("skipped: CHORAL_DEMO_MODEL names no model")
        return 77
    served.need_xgrammar()
    adapters = served.pathlib.Path(__file__).resolve().parents[2] / "examples" / "adapters"
    server = served.Server(demo, "--served-model-name", "smollm2", "--adapter-root", adapters)
    os.environ.update(CHORAL_TEST_URL=f"http://127.0.0.1:{server.port}/v1", LANGSMITH_TRACING="false")
    ledger = Ledger()
    code = pytest.main([__file__, "-q", "-p", "no:cacheprovider", *ASYNCIO, "-W", "ignore", "--tb=short", "-rfExXs", *arguments],
                       plugins=[ledger])
    ended = server.stop()
    skipped = ledger.outcomes.get("skipped", set())
    if not arguments and skipped != set(NOT_ASKED):
        print(f"skipped without a reason in NOT_ASKED: {skipped - set(NOT_ASKED)}; not skipped though listed: {set(NOT_ASKED) - skipped}")
        return 1
    return int(code) or ended


if __name__ == "__main__":
    sys.exit(main())
