"""Images through the gateway: records contain exactly the images that the model saw."""

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")
httpx = pytest.importorskip("httpx")

from gateways import Served, served
from image_prompts import BLUE, RED, gaps, learner_of, noise
from pictures import bad_images

from pettingllms.config import InferenceConfig
from pettingllms.config.policies import FullPolicy
from pettingllms.gateway.calls import ChatMessage, Placed
from pettingllms.gateway.gateway import Gateway
from pettingllms.gateway.rate_limits import Bounds
from pettingllms.gateway.session import Limits
from pettingllms.gateway.templates import Template
from pettingllms.inference.engines.base import EngineSpec
from pettingllms.inference.engines.torch import TorchEngine
from pettingllms.inference.multimodal_chat import VisionRenderer
from pettingllms.learners.batches import Item
from pettingllms.models import make_tiny_vision
from pettingllms.rollouts.player import Player
from pettingllms.types import (
    Episode,
    Image,
    SampleRequest,
    Task,
    images_of,
    read_episodes,
    user,
    write_episodes,
)

WIDE = noise((168, 56), 1)
PICTURES = [RED, BLUE, WIDE, noise((100, 61), 3), noise((28, 28), 4)]
TEXTS = [f"You see. Count on from {n}: look at '{n} {n + 1}'." for n in range(50)]


def coded(image: Image) -> str:
    return base64.b64encode(image.data).decode()


def url(image: Image) -> str:
    return f"data:image/png;base64,{coded(image)}"


def shown(*parts: str | Image) -> dict[str, Any]:
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": url(part)}}
        for part in parts
    ]
    return {"role": "user", "content": content}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("m") / "eyes"
    return make_tiny_vision(made, texts=TEXTS, hidden_size=64)


@pytest.fixture(scope="module")
def renderer(folder: Path) -> VisionRenderer:
    return VisionRenderer(folder)


@pytest.fixture(scope="module")
def template(renderer: VisionRenderer) -> Template:
    return Template(renderer)


class Watched(TorchEngine):
    """Keeps its requests and replies."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: list[Any] = []

    async def sample(self, request: SampleRequest) -> Any:
        found = await super().sample(request)
        for sample in found:
            ids = (tuple(request.prompt_ids.tolist()), tuple(sample.ids.tolist()))
            self.seen.append((*ids, tuple(image.digest for image in request.images)))
        return found


def image_roles(
    folder: Path, work: Callable[[Served], Awaitable[Any]]
) -> tuple[Any, Episode, list[Any], list[str]]:
    """Run the work with a VLM. Returns its result, the episode, the engine's requests, and the
    gateway's messages at start-up."""

    async def run() -> Any:
        config = InferenceConfig(engine="torch", max_model_len=1024)
        engine = Watched(EngineSpec(folder, config, ("eyes",)))
        await engine.start()
        said: list[str] = []
        gateway = await Gateway.start(said.append, Bounds(calls_per_second=1e6))
        players = {"agent": Player("eyes", engine, VisionRenderer(folder))}
        gateway.check(players)
        episode = Episode("t/0", "program-v1", Task("t"), 0)
        session = gateway.open(episode, players, 1, (), Limits(max_calls=10**6, max_reply_tokens=8))
        gate = Served(gateway, session, engine)  # type: ignore[arg-type]
        try:
            found = await work(gate)
        finally:
            await gate.leave()
            gate.close()
            await gateway.stop()
        return found, episode, engine.seen, said

    return asyncio.run(run())


async def post(gate: Served, body: dict[str, Any], role: str = "agent") -> Any:
    access = gate.agents.openai(role)
    async with httpx.AsyncClient(timeout=600) as http:
        return await http.post(
            f"{access['base_url']}/chat/completions",
            json={"model": "m", **body},
            headers={"authorization": f"Bearer {access['api_key']}"},
        )


async def ask(gate: Served, chat: list[Any], **more: Any) -> Any:
    answer = await post(gate, {"messages": chat, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]


def recorded(episode: Episode) -> list[Any]:
    return [
        (
            tuple(turn.prompt_ids.tolist()),
            tuple(turn.response_ids.tolist()),
            tuple(image.digest for image in images_of(turn.messages)),
        )
        for turn in episode.turns
    ]


async def converse(gate: Served, number: int) -> None:
    rng = random.Random(number)
    chat: list[Any] = [shown(rng.choice(PICTURES), f"Count on from {number}:")]
    for _ in range(rng.randrange(1, 4)):
        chat.append(await ask(gate, chat, max_tokens=rng.randrange(2, 9)))
        parts = [rng.choice(PICTURES) for _ in range(rng.randrange(3))]
        chat.append(shown("look at", *parts, f"'{rng.randrange(99)}'."))
    await ask(gate, chat, max_tokens=4)


def test_records_equal_what_the_engine_saw_and_the_learner_agrees(
    folder: Path, tmp_path: Path
) -> None:
    async def work(gate: Served) -> None:
        for number in range(12):
            await converse(gate, number)

    _, episode, seen, said = image_roles(folder, work)
    assert said == [], "the template preserves prefixes"
    assert recorded(episode) == seen
    assert episode.failure is None
    extending = [turn for turn in episode.turns if turn.links.extends is not None]
    assert len(extending) > 12
    assert any(len(images_of(turn.messages)) > 2 for turn in extending)
    for turn in extending:
        before = episode.turns[turn.links.extends]
        ids = np.concatenate([before.prompt_ids, before.response_ids])
        assert turn.prompt_ids[: len(ids)].tolist() == ids.tolist()
        old = images_of(before.messages)
        assert images_of(turn.messages)[: len(old)] == old
    file = tmp_path / "episodes.jsonl"
    write_episodes(file, [episode])
    (read,) = read_episodes(file)
    items = [
        Item(t.prompt_ids, t.response_ids, t.logprobs, 1.0, images=images_of(t.messages))
        for t in read.turns
    ]
    assert max(gaps(learner_of(folder, FullPolicy(model=str(folder))), items)) < 1e-3
    kept = {image.digest for turn in episode.turns for image in images_of(turn.messages)}
    assert {path.stem for path in (tmp_path / "images").iterdir()} == kept
    objects = {id(image) for turn in episode.turns for image in images_of(turn.messages)}
    assert len(objects) == len(kept), "an image that is sent with every call is stored once"


def test_images_keep_their_positions(template: Template, renderer: VisionRenderer) -> None:
    first = ChatMessage("user", "Which?", images=(Placed(0, RED), Placed(0, WIDE)))
    between = ChatMessage("user", "Which?", images=(Placed(0, RED), Placed(5, WIDE)))
    ids = template.whole([first], [])
    assert ids.tolist() == renderer.render([user("Which?", RED, WIDE)]).tolist()
    assert template.whole([between], []).tolist() != ids.tolist()
    text = "<|im_start|>user\n{0}Which{0}?<|im_end|>\n<|im_start|>assistant\n"
    sign = "<|vision_start|><|image_pad|><|vision_end|>"
    narrow = renderer.image_processor.unexpanded(template.whole([between], []), (RED, WIDE))
    assert narrow == renderer.text_ids(text.format(sign)).tolist()


def test_another_image_of_the_same_size_starts_another_segment(folder: Path) -> None:
    async def work(gate: Served) -> None:
        chat = [shown(RED, "Count on")]
        reply = await ask(gate, chat)
        await ask(gate, [shown(RED, "Count on"), reply, shown("look")])
        await ask(gate, [shown(BLUE, "Count on"), reply, shown("look")])
        await ask(gate, [shown("Count on", RED), reply, shown("look")])
        await ask(gate, [shown("Count on"), reply, shown("look")])

    _, episode, seen, _ = image_roles(folder, work)
    assert [turn.links.extends for turn in episode.turns] == [None, 0, None, None, None]
    assert recorded(episode) == seen
    assert seen[1][2] == (RED.digest,)
    assert seen[2][2] == (BLUE.digest,)
    first = seen[0][0]
    assert seen[2][0][: len(first)] == first, "the ids alone do not distinguish them"


def test_seeds_depend_on_the_image_and_not_on_the_order_of_calls(folder: Path) -> None:
    def replies(first: Image, second: Image) -> dict[str, Any]:
        async def work(gate: Served) -> None:
            await ask(gate, [shown(first, "Count on")])
            await ask(gate, [shown(second, "Count on")])

        return {images[0]: ids for _, ids, images in image_roles(folder, work)[2]}

    assert replies(RED, BLUE) == replies(BLUE, RED)


def test_a_reply_with_an_image_placeholder_id_is_not_extended(
    folder: Path, renderer: VisionRenderer
) -> None:
    class Odd(Watched):
        async def sample(self, request: SampleRequest) -> Any:
            (sample,) = await super().sample(request)
            sample.ids[0] = renderer.image_processor.image_id
            return [sample]

    async def work(gate: Served) -> None:
        gate.sampler.__class__ = Odd  # type: ignore[assignment]
        chat = [shown(RED, "Count on")]
        await ask(gate, [*chat, await ask(gate, chat), shown("look")])

    _, episode, _, _ = image_roles(folder, work)
    assert [turn.links.extends for turn in episode.turns] == [None, None]
    assert [turn.credit.failure for turn in episode.turns] == [None, None]


def test_the_vendors_clients_send_images(folder: Path, renderer: VisionRenderer) -> None:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")

    async def work(gate: Served) -> None:
        openai, anthropic = gate.openai("agent"), gate.anthropic("agent")
        chat = [shown(RED, WIDE, "Count on")]
        done = await openai.chat.completions.create(model="m", messages=chat)
        chat += [done.choices[0].message.model_dump(exclude_none=True), shown(BLUE, "look")]
        await openai.chat.completions.create(model="m", messages=chat)

        def image(one: Image) -> dict[str, Any]:
            return {"type": "input_image", "image_url": url(one), "detail": "auto"}

        asked = [image(RED), image(WIDE), {"type": "input_text", "text": "Count on"}]
        given: list[Any] = [{"role": "user", "content": asked}]
        response = await openai.responses.create(model="m", input=given)
        more = [image(BLUE), {"type": "input_text", "text": "look"}]
        given += [*response.output, {"role": "user", "content": more}]
        await openai.responses.create(model="m", input=given)

        def block(one: Image) -> dict[str, Any]:
            source = {"type": "base64", "media_type": "image/png", "data": coded(one)}
            return {"type": "image", "source": source}

        blocks = [block(RED), block(WIDE), {"type": "text", "text": "Count on"}]
        said: list[Any] = [{"role": "user", "content": blocks}]
        message = await anthropic.messages.create(model="m", messages=said, max_tokens=8)
        said.append({"role": "assistant", "content": message.content})
        said.append({"role": "user", "content": [block(BLUE), {"type": "text", "text": "look"}]})
        await anthropic.messages.create(model="m", messages=said, max_tokens=8)

    _, episode, seen, _ = image_roles(folder, work)
    assert [turn.links.extends for turn in episode.turns] == [None, 0, None, 2, None, 4]
    assert recorded(episode) == seen
    first = renderer.render([user("Count on", RED, WIDE)]).tolist()
    for begun, gone_on in zip(seen[::2], seen[1::2], strict=True):
        assert list(begun[0]) == first
        assert begun[2] == (RED.digest, WIDE.digest)
        assert gone_on[2] == (RED.digest, WIDE.digest, BLUE.digest)


def test_a_tool_returns_an_image(folder: Path, renderer: VisionRenderer) -> None:
    pytest.importorskip("anthropic")
    source = {"type": "base64", "media_type": "image/png", "data": coded(WIDE)}
    result = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [{"type": "text", "text": "it: "}, {"type": "image", "source": source}],
    }
    called = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    tool = {"name": "look", "input_schema": {"type": "object"}}

    async def work(gate: Served) -> None:
        chat: list[Any] = [
            {"role": "user", "content": "Count on"},
            {"role": "assistant", "content": [called]},
            {"role": "user", "content": [result]},
        ]
        client = gate.anthropic("agent")
        await client.messages.create(model="m", messages=chat, tools=[tool], max_tokens=8)

    _, episode, seen, _ = image_roles(folder, work)
    assert recorded(episode) == seen
    assert seen[0][2] == (WIDE.digest,)
    last = episode.turns[0].messages[-1]
    assert last.content == "<tool_response>\nit: \n</tool_response>"
    narrow = renderer.image_processor.unexpanded(episode.turns[0].prompt_ids, (WIDE,))
    sign = "<|vision_start|><|image_pad|><|vision_end|>"
    end = f"<tool_response>\nit: {sign}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    text = renderer.text_ids(end).tolist()
    assert narrow[-len(text) :] == text


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"image_url": {"url": "https://example.com/cat.png"}}, "images are not fetched"),
        ({"image_url": {"url": "file:///etc/passwd"}}, "images are not fetched"),
        ({"image_url": {"url": "/etc/passwd"}}, "images are not fetched"),
        ({"image_url": {"url": "data:image/png,abc"}}, "has no ';base64,'"),
        ({"image_url": {"url": "data:image/png;base64,@@@@"}}, "is not valid base64"),
        ({"image_url": {"url": "data:image/png;base64,"}}, "is empty"),
        ({"file_id": "file-1"}, "images are not fetched"),
        (
            {"type": "image", "source": {"type": "url", "url": "https://e.com"}},
            "images are not fetched",
        ),
        ({"type": "input_audio"}, "send text or images"),
    ],
)
def test_unsupported_images_are_rejected(
    renderer: VisionRenderer, part: dict[str, Any], reason: str
) -> None:
    async def work(gate: Served) -> Any:
        content = [{"type": "image_url", **part}]
        body = {"messages": [{"role": "user", "content": content}]}
        return await post(gate, body, "worker"), gate.sampler.requests, gate.session.num_served

    answer, requests, num_served = served(work, renderer=renderer)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]
    assert (requests, num_served) == ([], 0)


def test_bad_images_are_rejected_with_a_reason(renderer: VisionRenderer) -> None:
    async def work(gate: Served) -> None:
        for name, (data, reason) in bad_images().items():
            answer = await post(gate, {"messages": [shown(Image(data), "look")]}, "worker")
            if name == "too many bytes":
                assert answer.status_code == 413, name
                continue
            assert answer.status_code == 400, name
            assert reason in answer.json()["error"]["message"], name
        assert gate.sampler.requests == []
        assert gate.turns == []

    served(work, renderer=renderer)


def test_an_image_for_a_text_only_role_names_the_role_and_the_fix() -> None:
    async def work(gate: Served) -> Any:
        return await post(gate, {"messages": [shown(RED, "look")]}, "worker")

    answer = served(work)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert "'worker'" in message
    assert "use a VLM" in message


class Changed(VisionRenderer):
    """A renderer with another template."""

    def __init__(self, folder: Path, template: str) -> None:
        super().__init__(folder)
        self._tokenizer.chat_template = template


def test_templates_are_checked_with_images(folder: Path, template: Template) -> None:
    assert (template.image_problem, template.fault) == ("", "")
    written = VisionRenderer(folder)._tokenizer.chat_template
    plain = written.replace("<|vision_start|><|image_pad|><|vision_end|>", "")
    assert "does not support images" in Template(Changed(folder, plain)).image_problem
    image_problem = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    found = Template(Changed(folder, image_problem))
    assert "does not support images" in found.image_problem
    assert found.fault == "", "text still works"
    latest = written.replace("part['type'] == 'image'", "part['type'] == 'image' and loop.last")
    marked = written.replace(
        "{%- for message in messages %}",
        "{%- for message in messages %}{% if message['content'] is not string and not loop.last %}"
        "{{ '(seen)' }}{% endif %}",
        1,
    )
    assert latest != written
    assert "does not support images" in Template(Changed(folder, latest)).image_problem
    assert Template(Changed(folder, marked)).fault, "text before an image changes later"
