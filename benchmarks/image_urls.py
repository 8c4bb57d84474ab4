"""Which images a request asks for: sizes by chance, delay as told, names that never occur twice."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class ImageUrls:
    """A stream of URLs of an `ImageServer`, determined by its seed alone.

    Attributes:
        origin: the server's.
        seed: part of every name; streams of different seeds share no URL.
        large_share: share of images of about 12 megapixels; the others have about 500 x 400 pixels.
        delay_ms: time that the server waits before it answers.
    """

    origin: str
    seed: str
    large_share: float = 0.0
    delay_ms: int = 0
    _count: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def take(self, count: int) -> list[str]:
        """The next URLs. The share of large images holds within one image for every stretch, not only on average."""
        urls = []
        for _ in range(count):
            self._count += 1
            large = int(self._count * self.large_share) > int((self._count - 1) * self.large_share)
            size = "large" if large else "small"
            urls.append(f"{self.origin}/{size}/{self.delay_ms}/{self.seed.replace('/', '-')}-{self._count}.jpg")
        self._random.shuffle(urls)
        return urls
