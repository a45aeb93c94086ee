// The one entry through which every request's grammar goes: limits first, then our own automata or the library.
#include <algorithm>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "text/grammar/automaton_matcher.h"
#include "text/grammar/choice_grammar.h"
#include "text/grammar/compile_queue.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_cache.h"
#include "text/grammar/json_grammar.h"
#include "text/grammar/json_schema_check.h"
#include "text/grammar/plain_schema.h"
#include "text/grammar/regex_size.h"
#include "text/grammar/xgrammar_finder.h"
#include "text/grammar/xgrammar_grammar.h"
#include "text/unicode.h"

namespace choral::text {
namespace {

using OutputKind = StructuredOutput::Kind;
using SharedGrammar = std::shared_ptr<const Grammar>;

constexpr std::string_view kWithoutLibrary = "only JSON objects, choices and plain JSON schemas can be asked for";

Status check_choices(const std::vector<std::string>& choices, const GrammarLimits& limits) {
  if (choices.empty()) return invalid_argument("there are no choices");
  if (choices.size() > limits.max_choices) {
    return too_large("there are {} choices, {} are allowed", choices.size(), limits.max_choices);
  }
  size_t bytes = 0;
  std::string storage;
  for (const std::string& choice : choices) {
    if (choice.empty()) return invalid_argument("a choice is empty");
    if (sanitize_utf8(choice, storage).data() != choice.data()) {
      return invalid_argument("the choice {} is not UTF-8", quoted(choice, 60));
    }
    bytes += choice.size();
  }
  if (bytes > limits.max_choices_bytes) {
    return too_large("the choices have {} bytes together, {} are allowed", bytes, limits.max_choices_bytes);
  }
  return {};
}

// Above it a grammar may take seconds that small ones shall not wait for.
constexpr size_t kSmallBytes = 4096;

CompileQueue::Lane lane_of(const StructuredOutput& wanted) {
  return wanted.text.size() > kSmallBytes ? CompileQueue::Lane::kLarge : CompileQueue::Lane::kSmall;
}

class Compiler final : public GrammarCompiler {
 public:
  Compiler(const Tokenizer& tokenizer, std::vector<int32_t> end_ids, const GrammarOptions& options)
      : limits_(options.limits),
        vocabulary_(std::make_shared<const GrammarVocabulary>(tokenizer, std::move(end_ids))),
        trie_(std::make_shared<const TokenTrie>(*vocabulary_, vocabulary_->text_ids())),
        json_tokens_(std::make_shared<const JsonTokens>(*vocabulary_, trie_)),
        json_object_(std::make_shared<const AutomatonGrammar<JsonTextAutomaton>>(
            std::make_shared<const JsonTextAutomaton>(
                JsonTextAutomaton::Top::kObject, JsonLimits{.max_depth = std::clamp(limits_.max_depth, 1, 64)}, json_tokens_),
            vocabulary_, trie_)),
        cache_(std::make_shared<GrammarCache>(limits_.max_cached, limits_.max_cached_bytes, limits_.max_live_bytes)),
        finder_(options.library),
        queue_({.threads = limits_.compile_threads, .max_waiting = limits_.max_waiting, .limit_s = limits_.max_compile_s}) {}

  Result<SharedGrammar> compile(const StructuredOutput& wanted) override {
    switch (wanted.kind) {
      case OutputKind::kNone: return invalid_argument("no structured output is asked for");
      case OutputKind::kJsonObject: return json_object_;
      case OutputKind::kChoice: return one_of(wanted.choices);
      case OutputKind::kJsonSchema: CHORAL_RETURN_IF_ERROR(check_json_schema(wanted.text, limits_)); return schema(wanted);
      case OutputKind::kRegex: CHORAL_RETURN_IF_ERROR(check_regex(wanted.text, {.max_bytes = limits_.max_regex_bytes})); break;
      case OutputKind::kGrammar: CHORAL_RETURN_IF_ERROR(check_ebnf(wanted.text, limits_)); break;
      case OutputKind::kStructuralTag: CHORAL_RETURN_IF_ERROR(check_structural_tag(wanted.text, limits_)); break;
    }
    return from_library(wanted);
  }

  Status library_status() override {
    const std::lock_guard lock(library_mutex_);
    look_for_library();
    return library_status_;
  }

 private:
  Result<SharedGrammar> one_of(const std::vector<std::string>& choices) {
    CHORAL_RETURN_IF_ERROR(check_choices(choices, limits_));
    size_t bytes = 0;
    for (const auto& choice : choices) bytes += sizeof(choice) + choice.size();
    CHORAL_TRY(const GrammarHold hold, cache_->hold(bytes));
    const std::shared_ptr<const ChoiceAutomaton> automaton(new ChoiceAutomaton(choices, trie_),
                                                           [hold](const ChoiceAutomaton* each) { delete each; });
    return std::make_shared<const AutomatonGrammar<ChoiceAutomaton>>(automaton, vocabulary_, trie_);
  }

  static std::string key_of(const StructuredOutput& wanted) {
    return static_cast<char>('0' + static_cast<int>(wanted.kind)) + wanted.text;
  }

  Result<SharedGrammar> schema(const StructuredOutput& wanted) {
    const std::string key = key_of(wanted);
    if (auto known = cache_->find(key)) return known;
    const auto plain = read_plain_schema(wanted.text, json_tokens_);
    if (!plain) return from_library(wanted);
    CHORAL_TRY(const GrammarHold hold, cache_->hold(plain->size_bytes()));
    const std::shared_ptr<const SchemaAutomaton> held(plain.get(), [plain, hold](const SchemaAutomaton*) {});
    const SharedGrammar grammar = std::make_shared<const AutomatonGrammar<SchemaAutomaton>>(held, vocabulary_, trie_);
    cache_->add(key, {grammar, plain->size_bytes()});
    return grammar;
  }

  // With library_mutex_ held: opens it where it is found, which may be after it was missing.
  void look_for_library() {
    if (xgrammar_ || !finder_.is_worth_a_search()) return;
    library_status_ = open_library().while_(kWithoutLibrary);
  }

  Status open_library() {
    CHORAL_TRY(const std::filesystem::path folder, finder_.search());
    CHORAL_TRY(auto library, XgrammarLibrary::open(folder));
    CHORAL_TRY(xgrammar_, XgrammarCompiler::create(std::move(library), vocabulary_, json_tokens_));
    return {};
  }

  Result<std::shared_ptr<const XgrammarCompiler>> xgrammar() {
    const std::lock_guard lock(library_mutex_);
    look_for_library();
    if (xgrammar_) return xgrammar_;
    // The reason may name folders of this machine: it is for the operator, not for a client.
    if (!std::exchange(refused_, true)) CHORAL_LOG(kWarn, "{}", library_status_.message());
    return unsupported("{}: the library xgrammar is not there; its install command is: {}", kWithoutLibrary,
                       XgrammarFinder::kInstall);
  }

  Result<SharedGrammar> from_library(const StructuredOutput& wanted) {
    CHORAL_TRY(const std::shared_ptr<const XgrammarCompiler> xgrammar, this->xgrammar());
    const std::string key = key_of(wanted);
    if (auto known = cache_->find(key)) return known;
    // All by value or shared: the job may outlive this compiler.
    auto job = [xgrammar, cache = cache_, wanted, key]() -> Result<CompiledGrammar> {
      CHORAL_TRY(CompiledGrammar compiled, xgrammar->compile(wanted, [&](size_t bytes) { return cache->hold(bytes); }));
      cache->add(key, compiled);
      return compiled;
    };
    CHORAL_TRY(CompiledGrammar compiled, queue_.run(key, lane_of(wanted), std::move(job)));
    return std::move(compiled.grammar);
  }

  const GrammarLimits limits_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::shared_ptr<const TokenTrie> trie_;
  std::shared_ptr<const JsonTokens> json_tokens_;
  SharedGrammar json_object_;
  std::shared_ptr<GrammarCache> cache_;
  std::mutex library_mutex_;  // guards the members below
  XgrammarFinder finder_;
  std::shared_ptr<const XgrammarCompiler> xgrammar_;  // null: library_status_ says why
  Status library_status_;
  bool refused_ = false;
  CompileQueue queue_;
};

}  // namespace

Result<std::unique_ptr<GrammarCompiler>> make_grammar_compiler(const Tokenizer& tokenizer, std::vector<int32_t> end_ids,
                                                               GrammarOptions options) {
  if (options.limits.compile_threads < 1 || options.limits.max_compile_s <= 0) {
    return invalid_argument("grammars need one thread and some time to be compiled");
  }
  return std::unique_ptr<GrammarCompiler>(std::make_unique<Compiler>(tokenizer, std::move(end_ids), options));
}

}  // namespace choral::text
