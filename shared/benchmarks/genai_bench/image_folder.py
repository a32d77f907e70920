"""Images as genai-bench reads them: a folder in the layout of Hugging Face's datasets.

It draws images out of the folder, again and again, with the texts that stand beside them.
"""

import csv
import random
from pathlib import Path
from typing import Final

import msgspec

from schemas.task.benchmark import BenchmarkSpec
from shared.benchmarks.images import draw_image
from shared.benchmarks.traffic import IMAGE_PROMPT_TOKENS, make_prompt, parse_scenario

MAX_IMAGES: Final = 256
MAX_PIXELS: Final = 200_000_000  # of all together: seconds of work, and 10 MB
CONFIGURATION: Final = "images.json"


def write_images(folder: Path, spec: BenchmarkSpec, rng: random.Random) -> Path:
    """Write an image for each request of a level, as far as there are not too many; return the file
    that tells genai-bench of them.
    """
    sizes = [parse_scenario(scenario)(rng) for scenario in spec.traffic_scenarios]
    # It makes each as large as the scenario says, and joins the texts of all of a request.
    size = max(sizes, key=lambda size: size.image_size[0] * size.image_size[1])
    pixels = size.image_size[0] * size.image_size[1]
    most = min(MAX_IMAGES, max(size.num_items, MAX_PIXELS // pixels))
    words = max(1, IMAGE_PROMPT_TOKENS // size.num_items)
    folder.mkdir()
    with (folder / "metadata.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file_name", "text"])
        for number in range(min(most, spec.max_requests_per_level * size.num_items)):
            name = f"{number:04}.png"
            (folder / name).write_bytes(draw_image(*size.image_size, rng))
            writer.writerow([name, make_prompt(words, rng)])
    # Beside the folder's images, whose reader would take it for one of them.
    path = folder.with_name(CONFIGURATION)
    columns = {"image_column": "image", "prompt_column": "text"}
    source = {"type": "huggingface", "path": str(folder)}
    path.write_bytes(msgspec.json.encode({"source": source, **columns}))
    return path
