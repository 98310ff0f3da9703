"""Bytes that a forward and backward pass needs besides weights, per token.

The formulas add up the tensors that autograd saves in a decoder layer with RMSNorm, rotary
positions, fused attention and a gated MLP, as in Llama and Qwen. A test compares them with fake
tensors of three sizes of Qwen3. Not included: what a vision encoder saves.
"""

from dataclasses import dataclass

from pettingllms.preflight.model_size import ModelSize

FLOAT = 4
NUM_NORMS = 2
"""Norms of a layer over the hidden size; each saves its input in float32."""
NUM_CASTS = 5
"""Linear layers of a layer that read the output of a norm: queries, keys, values, gate and up."""
NUM_ADAPTED = 7
"""Matrices of a layer that LoRA adapts."""
CHUNK_BYTES = 2**28
"""Float32 logits of one chunk of tokens, as in `learners.output_head`."""
FROZEN_CPU_BYTES = 2**26
"""The same on CPU if the output layer is frozen."""
MAX_MASK_BYTES = 2**26
"""Masks of token trees on a CPU, as in `learners.tree_attention`."""
CHUNK_BUFFERS = 4
"""Tensors of the size of a chunk's logits that exist at once."""


@dataclass(frozen=True, slots=True)
class Activations:
    """Activations of one model that is trained."""

    size: ModelSize
    width: int
    """Bytes of a number in the compute dtype."""
    rank: int = 0
    """LoRA rank; 0 if all weights are trained."""
    is_autocast: bool = False
    """Whether autocast computes with float32 weights in a smaller dtype: then hidden states stay
    float32 and each linear layer casts its input. FSDP casts the weights instead."""
    num_keys: int = 0
    """Tokens of the longest sequence, if attention is that of token trees on a CPU: a pass has
    float32 masks of queries by keys, and each layer saves its output in another order. 0 on
    GPUs."""

    @property
    def input(self) -> float:
        """Bytes per token of a layer's input, which activation checkpointing keeps."""
        return self.size.hidden_size * (FLOAT if self._widened else self.width)

    @property
    def layer(self) -> float:
        """Bytes per token that autograd saves in one layer."""
        size, width, hidden = self.size, self.width, self.size.hidden_size
        queries, keys = size.num_heads * size.head_dim, size.num_kv_heads * size.head_dim
        saved = NUM_NORMS * FLOAT * (hidden + 1)
        saved += (NUM_CASTS if self._widened else NUM_NORMS) * width * hidden
        saved += width * (2 * queries + 2 * keys) + FLOAT * size.num_heads
        saved += 4 * width * size.mlp_size  # gate, its activation, up, and their product
        if self.num_keys:
            saved += width * queries
        if size.has_qk_norm:
            saved += FLOAT * (queries + keys + size.num_heads + size.num_kv_heads)
        if self.rank:
            return saved + NUM_ADAPTED * width * self.rank
        if size.has_qk_norm:  # a norm that is trained also saves what its weight multiplies
            saved += width * (queries + keys)
        return saved + NUM_NORMS * (FLOAT if self._widened else width) * hidden

    def kept(self, num_tokens: int, checkpointing: bool) -> float:
        """Bytes that the forward pass leaves for the backward pass."""
        layer = self.input if checkpointing else self.layer
        once = FLOAT * self.size.hidden_size
        masks = min(MAX_MASK_BYTES, FLOAT * num_tokens * self.num_keys)
        return num_tokens * (self.size.num_layers * layer + once) + masks

    def backward(self, num_tokens: int, checkpointing: bool) -> float:
        """Temporary bytes of a layer's backward pass, and of its recomputation."""
        hidden, mlp = FLOAT * self.size.hidden_size, self.width * self.size.mlp_size
        if checkpointing:
            return num_tokens * (self.layer + 2 * mlp + hidden)
        return num_tokens * (3 * mlp + 2 * hidden)

    def head(self, num_tokens: int) -> float:
        """Temporary bytes of the output layer: a chunk of logits, and gradients of its inputs."""
        is_small = bool(self.rank and self.num_keys)  # frozen, and on a CPU
        most = FROZEN_CPU_BYTES if is_small else CHUNK_BYTES
        chunk = min(most, num_tokens * self.size.vocab_size * FLOAT)
        return CHUNK_BUFFERS * chunk + 2 * num_tokens * self.size.hidden_size * self.width

    @property
    def _widened(self) -> bool:
        return self.is_autocast and not self.rank and self.width < FLOAT
