"""Short texts to learn, and the files that TensorFlow Datasets keeps a text in."""

import json

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from tensorflow_datasets.proto import tf_example_pb2

from olsgd_jax.training.data.dataset import text_dataset

ALPHABET = "\nabcdefg"
# A small language model and its data, for configs.
SMALL = {
    "dataset": "verses",
    "model": "transformer",
    "context": 6,
    "width": 8,
    "depth": 1,
    "num_heads": 2,
    "batch_size": 4,
    "optimizer": "adamw",
    "learning_rate": 0.02,
    "weight_decay": 0.0,
}


def verses(num_train=400, num_test=40):
    """A text in which the next character mostly follows from the last one."""
    random = np.random.default_rng(0)
    steps = np.where(random.random(num_train + num_test) < 0.9, 1, 3)
    tokens = (np.cumsum(steps) % len(ALPHABET)).astype(np.int32)
    return text_dataset(tokens[:num_train], tokens[num_train:], ALPHABET)


def write_shakespeare(root, texts):
    """Writes a text for every split."""
    directory = root / "tiny_shakespeare" / "1.0.0"
    directory.mkdir(parents=True)
    info = {
        "name": "tiny_shakespeare",
        "version": "1.0.0",
        "fileFormat": "array_record",
        "splits": [
            {
                "name": split,
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "shardLengths": ["1"],
                "numBytes": "1",
            }
            for split in texts
        ],
    }
    (directory / "dataset_info.json").write_text(json.dumps(info))
    module = "tensorflow_datasets.core.features"
    text_feature = {"pythonClassName": f"{module}.text_feature.Text", "text": {}}
    features = {
        "pythonClassName": f"{module}.features_dict.FeaturesDict",
        "featuresDict": {"features": {"text": text_feature}},
    }
    (directory / "features.json").write_text(json.dumps(features))
    for split, text in texts.items():
        file = f"tiny_shakespeare-{split}.array_record-00000-of-00001"
        writer = ArrayRecordWriter(str(directory / file), "group_size:1")
        example = tf_example_pb2.Example()
        example.features.feature["text"].bytes_list.value.append(text.encode())
        writer.write(example.SerializeToString())
        writer.close()
    return directory
