"""A few made-up images in the files that TensorFlow Datasets keeps CIFAR-10 in."""

import io
import json

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter
from PIL import Image
from tensorflow_datasets.proto import tf_example_pb2

NUM_EXAMPLES = {"train": 25, "test": 12}


def images_and_labels(split, seed=0):
    random = np.random.default_rng([seed, len(split)])
    size = NUM_EXAMPLES[split]
    images = random.integers(0, 256, (size, 32, 32, 3), dtype=np.uint8)
    return images, random.integers(0, 10, size, dtype=np.int32)


def write_cifar10(root, version="3.0.2", seed=0):
    """Writes both splits, their examples in an order of their own."""
    directory = root / "cifar10" / version
    directory.mkdir(parents=True, exist_ok=True)
    info = {
        "name": "cifar10",
        "version": version,
        "fileFormat": "array_record",
        "splits": [
            {
                "name": split,
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "shardLengths": [str(size)],
                "numBytes": "1",
            }
            for split, size in NUM_EXAMPLES.items()
        ],
    }
    (directory / "dataset_info.json").write_text(json.dumps(info))
    for split, size in NUM_EXAMPLES.items():
        images, labels = images_and_labels(split, seed)
        order = np.random.default_rng(1).permutation(size)
        write_records(
            directory, split, [(i, images[i], labels[i]) for i in order.tolist()]
        )
    return directory


def write_records(directory, split, examples):
    path = directory / f"cifar10-{split}.array_record-00000-of-00001"
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for number, image, label in examples:
        png = io.BytesIO()
        Image.fromarray(image).save(png, "PNG")
        example = tf_example_pb2.Example()
        feature = example.features.feature
        feature["id"].bytes_list.value.append(f"{split}_{number:05d}".encode())
        feature["image"].bytes_list.value.append(png.getvalue())
        feature["label"].int64_list.value.append(int(label))
        writer.write(example.SerializeToString())
    writer.close()
