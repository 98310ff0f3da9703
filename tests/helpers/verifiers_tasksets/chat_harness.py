"""A plain chat for `vf-eval`: asks once, with the conversation so far, and runs no program.

Written apart from that of the package, so that the comparison of rewards covers both.
"""

import json
import urllib.error
import urllib.request

import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.runtimes import ProgramResult

__all__ = ["ChatHarness"]


class ChatHarnessConfig(vf.HarnessConfig):
    id: str = "chat_harness"


class ChatHarness(vf.Harness[ChatHarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        import asyncio

        system, prompt = self.resolve_prompt(data)
        chat = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            chat.append({"role": "user", "content": prompt})
        else:
            chat += [message_to_wire(message) for message in prompt]
        request = urllib.request.Request(  # noqa: S310 - the interception server of verifiers
            f"{endpoint}/chat/completions",
            json.dumps({"model": ctx.model, "messages": chat}).encode(),
            {"authorization": f"Bearer {secret}", "content-type": "application/json"},
        )
        try:
            await asyncio.to_thread(urllib.request.urlopen, request)
        except urllib.error.HTTPError as error:
            return ProgramResult(1, "", error.read().decode())
        return ProgramResult(0, "", "")
