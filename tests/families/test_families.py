"""The kit on small models of transformers, with random weights: no alarm on a healthy family, and two true findings.

`nox -s families` runs it. Each model is called with vectors (`inputs_embeds`), with its cache if it has one, with
padding on both sides where its positions follow the mask, and with both implementations of attention.
"""

import inspect

import pytest
import torch
from transformers import AutoConfig, AutoModel, DynamicCache

from snippets.attention_probes import check

WIDTH = 32
BERT = {"vocab_size": 64, "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2}
BERT |= {"num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0}
LLAMA = BERT | {"num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
WIDE = LLAMA | {"head_dim": 8}
WINDOW = WIDE | {"sliding_window": 16}  # more than the tokens that the kit draws
EXPERTS = LLAMA | {"num_experts": 2, "num_experts_per_tok": 2}
GPT2 = {"vocab_size": 64, "n_embd": WIDTH, "n_head": 4, "n_layer": 2, "n_positions": 64}

DECODERS = {
    **dict.fromkeys(
        ["arcee", "bitnet", "cohere", "diffllama", "ernie4_5", "granite", "llama", "mistral", "olmo", "olmo2", "phi3"],
        LLAMA,
    ),
    **dict.fromkeys(["qwen2", "smollm3", "stablelm", "starcoder2"], LLAMA),
    **dict.fromkeys(["gemma", "glm", "glm4", "helium", "nemotron", "qwen3", "seed_oss"], WIDE),
    **dict.fromkeys(["cohere2", "exaone4", "gemma2", "gemma3_text"], WINDOW),
    **dict.fromkeys(["gpt_neox", "persimmon", "phi"], BERT),
    "mixtral": LLAMA | {"num_local_experts": 2, "num_experts_per_tok": 2},
    "olmoe": EXPERTS,
    "qwen2_moe": EXPERTS | {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "qwen3_moe": EXPERTS | {"head_dim": 8, "moe_intermediate_size": 16},
    "gpt_oss": WINDOW | {"num_local_experts": 2, "num_experts_per_tok": 2},
    **dict.fromkeys(["gpt2", "gpt_bigcode", "openai-gpt"], GPT2),
    **dict.fromkeys(["gptj", "codegen"], GPT2 | {"rotary_dim": 4}),
    "gpt_neo": {
        **BERT,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 16,
    },
    "opt": BERT | {"ffn_dim": 48, "word_embed_proj_dim": WIDTH},
    "bloom": {"vocab_size": 64, "hidden_size": WIDTH, "n_head": 4, "n_layer": 2},
    "falcon": BERT,
    "mpt": {"vocab_size": 64, "d_model": WIDTH, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
    "ctrl": GPT2 | {"dff": 48},
    "biogpt": BERT,
    "xglm": {"vocab_size": 64, "d_model": WIDTH, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4},
}
ENCODERS = {
    **dict.fromkeys(
        ["bert", "camembert", "deberta-v2", "ernie", "eurobert", "layoutlm", "megatron-bert", "modernbert"], BERT
    ),
    **dict.fromkeys(["mpnet", "nystromformer", "roberta", "roformer", "xlm-roberta"], BERT),
    "albert": BERT | {"embedding_size": WIDTH},
    "electra": BERT | {"embedding_size": WIDTH},
    "rembert": BERT | {"input_embedding_size": WIDTH},
    "distilbert": {"vocab_size": 64, "dim": WIDTH, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
}
FIRST_POSITION = {"camembert": 1, "mpnet": 2, "roberta": 1, "xlm-roberta": 1}  # the padding index and one
FINDINGS = {
    "ctrl": {"state"},  # `inputs_embeds *= …` multiplies the vectors of the caller
    "nystromformer": {"pads_left", "pads_right"},  # its landmarks are means over segments, pads among them
}


def report(family, implementation):
    """The verdict of the kit on a model, or a skip where it has no such attention."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **(DECODERS | ENCODERS)[family])
    try:
        model = AutoModel.from_config(config, attn_implementation=implementation)
    except ValueError as error:
        if "does not support an attention implementation" not in str(error):
            raise
        pytest.skip(f"it has no {implementation}")
    names = inspect.signature(model.forward).parameters
    counted = "position_ids" in names

    def call(tokens, is_real=None, cache=None):
        options = {} if cache is None else {"past_key_values": cache, "use_cache": True}
        if is_real is not None:
            options["attention_mask"] = is_real.long()
            if counted:
                positions = (is_real.long().cumsum(dim=1) - 1).clamp(min=0)
                options["position_ids"] = positions + FIRST_POSITION.get(family, 0)
        return model(inputs_embeds=tokens, **options).last_hidden_state

    def cache():
        held = DynamicCache(config=config)
        return lambda chunk: call(chunk, cache=held)

    causal = family in DECODERS
    sides = ("right", "left") if causal or counted else ("right",)
    steps = cache if causal and "past_key_values" in names else None
    return check(call, width=WIDTH, causal=causal, module=model, padding=call, pads=sides, cache=steps)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("family", [*DECODERS, *ENCODERS])
def test_a_family_raises_no_alarm_but_the_findings(family, implementation):
    found = report(family, implementation)
    assert found.failed.keys() == FINDINGS.get(family, set()), found
    assert {"future", "reads", "batch", "state", "modes", "formats"} - FINDINGS.get(
        family, set()
    ) <= found.passed.keys()
