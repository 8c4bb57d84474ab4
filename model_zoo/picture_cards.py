"""Writes ``metrics.json`` and the model card of both image models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model_zoo.cards import REPRODUCIBILITY, table, write
from model_zoo.check import example_relevance, example_similarities
from model_zoo.pictures import HELD_OUT

_WAYS = ("text_to_picture", "picture_to_text")

CLIP_CARD = """# clip-mini

A small dual encoder of pictures and texts in the format of CLIP: `CLIPModel`, a text tower of 2 layers and a vision
tower of 3, hidden size and projection 128, 4 heads, pictures of 64 × 64 pixels in patches of 8, {vocabulary} word
pieces, at most 32 tokens, float32. A picture and a text become unit vectors; their cosine says how well they fit.

It exists so that picture search can run and be tested on a laptop CPU. It knows pictures of coloured shapes, as drawn
by `model_zoo/pictures.py`, and English captions of them; it says nothing about photographs.

## Use

```python
import torch
from transformers import CLIPModel, CLIPProcessor

from model_zoo.pictures import draw, example_scenes

model = CLIPModel.from_pretrained("model_zoo/clip-mini")
processor = CLIPProcessor.from_pretrained("model_zoo/clip-mini")
pictures = [draw(scene) for scene in example_scenes().values()]
with torch.inference_mode():
    inputs = processor(text=["a red circle"], images=pictures, padding=True, return_tensors="pt")
    print(model(**inputs).logits_per_text.softmax(-1))
```

Cosines of this checkpoint (rows: texts; columns: the pictures that these texts describe, in the same order):

{examples}

## What it learnt from

{data}

The vision tower learnt alone at first ({patch_steps} steps of 32 pictures): linear heads told the shape and the
colour in every patch, which teaches shapes many times faster than captions do. Then both towers learnt together
({steps} steps of 64 pictures and captions) from a symmetric contrastive loss, in which pictures of which another's
caption happens to be true are left out. The heads are not part of the checkpoint.

## Held-out figures

{figures}

## Limits

{limits} A dual encoder squeezes a picture into one vector before it knows the text: which of two things has which
colour is where it fails most often, and where `fusion-mini` is better.

## Training

`python -m model_zoo.train_clip_mini` (seed {seed}, about ten minutes on one CPU core). {reproducibility}
"""

FUSION_CARD = """# fusion-mini

A small ranker of pictures by a text: `FusionRanker` (`serve_app/tasks/image_rank/reference.py`), the towers of
`clip-mini` with two fusion layers over them, in which the text's state attends to the picture's patches. It reads a
text and a picture together and returns one logit; its sigmoid is the relevance between 0 and 1. Pictures of 64 × 64
pixels in patches of 8, {vocabulary} word pieces, at most 32 tokens, float32.

It exists so that ranking pictures can run and be tested on a laptop CPU. It knows pictures of coloured shapes, as
drawn by `model_zoo/pictures.py`, and English captions of them; it says nothing about photographs.

## Use

```python
from pathlib import Path

from model_zoo.check import picture_relevance
from model_zoo.pictures import draw, example_scenes

pictures = [draw(scene) for scene in example_scenes().values()]
print(picture_relevance(Path("model_zoo/fusion-mini"), ["a red circle"], pictures))
```

Scores of this checkpoint (rows: texts; columns: the pictures that these texts describe, in the same order):

{examples}

## What it learnt from

{data}

A pair's target is 1 when the caption is true of the picture, else 0. The loss is binary cross-entropy, in which true
pairs, false pairs of near misses and all other false pairs weigh the same, plus a listwise cross-entropy. The vision
tower stayed as it was in `clip-mini` for {head_steps} steps of 64 pictures and captions, all pairs of which were
scored; then everything learnt for {steps} steps.

## Held-out figures

{figures}

How its scores spread over the pairs of these lists: the share of first pictures that score above 0.5 for the first
caption is {true_above:.1%} held out and {familiar_true_above:.1%} familiar; the share of the other pictures that
score below 0.5 is {false_below:.1%} and {familiar_false_below:.1%}.

## Limits

{limits}

## Training

`python -m model_zoo.train_fusion_mini` (seed {seed}, about ten minutes on one CPU core, after `clip-mini`).
{reproducibility}
"""

PICTURE_DATA = """{pictures:,} pictures drawn by `model_zoo/pictures.py`, with fresh captions from
`model_zoo/captions.py` at every use; nothing was downloaded. A picture shows one thing, two things, or two to four
things of one kind: eight shapes in nine colours, small or large, at nine places, on dark or light backgrounds that
are plain, graded, striped, grainy or dotted, some with lines and dots that mean nothing, some with the traces of
JPEG. Pictures come in families of four that differ in one respect (a colour, a shape, a size, a place, a number,
swapped colours). Captions name a few of these, in synonyms and several word orders. A caption is true when each thing
it names is there; more things do not make it untrue."""

PICTURE_FIGURES = """Share of lists in which the right one of eight comes first (chance: 12.5%). In a list for an
attribute the other seven pictures differ from the right one in this attribute alone; *swapped colours* has two things
per picture and others in which their colours are swapped or one thing is another; in *mixed* lists the others show
anything. *Text to picture*: one caption, eight pictures. *Picture to text*: one picture, the captions of all eight.
*Held out*: the right picture shows (colour, shape) combinations that no training picture did ({held_out}).
*Familiar*: fresh pictures of the other combinations. There are {lists} lists of each sort.

{table}"""

PICTURE_LIMITS = """Small stars, crosses and hearts have about ten pixels and are mistaken for each other. Places are
nine exact ones: "on the left" means the middle of the left edge and not its corners. Words outside the captions'
vocabulary are spelled in characters and mean nothing; relations ("left of") were not trained."""


def _picture_parts(report: Mapping[str, Any], scores: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """What both cards of image models show: examples, data, figures, limits."""
    rows = []
    for split in ("held_out", "familiar"):
        for kind, values in report[split].items():
            rows.append([split.replace("_", " "), kind, *(f"{values[way]:.1%}" for way in _WAYS)])
    columns = [str(number) for number, _ in enumerate(scores, 1)]
    examples_table = [[text, *(f"{score:.2f}" for score in row)] for text, row in scores.items()]
    held_out = ", ".join(f"{colour} {shape}" for colour, shape in sorted(HELD_OUT))
    figures = table(["pictures", "list", *(way.replace("_", " ") for way in _WAYS)], rows)
    return {
        "examples": table(["", *columns], examples_table),
        "data": PICTURE_DATA.format(**report["training"]),
        "figures": PICTURE_FIGURES.format(held_out=held_out, lists=report["training"]["lists"], table=figures),
        "limits": PICTURE_LIMITS,
        "reproducibility": REPRODUCIBILITY,
        **report["training"],
    }


def write_clip_card(folder: Path, report: Mapping[str, Any]) -> None:
    """Write the figures and the card of the dual encoder saved in ``folder``."""
    write(folder, report, CLIP_CARD.format(**_picture_parts(report, example_similarities(folder))))


def write_fusion_card(folder: Path, report: Mapping[str, Any]) -> None:
    """Write the figures and the card of the picture ranker saved in ``folder``."""
    spread = {
        "true_above": report["spread"]["held_out"]["true_above_0.5"],
        "false_below": report["spread"]["held_out"]["false_below_0.5"],
        "familiar_true_above": report["spread"]["familiar"]["true_above_0.5"],
        "familiar_false_below": report["spread"]["familiar"]["false_below_0.5"],
    }
    write(folder, report, FUSION_CARD.format(**_picture_parts(report, example_relevance(folder)), **spread))
