"""The examples that the check asserts and the model cards show."""

from __future__ import annotations

BOOTS_QUERY = "waterproof hiking boots for winter"
REFUND_QUERY = "how do I get my money back"
CAPITAL_QUERY = "capital of france"

SHOP_DOCUMENTS = (
    "Insulated waterproof boots for winter hiking, warm lining and a grippy sole.",
    "Light mesh running shoes for summer roads.",
    "How to return an order: print the label and drop the parcel within 30 days.",
    "Leather ankle boots for the office.",
    "Waterproof phone case with a strap.",
    "Wool socks that keep your feet warm on winter walks.",
)
RETURN_ARTICLE = 2  # its place in SHOP_DOCUMENTS

CAPITAL_DOCUMENTS = (
    "Paris is the capital and largest city of France.",
    "Berlin is the capital of Germany.",
    "The giant panda eats bamboo.",
)

# Sentence and the label which it obviously has.
INTENT_SENTENCES = (
    ("red running shoes for women", "product_search"),
    ("Where is my parcel? It should have arrived yesterday.", "order_status"),
    ("I want to send these shoes back and get a refund", "returns"),
    ("I forgot my password and cannot log in", "account"),
    ("What time do you open on Saturday?", "store_info"),
)
