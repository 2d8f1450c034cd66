"""Makes a model folder of the lab: a tiny Llama, or a tiny model with experts, without weights, and a tokenizer whose
every token is plain ASCII text.

Run with the engine's Python: `python make_model.py FOLDER [experts]`. Offline and the same bytes each time. Weights are
random (the server's `--load-format dummy`), so answers are noise; printable tokens keep them from looking garbled.
"""

import json
import pathlib
import random
import string
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 512
CONTEXT = 32768
# fmt: off
WORDS = (
    "prefill", "decode", "batch", "token", "server", "cache", "expert", "request", "latency", "queue", "running",
    "router", "worker", "page", "chunk", "budget", "stage", "trial", "card", "goal", "pool", "host", "load",
    "window", "mean", "rate", "seed", "study", "noise", "floor", "gain", "keep", "close", "route", "fault",
    "reason", "lease", "epoch", "job", "agent", "ledger", "entry", "digest", "stream", "prompt", "answer", "model",
    "tensor", "rank", "layer", "layout", "build", "image", "commit",
)
# fmt: on


def tokenizer():
    made = Tokenizer(models.BPE(unk_token=None))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    marks = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted({symbol for c in string.printable[:95] for symbol in marks.pre_tokenize_str(c)[0][0]} | {"Ċ"})
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<s>", "</s>", "<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    rng = random.Random(0)
    made.train_from_iterator([" ".join(rng.choices(WORDS, k=60)) for _ in range(400)], trainer)
    return made


TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


# No shared expert: its gate is a compiled kernel.
EXPERTS = {
    "model_type": "qwen2_moe",
    "architectures": ["Qwen2MoeForCausalLM"],
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 0,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "use_sliding_window": False,
    "sliding_window": CONTEXT,
    "max_window_layers": 2,
    "qkv_bias": True,
}


def main(folder, *kind):
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "model_max_length": CONTEXT,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    model = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "num_hidden_layers": 2,
        "vocab_size": made.get_vocab_size(),
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    if "experts" in kind:
        model.update(EXPERTS)
    (folder / "config.json").write_text(json.dumps(model, indent=1))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
