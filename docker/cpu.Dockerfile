# PettingLLMs with engines for CPUs, at the versions of locks/cpu.txt, every file checked by its hash.
#   docker build -f docker/cpu.Dockerfile -t pettingllms:0.1.0-cpu .
FROM python:3.11-slim-bookworm

# bubblewrap: the sandbox. g++: kernels that torch compiles.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap g++ \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/pettingllms
COPY locks/cpu.txt locks/cpu.txt
RUN pip install --no-cache-dir --no-deps --require-hashes \
    --extra-index-url https://download.pytorch.org/whl/cpu --requirement locks/cpu.txt
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

RUN useradd --create-home petting && mkdir /work /models && chown petting /work /models
USER petting
ENV PETTINGLLMS_MODELS=/models
WORKDIR /work
ENTRYPOINT []
CMD ["pettingllms", "--help"]
