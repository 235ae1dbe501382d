"""Writes rotary_frequencies.json: what Hugging Face transformers makes of a scaling.

    pip install transformers==5.24.0 torch
    python tests/goldens/make_rotary_frequencies.py

Frequencies are its `inv_freq`, computed in float32 with torch.
"""

import json
from pathlib import Path

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# our class and its arguments; the width, the base and the length; their names
CASES = [
    ("LinearScaling", {"scale": 4.0}, 20, 1e4, None, {"rope_type": "linear"}),
    ("DynamicNTKScaling", {"scale": 2.0, "original_length": 128}, 20, 1e4, 300,
     {"rope_type": "dynamic"}),
    ("DynamicNTKScaling", {"scale": 2.0, "original_length": 128}, 20, 1e4, 100,
     {"rope_type": "dynamic"}),
    ("YaRNScaling", {"scale": 8.0, "original_length": 128}, 20, 1e4, None,
     {"rope_type": "yarn"}),
    ("YaRNScaling", {"scale": 40.0, "original_length": 4096}, 64, 1e4, None,
     {"rope_type": "yarn"}),
    ("YaRNScaling", {"scale": 3.0, "original_length": 512, "beta_fast": 16.0,
                     "beta_slow": 2.0, "attention_factor": 1.25}, 20, 5e5, None,
     {"rope_type": "yarn", "beta_fast": 16.0, "beta_slow": 2.0,
      "attention_factor": 1.25}),
    ("YaRNScaling", {"scale": 32.0, "original_length": 4096,
                     "ramp": "exact_index"}, 64, 1.5e5, None,
     {"rope_type": "yarn", "truncate": False}),
    ("Llama3Scaling", {"scale": 8.0, "original_length": 8192}, 128, 5e5, None,
     {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    ("Llama3Scaling", {"scale": 5.0, "original_length": 512,
                       "low_frequency_factor": 2.0, "high_frequency_factor": 7.0},
     20, 1e4, None,
     {"rope_type": "llama3", "low_freq_factor": 2.0, "high_freq_factor": 7.0}),
]  # fmt: skip


def main():
    cases = []
    for scaling, arguments, width, base, length, parameters in CASES:
        original = arguments.get("original_length", 128)
        config = transformers.LlamaConfig(
            hidden_size=2 * width,
            num_attention_heads=2,
            max_position_embeddings=original,
            rope_parameters={
                "rope_theta": base,
                "factor": arguments["scale"],
                "original_max_position_embeddings": original,
                **parameters,
            },
        )
        make = ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
        theta, gain = make(config, torch.device("cpu"), seq_len=length)
        case = {
            "scaling": scaling,
            "arguments": arguments,
            "rotary_dim": width,
            "max_wavelength": base,
            "length": length,
            "gain": gain,
            "frequencies": [float(f"{x:.9g}") for x in theta.tolist()],
        }
        cases.append(json.dumps(case))
    source = f"transformers {transformers.__version__}, torch {torch.__version__}"
    text = ",\n".join(cases)
    path = Path(__file__).with_name("rotary_frequencies.json")
    path.write_text(f'{{"source": "{source}", "cases": [\n{text}\n]}}\n')


if __name__ == "__main__":
    main()
