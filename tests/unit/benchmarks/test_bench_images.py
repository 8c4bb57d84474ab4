"""Pictures, their URLs, and the server that has them."""

from __future__ import annotations

import io
import urllib.error
import urllib.request

import pytest
from PIL import Image

from benchmarks.image_server import ImageServer, Pool
from benchmarks.image_urls import ImageUrls
from benchmarks.pictures import SIZES, picture, with_comment


def test_a_seed_gives_the_same_picture_and_another_seed_another() -> None:
    assert picture("small", 1) == picture("small", 1)
    assert picture("small", 1) != picture("small", 2)
    assert Image.open(io.BytesIO(picture("small", 1))).size == SIZES["small"]


def test_a_photograph_weighs_what_a_photograph_weighs() -> None:
    assert 30_000 < len(picture("small", 0)) < 150_000


def test_a_comment_changes_the_bytes_and_not_the_picture() -> None:
    jpeg = picture("small", 3)
    other = with_comment(jpeg, "name")
    assert other != jpeg
    assert b"name" in other
    pictures = [Image.open(io.BytesIO(data)).tobytes() for data in (jpeg, other)]
    assert pictures[0] == pictures[1]


def test_a_name_always_has_the_same_bytes_and_no_two_names_share_them() -> None:
    pool = Pool.make({"small": 2}, seed=0)
    assert pool.serve("small", "a") == pool.serve("small", "a")
    assert len({pool.serve("small", str(i)) for i in range(20)}) == 20
    with pytest.raises(KeyError):
        pool.serve("large", "a")


def test_urls_are_new_and_have_the_share_of_large_ones_in_every_stretch() -> None:
    urls = ImageUrls("http://h", "seed/1", large_share=0.1, delay_ms=7)
    taken = [urls.take(20) for _ in range(5)]
    assert [sum("/large/7/" in url for url in request) for request in taken] == [2] * 5
    flat = [url for request in taken for url in request]
    assert len(set(flat)) == 100
    assert not set(flat) & set(ImageUrls("http://h", "seed/2", 0.1, 7).take(100))
    assert flat[:20] == ImageUrls("http://h", "seed/1", 0.1, 7).take(20)
    assert all(len(url.removeprefix("http://h/").split("/")) == 3 for url in flat), "a seed must not add a folder"


def test_the_server_serves_its_pool_from_another_process() -> None:
    with ImageServer(variety={"small": 1}, seed=5) as server:
        wanted = Pool.make({"small": 1}, seed=5)
        with urllib.request.urlopen(f"{server.url}/small/0/x.jpg", timeout=10) as answer:
            assert answer.read() == wanted.serve("small", "x")
            assert answer.headers["Content-Type"] == "image/jpeg"
        assert server.mean_bytes == wanted.mean_bytes
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{server.url}/large/0/x.jpg", timeout=10)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{server.url}/small/0/x.jpg", timeout=2)
