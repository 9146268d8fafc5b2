"""Tokenizers made on the spot and a backend that says what it is told to: text without a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence as TokenIds
from functools import cache
from typing import Any, NamedTuple

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.errors import StepError
from nanovllm.llm.generator import TextGenerator
from nanovllm.llm.text_engine import TextEngine
from nanovllm.trace.events import Emit, RequestId

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "Ein süßer Käse; größer wäre größenwahnsinnig. Ça va? Où ça? Là-bas, garçon!",
    "快速的棕色狐狸跳过懒狗。 すばやい茶色の狐はのろまな犬を飛び越える。",
    "Emoji: 🙂🙃🚀👩‍👩‍👧 and   several   spaces,\n\nnew lines\tand tabs.",
]
END, TURN = "<|end|>", "<|turn|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ('user', 'assistant') %}{{ raise_exception('no such role') }}{% endif %}"
    "<|turn|>{{ message['role'] }}: {{ message['content'] }}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant:{% if shout %} LOUD{% endif %}{% endif %}"
)


class PlainTokenizer:
    """A tokenizer of the ``tokenizers`` library as ``nanovllm.llm.tokenizer.Tokenizer``, without transformers."""

    def __init__(self, tokenizer: Tokenizer, chat_template: str | None = None) -> None:
        self.inner = tokenizer
        self.chat_template = chat_template
        self.eos_token_id = tokenizer.token_to_id(END)

    def encode(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> list[int]:
        return self.inner.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(
        self, token_ids: TokenIds[int], *, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        return self.inner.decode(list(token_ids), skip_special_tokens=skip_special_tokens)

    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int | None]:
        return [self.inner.token_to_id(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: int) -> str:
        return self.inner.id_to_token(ids)

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, **options: Any) -> str:
        from jinja2 import Environment, TemplateError

        def raise_exception(message: str) -> None:
            raise TemplateError(message)

        template = Environment().from_string(options.pop("chat_template", None) or self.chat_template)
        return template.render(messages=conversation, raise_exception=raise_exception, **options)


def train_byte_level() -> Tokenizer:
    """Like GPT-2, Llama 3, Qwen: bytes, merged."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480,
        special_tokens=[END, TURN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def train_byte_fallback() -> Tokenizer:
    """Like Llama 2, Mistral, Gemma: characters, merged, and bytes for what is no known character."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS[:2], trainers.BpeTrainer(vocab_size=200, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    tokens = ["<unk>", END, TURN, *byte_tokens, *model["vocab"]]
    merges = [tuple(merge) for merge in model["merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", END, TURN])
    return tokenizer


def train_word_pieces() -> Tokenizer:
    """Like BERT: words, and pieces of words that join the piece before."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["<unk>", END, TURN], show_progress=False)
    tokenizer.train_from_iterator(CORPUS[:2], trainer)
    return tokenizer


def train_metaspace() -> Tokenizer:
    """Like T5 and XLNet: the decoder drops the first token's leading space."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>", END, TURN], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS[:2], trainer)
    return tokenizer


KINDS: Mapping[str, Callable[[], Tokenizer]] = {
    "byte level": train_byte_level,
    "byte fallback": train_byte_fallback,
    "word pieces": train_word_pieces,
    "metaspace": train_metaspace,
}


@cache
def tokenizer(kind: str = "byte level") -> PlainTokenizer:
    """One tokenizer of each of ``KINDS``."""
    return PlainTokenizer(KINDS[kind](), CHAT_TEMPLATE)


class ScriptedBackend:
    """Says what the request's script says, token by token; without a script, the prompt again and again.

    ``on_call``: called at the start of each ``execute``, with the number of the call.
    """

    name = "scripted"

    def __init__(
        self,
        scripts: Mapping[RequestId, TokenIds[int]],
        num_kv_blocks: int,
        on_call: Callable[[int], object] = lambda call: None,
    ) -> None:
        self.scripts = scripts
        self.num_kv_blocks = num_kv_blocks
        self.on_call = on_call
        self.num_calls = 0
        self.is_closed = False

    def execute(self, batch: ScheduledBatch) -> list[int]:
        self.num_calls += 1
        self.on_call(self.num_calls - 1)
        tokens: list[int] = []
        for seq in batch.sequences:
            assert seq.request_id is not None
            script = self.scripts.get(seq.request_id, seq.prompt_token_ids)
            tokens.append(script[seq.num_completion_tokens % len(script)])
        return tokens

    def close(self) -> None:
        self.is_closed = True


class EarlyScriptedBackend(ScriptedBackend):
    """The same, given steps early. ``on_call`` is called when a step is submitted, ``on_result`` when it is asked for,
    both with the number of the step."""

    def __init__(
        self,
        scripts: Mapping[RequestId, TokenIds[int]],
        num_kv_blocks: int,
        on_call: Callable[[int], object] = lambda call: None,
        on_result: Callable[[int], object] = lambda call: None,
    ) -> None:
        super().__init__(scripts, num_kv_blocks, on_call)
        self.on_result = on_result

    def submit(self, batch: ScheduledBatch) -> EarlyStep:
        return EarlyStep(self, self.num_calls, super().execute(batch))


class EarlyStep(NamedTuple):
    backend: EarlyScriptedBackend
    call: int
    tokens: list[int]

    def result(self) -> list[int]:
        self.backend.on_result(self.call)
        return self.tokens


def make_generator(
    scripts: Mapping[RequestId, TokenIds[int]] | None = None,
    *,
    kind: str = "byte level",
    num_blocks: int = 64,
    on_call: Callable[[int], object] = lambda call: None,
    on_result: Callable[[int], object] = lambda call: None,
    is_early: bool = False,
    emit: Emit | None = None,
    **options: Any,
) -> TextGenerator:
    """A generator whose requests 0, 1, ... say what ``scripts`` holds for them. ``is_early``: its backend takes steps
    early, so that its engine looks ahead."""
    chosen = tokenizer(kind)
    config = Config(**{"kvcache_block_size": 4, "max_model_len": 200, "eos": chosen.eos_token_id, **options})
    if is_early:
        backend = EarlyScriptedBackend(scripts or {}, num_blocks, on_call, on_result)
    else:
        backend = ScriptedBackend(scripts or {}, num_blocks, on_call)
    engine = TextEngine(config, backend, chosen, emit=emit, vocab_size=chosen.inner.get_vocab_size())
    return TextGenerator(engine, chosen)


def assert_nothing_left(generator: TextGenerator) -> None:
    """No request, no output and no block is held by anyone."""
    engine = generator.engine
    assert not engine.live
    assert not engine.outputs
    assert engine.scheduler.is_finished()
    assert engine.scheduler.block_manager.num_free_blocks == engine.config.num_kvcache_blocks


def failing_on(call: int) -> Callable[[int], None]:
    """For ``on_call``: that call cannot be computed."""

    def fail(current: int) -> None:
        if current == call:
            raise StepError("out of memory")

    return fail
