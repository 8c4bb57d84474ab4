from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FloatFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FLOAT_FORMAT_UNSPECIFIED: _ClassVar[FloatFormat]
    FLOAT_FORMAT_FLOAT32: _ClassVar[FloatFormat]
    FLOAT_FORMAT_FLOAT16: _ClassVar[FloatFormat]
FLOAT_FORMAT_UNSPECIFIED: FloatFormat
FLOAT_FORMAT_FLOAT32: FloatFormat
FLOAT_FORMAT_FLOAT16: FloatFormat

class Image(_message.Message):
    __slots__ = ("url", "data")
    URL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    url: str
    data: bytes
    def __init__(self, url: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class Item(_message.Message):
    __slots__ = ("text", "image")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    text: str
    image: Image
    def __init__(self, text: _Optional[str] = ..., image: _Optional[_Union[Image, _Mapping]] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class EmbedInput(_message.Message):
    __slots__ = ("text", "image", "tokens")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    text: str
    image: Image
    tokens: TokenIds
    def __init__(self, text: _Optional[str] = ..., image: _Optional[_Union[Image, _Mapping]] = ..., tokens: _Optional[_Union[TokenIds, _Mapping]] = ...) -> None: ...

class TextInput(_message.Message):
    __slots__ = ("text", "tokens")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: TokenIds
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[_Union[TokenIds, _Mapping]] = ...) -> None: ...

class RerankRequest(_message.Message):
    __slots__ = ("model", "query", "documents", "top_n", "return_documents", "raw_scores", "truncate", "truncate_prompt_tokens", "max_tokens_per_doc", "max_chunks_per_doc", "instruction")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    TOP_N_FIELD_NUMBER: _ClassVar[int]
    RETURN_DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    RAW_SCORES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_PER_DOC_FIELD_NUMBER: _ClassVar[int]
    MAX_CHUNKS_PER_DOC_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    model: str
    query: Item
    documents: _containers.RepeatedCompositeFieldContainer[Item]
    top_n: int
    return_documents: bool
    raw_scores: bool
    truncate: bool
    truncate_prompt_tokens: int
    max_tokens_per_doc: int
    max_chunks_per_doc: int
    instruction: str
    def __init__(self, model: _Optional[str] = ..., query: _Optional[_Union[Item, _Mapping]] = ..., documents: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., top_n: _Optional[int] = ..., return_documents: _Optional[bool] = ..., raw_scores: _Optional[bool] = ..., truncate: _Optional[bool] = ..., truncate_prompt_tokens: _Optional[int] = ..., max_tokens_per_doc: _Optional[int] = ..., max_chunks_per_doc: _Optional[int] = ..., instruction: _Optional[str] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ("model", "queries", "documents", "raw_scores", "truncate", "truncate_prompt_tokens", "max_tokens_per_doc", "instruction")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    RAW_SCORES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_PER_DOC_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    model: str
    queries: _containers.RepeatedCompositeFieldContainer[Item]
    documents: _containers.RepeatedCompositeFieldContainer[Item]
    raw_scores: bool
    truncate: bool
    truncate_prompt_tokens: int
    max_tokens_per_doc: int
    instruction: str
    def __init__(self, model: _Optional[str] = ..., queries: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., documents: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., raw_scores: _Optional[bool] = ..., truncate: _Optional[bool] = ..., truncate_prompt_tokens: _Optional[int] = ..., max_tokens_per_doc: _Optional[int] = ..., instruction: _Optional[str] = ...) -> None: ...

class EmbedRequest(_message.Message):
    __slots__ = ("model", "input", "format", "dimensions", "normalize", "input_type", "truncate", "truncate_prompt_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    INPUT_TYPE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    input: _containers.RepeatedCompositeFieldContainer[EmbedInput]
    format: FloatFormat
    dimensions: int
    normalize: bool
    input_type: str
    truncate: bool
    truncate_prompt_tokens: int
    def __init__(self, model: _Optional[str] = ..., input: _Optional[_Iterable[_Union[EmbedInput, _Mapping]]] = ..., format: _Optional[_Union[FloatFormat, str]] = ..., dimensions: _Optional[int] = ..., normalize: _Optional[bool] = ..., input_type: _Optional[str] = ..., truncate: _Optional[bool] = ..., truncate_prompt_tokens: _Optional[int] = ...) -> None: ...

class ClassifyRequest(_message.Message):
    __slots__ = ("model", "input", "raw_scores", "truncate", "truncate_prompt_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    RAW_SCORES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    input: _containers.RepeatedCompositeFieldContainer[TextInput]
    raw_scores: bool
    truncate: bool
    truncate_prompt_tokens: int
    def __init__(self, model: _Optional[str] = ..., input: _Optional[_Iterable[_Union[TextInput, _Mapping]]] = ..., raw_scores: _Optional[bool] = ..., truncate: _Optional[bool] = ..., truncate_prompt_tokens: _Optional[int] = ...) -> None: ...

class AbsaRequest(_message.Message):
    __slots__ = ("model", "inputs", "aspects", "threshold", "truncate")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    ASPECTS_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    model: str
    inputs: _containers.RepeatedScalarFieldContainer[str]
    aspects: _containers.RepeatedScalarFieldContainer[str]
    threshold: float
    truncate: bool
    def __init__(self, model: _Optional[str] = ..., inputs: _Optional[_Iterable[str]] = ..., aspects: _Optional[_Iterable[str]] = ..., threshold: _Optional[float] = ..., truncate: _Optional[bool] = ...) -> None: ...

class ModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ItemError(_message.Message):
    __slots__ = ("index", "code", "message")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    index: int
    code: str
    message: str
    def __init__(self, index: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class RankedDocument(_message.Message):
    __slots__ = ("index", "relevance_score", "truncated", "document")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    RELEVANCE_SCORE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    index: int
    relevance_score: float
    truncated: bool
    document: Item
    def __init__(self, index: _Optional[int] = ..., relevance_score: _Optional[float] = ..., truncated: _Optional[bool] = ..., document: _Optional[_Union[Item, _Mapping]] = ...) -> None: ...

class RerankResponse(_message.Message):
    __slots__ = ("results", "errors", "prompt_tokens", "model", "model_version", "request_id", "timings")
    class TimingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RankedDocument]
    errors: _containers.RepeatedCompositeFieldContainer[ItemError]
    prompt_tokens: int
    model: str
    model_version: str
    request_id: str
    timings: _containers.ScalarMap[str, float]
    def __init__(self, results: _Optional[_Iterable[_Union[RankedDocument, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[ItemError, _Mapping]]] = ..., prompt_tokens: _Optional[int] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., request_id: _Optional[str] = ..., timings: _Optional[_Mapping[str, float]] = ...) -> None: ...

class PairScore(_message.Message):
    __slots__ = ("index", "score", "truncated")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    index: int
    score: float
    truncated: bool
    def __init__(self, index: _Optional[int] = ..., score: _Optional[float] = ..., truncated: _Optional[bool] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("data", "errors", "prompt_tokens", "model", "model_version", "request_id", "timings")
    class TimingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    DATA_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[PairScore]
    errors: _containers.RepeatedCompositeFieldContainer[ItemError]
    prompt_tokens: int
    model: str
    model_version: str
    request_id: str
    timings: _containers.ScalarMap[str, float]
    def __init__(self, data: _Optional[_Iterable[_Union[PairScore, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[ItemError, _Mapping]]] = ..., prompt_tokens: _Optional[int] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., request_id: _Optional[str] = ..., timings: _Optional[_Mapping[str, float]] = ...) -> None: ...

class EmbedResponse(_message.Message):
    __slots__ = ("vectors", "errors", "prompt_tokens", "dimensions", "format", "truncated", "model", "model_version", "request_id", "timings")
    class TimingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    vectors: _containers.RepeatedScalarFieldContainer[bytes]
    errors: _containers.RepeatedCompositeFieldContainer[ItemError]
    prompt_tokens: int
    dimensions: int
    format: FloatFormat
    truncated: _containers.RepeatedScalarFieldContainer[int]
    model: str
    model_version: str
    request_id: str
    timings: _containers.ScalarMap[str, float]
    def __init__(self, vectors: _Optional[_Iterable[bytes]] = ..., errors: _Optional[_Iterable[_Union[ItemError, _Mapping]]] = ..., prompt_tokens: _Optional[int] = ..., dimensions: _Optional[int] = ..., format: _Optional[_Union[FloatFormat, str]] = ..., truncated: _Optional[_Iterable[int]] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., request_id: _Optional[str] = ..., timings: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Classification(_message.Message):
    __slots__ = ("index", "label", "probs", "truncated")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PROBS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    index: int
    label: str
    probs: _containers.RepeatedScalarFieldContainer[float]
    truncated: bool
    def __init__(self, index: _Optional[int] = ..., label: _Optional[str] = ..., probs: _Optional[_Iterable[float]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class ClassifyResponse(_message.Message):
    __slots__ = ("data", "errors", "prompt_tokens", "labels", "model", "model_version", "request_id", "timings")
    class TimingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    DATA_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[Classification]
    errors: _containers.RepeatedCompositeFieldContainer[ItemError]
    prompt_tokens: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    model: str
    model_version: str
    request_id: str
    timings: _containers.ScalarMap[str, float]
    def __init__(self, data: _Optional[_Iterable[_Union[Classification, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[ItemError, _Mapping]]] = ..., prompt_tokens: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., request_id: _Optional[str] = ..., timings: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Sentiment(_message.Message):
    __slots__ = ("label", "score")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    label: str
    score: float
    def __init__(self, label: _Optional[str] = ..., score: _Optional[float] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("start", "end", "text", "aspect", "polarity", "score")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ASPECT_FIELD_NUMBER: _ClassVar[int]
    POLARITY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    text: str
    aspect: str
    polarity: str
    score: float
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., text: _Optional[str] = ..., aspect: _Optional[str] = ..., polarity: _Optional[str] = ..., score: _Optional[float] = ...) -> None: ...

class Opinions(_message.Message):
    __slots__ = ("index", "sentiment", "spans", "truncated")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SENTIMENT_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    index: int
    sentiment: Sentiment
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    truncated: bool
    def __init__(self, index: _Optional[int] = ..., sentiment: _Optional[_Union[Sentiment, _Mapping]] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class AbsaResponse(_message.Message):
    __slots__ = ("data", "errors", "prompt_tokens", "model", "model_version", "request_id", "timings")
    class TimingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    DATA_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    data: _containers.RepeatedCompositeFieldContainer[Opinions]
    errors: _containers.RepeatedCompositeFieldContainer[ItemError]
    prompt_tokens: int
    model: str
    model_version: str
    request_id: str
    timings: _containers.ScalarMap[str, float]
    def __init__(self, data: _Optional[_Iterable[_Union[Opinions, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[ItemError, _Mapping]]] = ..., prompt_tokens: _Optional[int] = ..., model: _Optional[str] = ..., model_version: _Optional[str] = ..., request_id: _Optional[str] = ..., timings: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("id", "version", "task", "state", "weight", "application")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: str
    task: str
    state: str
    weight: float
    application: str
    def __init__(self, id: _Optional[str] = ..., version: _Optional[str] = ..., task: _Optional[str] = ..., state: _Optional[str] = ..., weight: _Optional[float] = ..., application: _Optional[str] = ...) -> None: ...

class ModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...
