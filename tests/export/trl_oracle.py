"""Read exported files with the libraries that train on them; runs in an environment of its own.

Called with FORMAT FILE; prints JSON: the rows as `datasets` gives them back, and the text that
TRL makes of each with a chat template that it ships.
"""

import json
import sys
import tempfile
from pathlib import Path

import trl
from datasets import Dataset, load_dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from trl import data_utils

TEMPLATE = Path(trl.__file__).parent / "chat_templates" / "qwen3_training.jinja"


def tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer that is good for nothing but applying a template."""
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a")))
    made.chat_template = TEMPLATE.read_text()
    return made


def main(kind: str, path: str) -> None:
    with tempfile.TemporaryDirectory() as cache:
        data: Dataset = load_dataset("json", data_files=path, split="train", cache_dir=cache)
        rows = [dict(row) for row in data]
    rows_before = json.loads(json.dumps(rows))
    if kind == "sharegpt":
        print(json.dumps({"rows": rows_before, "chat": [as_chatml(row) for row in rows]}))
        return
    assert all(data_utils.is_conversational(row) for row in rows)
    reader = tokenizer()
    texts = [data_utils.apply_chat_template(row, reader, row.get("tools")) for row in rows]
    told = {
        "rows": rows_before,
        "texts": texts,
        "columns": data_utils.get_dataset_column_names(data),
    }
    if kind == "dpo":
        plain = data.remove_columns([c for c in data.column_names if c not in PAIR])
        told["unpaired"] = list(data_utils.unpair_preference_dataset(plain))
        told["extracted"] = [data_utils.maybe_extract_prompt(row) for row in rows]
    print(json.dumps(told))


PAIR = ("prompt", "chosen", "rejected")


def as_chatml(row: dict) -> dict:
    assert data_utils.is_conversational_from_value(row)
    return data_utils.maybe_convert_to_chatml(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
