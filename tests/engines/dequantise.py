"""Turn the GGUF file of a Llama into a float32 folder that engines serve; runs in the engine's own environment.

python dequantise.py FILE.gguf FOLDER
"""

import sys
from pathlib import Path

import torch
import transformers


def main(gguf: Path, folder: Path) -> None:
    loaded = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = loaded.config
    del config.quantization_config  # a model that came out of GGUF cannot be saved; a fresh one with its weights can
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
