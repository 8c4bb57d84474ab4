"""Out-of-tree models: image encoders that take ready uint8 pixels, and the fusion ranker."""
