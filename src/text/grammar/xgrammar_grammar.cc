#include "text/grammar/xgrammar_grammar.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/log.h"
#include "text/grammar/automaton_matcher.h"

namespace choral::text {
namespace {

using tvm_ffi::Any;

constexpr int64_t kRawVocabulary = 0;   // tokens are given as the bytes they stand for
constexpr int64_t kMaxWhiteSpace = 64;  // as JsonLimits
constexpr std::string_view kRootRule = "root";
// Special tokens of some vocabularies, around thoughts and messages, that free text beside tool calls may hold, as it may where
// nothing is constrained.
constexpr std::array<std::string_view, 8> kReasoning = {"<think>", "</think>", "<|start|>",    "<|end|>",
                                                        "[THINK]", "[/THINK]", "<seed:think>", "</seed:think>"};

}  // namespace

class XgrammarCompiler::OwnMatcher final : public GrammarMatcher {
 public:
  OwnMatcher(const Shared& shared, FfiValue matcher)
      : shared_(shared), matcher_(std::move(matcher)), mask_(shared.vocabulary->words()) {
    if (shared.json) json_.emplace(shared.json, shared.vocabulary, shared.trie);
  }

  void fill_mask(std::span<uint32_t> words) override {
    if (!moved_ && shared_.first_mask) return copy_first_mask(words);
    std::fill(words.begin(), words.end(), 0);
    if (is_broken_) return;
    auto size = static_cast<int64_t>(mask_.size());
    tvm_ffi::Tensor tensor{mask_.data(), 1, 0, 1, 0, 32, 1, &size, nullptr, 0};
    std::array<Any, 4> arguments = {matcher_.view(), ffi_tensor(tensor), ffi_integer(0), ffi_boolean(false)};
    const auto filled = shared_.library->call(shared_.library->methods().fill_mask, arguments);
    if (!filled.ok()) return fail("a mask", filled.status());
    const std::vector<uint32_t>& text_mask = shared_.tokens->text_mask;
    const size_t common = std::min(words.size(), mask_.size());
    if (json_) {
      json_->fill_mask(words);
      for (size_t i = 0; i < common; ++i) words[i] &= mask_[i] & text_mask[i];
    } else {
      for (size_t i = 0; i < common; ++i) words[i] = mask_[i] & text_mask[i];
    }
    if (!complete()) return;
    for (const int32_t id : shared_.vocabulary->end_ids()) set_bit(words, id);
  }

  bool accept(int32_t token) override {
    if (shared_.vocabulary->is_end(token)) return complete();
    // First, for the library would complain on stderr.
    if (!has_bit(shared_.tokens->text_mask, token) || (json_ && !json_->fits(token))) return false;
    std::array<Any, 3> arguments = {matcher_.view(), ffi_integer(token), ffi_boolean(false)};
    const auto accepted = shared_.library->call(shared_.library->methods().accept_token, arguments);
    if (!accepted.ok()) fail("a token", accepted.status());
    if (!accepted.ok() || !accepted->is_true()) return false;
    moved_ = true;
    return !json_ || json_->accept(token);
  }

  void rollback(int32_t tokens) override {
    std::array<Any, 2> arguments = {matcher_.view(), ffi_integer(tokens)};
    const auto done = shared_.library->call(shared_.library->methods().rollback, arguments);
    if (!done.ok()) fail("what was taken back", done.status());
    is_broken_ |= !done.ok();
    if (json_) json_->rollback(tokens);
  }

  int32_t likely(std::span<int32_t> tokens) override {
    std::array<Any, 1> arguments = {matcher_.view()};
    const auto found = shared_.library->call(shared_.library->methods().forced_text, arguments);
    if (!found.ok()) return 0;
    std::string_view text = found->text();
    const auto& markers = shared_.tokens->markers;
    const auto marker = std::find_if(markers.begin(), markers.end(),
                                     [&](int32_t id) { return text.starts_with(shared_.vocabulary->special_text(id)); });
    if (marker == markers.end() || tokens.empty()) return write_tokens(text, *shared_.trie, tokens);
    tokens.front() = *marker;
    text.remove_prefix(shared_.vocabulary->special_text(*marker).size());
    return 1 + write_tokens(text, *shared_.trie, tokens.subspan(1));
  }

  bool complete() const override {
    if (json_ && !json_->complete()) return false;
    std::array<Any, 1> arguments = {matcher_.view()};
    const auto completed = shared_.library->call(shared_.library->methods().is_completed, arguments);
    if (!completed.ok()) fail("the end", completed.status());
    return completed.ok() && completed->is_true();
  }
  bool is_bounded() const override { return false; }  // ambiguous grammars cost more with every byte

 private:
  void copy_first_mask(std::span<uint32_t> words) const {
    const size_t common = std::min(words.size(), shared_.first_mask->size());
    std::copy_n(shared_.first_mask->begin(), common, words.begin());
    std::fill(words.begin() + static_cast<std::ptrdiff_t>(common), words.end(), 0);
  }
  // Our calls are right, so this is a fault of the library: the mask stays empty, which ends this answer alone.
  static void fail(std::string_view what, const Status& status) {
    CHORAL_LOG(kError, "xgrammar failed over {} of an answer: {}", what, status.message());
  }

  const Shared shared_;
  FfiValue matcher_;
  std::optional<AutomatonMatcher<JsonTextAutomaton>> json_;
  std::vector<uint32_t> mask_;
  bool moved_ = false;      // a token was accepted
  bool is_broken_ = false;  // it stands elsewhere than it should: nothing is allowed any more
};

class XgrammarCompiler::OwnGrammar final : public Grammar {
 public:
  OwnGrammar(Shared shared, FfiValue compiled) : shared_(std::move(shared)), compiled_(std::move(compiled)) {}

  Result<std::unique_ptr<GrammarMatcher>> matcher() const override { return make_matcher(); }

  // Computes the mask that every answer begins with, once for all of them. invalid_argument: it is empty, of a schema that leads
  // only to itself or a rule without an end, of which the library makes a grammar that takes nothing.
  Status begin() {
    CHORAL_TRY(const auto matcher, make_matcher());
    std::vector<uint32_t> words(shared_.vocabulary->words());
    matcher->fill_mask(words);
    if (!matcher->complete() && std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; })) {
      return invalid_argument("there is no text that this grammar, schema or expression allows");
    }
    shared_.first_mask = std::make_shared<const std::vector<uint32_t>>(std::move(words));
    return {};
  }

 private:
  Result<std::unique_ptr<GrammarMatcher>> make_matcher() const {
    // Own stop tokens, stop without one, tokens to roll back, temperature.
    std::array<Any, 5> arguments = {compiled_.view(), ffi_none(), ffi_boolean(false), ffi_integer(-1), ffi_none()};
    CHORAL_TRY(FfiValue made, shared_.library->call(shared_.library->methods().make_matcher, arguments));
    return std::unique_ptr<GrammarMatcher>(std::make_unique<OwnMatcher>(shared_, std::move(made)));
  }

  Shared shared_;
  FfiValue compiled_;
};

Result<std::unique_ptr<XgrammarCompiler>> XgrammarCompiler::create(std::shared_ptr<const XgrammarLibrary> library,
                                                                   std::shared_ptr<const GrammarVocabulary> vocabulary,
                                                                   std::shared_ptr<const JsonTokens> json_tokens) {
  std::unique_ptr<XgrammarCompiler> compiler(new XgrammarCompiler(std::move(library), std::move(vocabulary)));
  compiler->trie_ = json_tokens->all;
  compiler->json_ =
      std::make_shared<const JsonTextAutomaton>(JsonTextAutomaton::Top::kValue, JsonLimits(), std::move(json_tokens));
  CHORAL_TRY(compiler->plain_, compiler->make_tokens({}));
  return compiler;
}

Result<std::shared_ptr<const XgrammarCompiler::Tokens>> XgrammarCompiler::make_tokens(std::vector<int32_t> markers) const {
  auto tokens = std::make_shared<Tokens>();
  tokens->text_mask.resize(vocabulary_->words());
  // An empty text is what the library takes for a special token, which it never allows.
  std::vector<FfiValue> owned;
  owned.reserve(static_cast<size_t>(vocabulary_->size()));
  for (int32_t id = 0; id < vocabulary_->size(); ++id) {
    std::string_view text = vocabulary_->text(id);
    if (std::binary_search(markers.begin(), markers.end(), id)) {
      text = vocabulary_->special_text(id);
    }
    CHORAL_TRY(FfiValue value, library_->bytes(text));
    owned.push_back(std::move(value));
    if (!text.empty()) set_bit(tokens->text_mask, id);
  }
  const auto array_of = [this](std::span<const FfiValue> values) {
    std::vector<Any> views;
    views.reserve(values.size());
    for (const FfiValue& value : values) views.push_back(value.view());
    return library_->array(views);
  };
  std::vector<FfiValue> ends;
  for (const int32_t id : vocabulary_->end_ids()) ends.emplace_back(ffi_integer(id), nullptr);
  CHORAL_TRY(const FfiValue texts, array_of(owned));
  CHORAL_TRY(const FfiValue end_ids, array_of(ends));
  const int64_t size = vocabulary_->size();
  std::array<Any, 5> arguments = {texts.view(), ffi_integer(kRawVocabulary), ffi_integer(size), end_ids.view(),
                                  ffi_boolean(false)};
  CHORAL_TRY(tokens->info, library_->call(library_->methods().make_tokenizer, arguments));
  std::array<Any, 1> self = {tokens->info.view()};
  CHORAL_TRY(const FfiValue taken, library_->call(library_->methods().tokenizer_size, self));
  if (taken.integer() != size) return unsupported("xgrammar took {} of {} tokens", taken.integer(), size);
  tokens->markers = std::move(markers);
  return std::shared_ptr<const Tokens>(std::move(tokens));
}

Result<std::shared_ptr<const XgrammarCompiler::Tokens>> XgrammarCompiler::tokens_for(const StructuredOutput& wanted) const {
  std::vector<int32_t> markers;
  if (wanted.kind == StructuredOutput::Kind::kStructuralTag) {
    for (const auto& [id, text] : vocabulary_->special_tokens()) {
      const bool reasoning = std::find(kReasoning.begin(), kReasoning.end(), text) != kReasoning.end();
      if (reasoning || (text.size() > 1 && wanted.text.find(text) != std::string::npos)) markers.push_back(id);
    }
  }
  if (markers.empty()) return plain_;
  const std::lock_guard lock(mutex_);
  if (!with_markers_ || with_markers_->markers != markers) {
    CHORAL_TRY(with_markers_, make_tokens(std::move(markers)));
  }
  return with_markers_;
}

Result<CompiledGrammar> XgrammarCompiler::compile(const StructuredOutput& wanted, const TakeHold& hold) const {
  CHORAL_TRY(const std::shared_ptr<const Tokens> tokens, tokens_for(wanted));
  // One thread; no cache of its own, for ours counts entries and bytes.
  std::array<Any, 4> settings = {tokens->info.view(), ffi_integer(1), ffi_boolean(false), ffi_integer(-1)};
  CHORAL_TRY(const FfiValue compiler, library_->call(library_->methods().make_compiler, settings));
  CHORAL_TRY(const FfiValue text, library_->text(wanted.text));
  CHORAL_TRY(const FfiValue root, library_->text(kRootRule));

  const XgrammarLibrary::Methods& methods = library_->methods();
  const auto run = [&]() -> Result<FfiValue> {
    switch (wanted.kind) {
      case StructuredOutput::Kind::kJsonSchema: {
        // White space as the model likes, no own indent or separators, nothing that the schema does not name, in its order.
        std::array<Any, 8> arguments = {compiler.view(), text.view(),       ffi_boolean(true),           ffi_none(),
                                        ffi_none(),      ffi_boolean(true), ffi_integer(kMaxWhiteSpace), ffi_boolean(false)};
        return library_->call(methods.compile_json_schema, arguments);
      }
      case StructuredOutput::Kind::kRegex: {
        std::array<Any, 2> arguments = {compiler.view(), text.view()};
        return library_->call(methods.compile_regex, arguments);
      }
      case StructuredOutput::Kind::kGrammar: {
        std::array<Any, 3> arguments = {compiler.view(), text.view(), root.view()};
        return library_->call(methods.compile_grammar, arguments);
      }
      case StructuredOutput::Kind::kStructuralTag: {
        std::array<Any, 2> arguments = {compiler.view(), text.view()};
        return library_->call(methods.compile_structural_tag, arguments);
      }
      default: return internal_error("xgrammar is not asked for this kind of structured output");
    }
  };
  CHORAL_TRY(FfiValue compiled, run());
  std::array<Any, 1> self = {compiled.view()};
  CHORAL_TRY(const FfiValue bytes, library_->call(methods.grammar_bytes, self));
  const auto size_bytes = static_cast<size_t>(std::max<int64_t>(bytes.integer(), 0));
  Shared shared{library_, vocabulary_, wanted.kind == StructuredOutput::Kind::kJsonSchema ? json_ : nullptr, trie_, tokens,
                {},       {}};
  CHORAL_TRY(shared.hold, hold(size_bytes));
  const auto grammar = std::make_shared<OwnGrammar>(std::move(shared), std::move(compiled));
  CHORAL_RETURN_IF_ERROR(grammar->begin());
  return CompiledGrammar{grammar, size_bytes};
}

}  // namespace choral::text
