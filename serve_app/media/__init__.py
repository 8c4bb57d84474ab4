"""Images: fetched, decoded and resized, within limits and with what any sender could do in mind.

    addresses  which URLs and which addresses may be fetched
    fetch      one URL -> its bytes
    structure  bytes -> whether their pieces cost more than their pixels, before anything reads them
    header     bytes -> whether they are an image, how large it is, what decoding it costs
    decode     bytes -> RGB pixels as the model wants them
    loader     all images of a request: shared work, caches, what is in flight
    spec       how the model wants its pixels, read from the checkpoint

What they are made of: `clock` and `resolver` for fetches, `flights` for shared work, `semaphore` for what is in flight.

Plain asyncio and threads. One image's failure is a `MediaError`, which costs the others nothing.
"""
