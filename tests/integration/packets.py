"""Sends a thousand packets to the head of a cluster, or counts those that arrive there."""

import socket
import sys
import time

from machines import NETWORK

HEAD, COUNT, START_SECONDS = (f"{NETWORK}.1", 7070), 1000, 5.0


def send() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        time.sleep(START_SECONDS)
        for _ in range(COUNT):
            out.sendto(b"packet", HEAD)
            time.sleep(0.002)


def receive() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(HEAD)
        own.settimeout(4 * START_SECONDS)
        count = 0
        try:
            while True:
                own.recv(16)
                count += 1
                own.settimeout(START_SECONDS)
        except TimeoutError:
            print(f"received={count}")


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]]()
