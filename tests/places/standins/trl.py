"""Its trainers are those of transformers."""
from transformers import SFTConfig, SFTTrainer  # noqa: F401
