"""Makes a tiny Llama with random weights and a tokenizer of its own, without the hub; the engine's interpreter runs it.

`python models.py DIRECTORY` makes `DIRECTORY/tiny`, `DIRECTORY/tiny-moe` (a mixture of experts), and
`DIRECTORY/missing-norm`, which lacks the weight of one norm layer and must fail to load.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# Norm layers are among the few whose absence vLLM notices: a missing linear weight loads and serves garbage.
MISSING_WEIGHT = "model.layers.1.input_layernorm.weight"


def make(python: Path, directory: Path) -> None:
    """Have `python`, which has torch and transformers, make the models below `directory` unless they are there.

    Raises:
        subprocess.CalledProcessError: it failed; what it said is on standard error.
    """
    if (directory / "missing-norm/config.json").exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run([python, __file__, directory], check=True, stdout=subprocess.DEVNULL, timeout=180.0)


_SIZES = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,  # attention on the CPU takes multiples of 32 only
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}


def _tiny(target: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    _save(LlamaForCausalLM, LlamaConfig(**_SIZES), target)


def _tiny_moe(target: Path) -> None:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**_SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)
    _save(MixtralForCausalLM, config, target)


def _save(model, config, target: Path) -> None:
    import torch

    _tokenizer().save_pretrained(target)
    torch.manual_seed(0)
    model(config).to(torch.bfloat16).save_pretrained(target)


def _tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=["<unk>", "<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["hello world", "the quick brown fox jumps over the lazy dog"] * 20, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", model_max_length=2048
    )


def _without(weight: str, source: Path, target: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    weights = load_file(target / "model.safetensors")
    del weights[weight]
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})


def _make_here(directory: Path) -> None:
    """Each model appears at once or not at all, so that a run cut short leaves nothing half made."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    scratch = directory / f"scratch-{os.getpid()}"
    _tiny(scratch / "tiny")
    _tiny_moe(scratch / "tiny-moe")
    _without(MISSING_WEIGHT, scratch / "tiny", scratch / "missing-norm")
    for model in ("tiny", "tiny-moe", "missing-norm"):
        shutil.rmtree(directory / model, ignore_errors=True)
        (scratch / model).rename(directory / model)
    scratch.rmdir()


if __name__ == "__main__":
    _make_here(Path(sys.argv[1]))
