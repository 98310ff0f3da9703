# PettingLLMs with engines for NVIDIA GPUs. The wheels of torch and vLLM bring CUDA; the host needs
# the NVIDIA driver and container toolkit.
#   docker build -f docker/gpu.Dockerfile -t pettingllms:0.1.0-gpu .
FROM python:3.12-slim-bookworm

# bubblewrap: the sandbox. gcc and headers: kernels that Triton and torch compile.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap build-essential wget \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/pettingllms
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY configs configs
COPY experiments experiments
COPY docs/results docs/results
# ray[default]: the job server that KubeRay submits runs to.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir '.[gpu]' 'ray[default]==2.60.0'

RUN useradd --create-home petting && mkdir /work /models /data && chown petting /work /models /data
USER petting
ENV PETTINGLLMS_MODELS=/models
WORKDIR /work
ENTRYPOINT []
CMD ["pettingllms", "--help"]
