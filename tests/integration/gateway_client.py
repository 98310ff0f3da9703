"""Many requests at once to a server: how many a second, and how long one takes, as JSON.

gateway_client.py URL KEY
"""

import asyncio
import json
import sys
import time
from typing import Any

import httpx


async def speed(url: str, key: str, num: int = 256, at_once: int = 64) -> Any:
    free, times = asyncio.Semaphore(at_once), []

    async def one(number: int) -> None:
        asked = {
            "model": "tiny",
            "messages": [{"role": "user", "content": f"Count on from {number}:"}],
            "max_tokens": 16,
            "temperature": 1,
        }
        async with free:
            start = time.perf_counter()
            answer = await http.post(
                f"{url}/chat/completions",
                json=asked,
                headers={"authorization": f"Bearer {key}"},
            )
            assert answer.status_code == 200, answer.text
            times.append(time.perf_counter() - start)

    async with httpx.AsyncClient(timeout=600, limits=httpx.Limits(max_connections=64)) as http:
        await asyncio.gather(*(one(-number) for number in range(1, 9)))  # connections, caches
        times.clear()
        start = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(num)))
        rate = num / (time.perf_counter() - start)
    times.sort()
    return {"rate": rate, "p50": times[len(times) // 2], "p99": times[int(len(times) * 0.99)]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(speed(*sys.argv[1:]))))
