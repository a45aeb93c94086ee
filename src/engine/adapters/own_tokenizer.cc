#include "engine/adapters/own_tokenizer.h"

#include <algorithm>

#include "base/printable.h"
#include "text/own_tokens.h"

namespace choral::engine {
namespace {

Result<text::AddedTokenList> read_list(const lora::AdapterSource& adapter) {
  const auto read = [&adapter](size_t i) { return adapter.read_beside(kTokenizerFiles[i].name, kTokenizerFiles[i].most_bytes); };
  text::AddedTokenFiles files;
  CHORAL_TRY(files.tokenizer_config_json, read(1));
  CHORAL_TRY(auto list, text::read_added_token_list(files));
  if (!list.tokens.empty()) return list;
  CHORAL_TRY(files.tokenizer_json, read(0));
  CHORAL_TRY(files.added_tokens_json, read(2));
  return text::read_added_token_list(files);
}

// Tokens that have a row of the adapter's own, by its tensors' shapes.
Result<int64_t> count_rows(const lora::AdapterSource& adapter, const OwnTokenizerSource& source) {
  CHORAL_TRY(const auto peft, adapter.read_config());
  CHORAL_TRY(const auto shapes, adapter.read_shapes(source.options.limits));
  CHORAL_TRY(const auto model, lora::LoRAModel::from_adapter_file(shapes, peft, source.targets, source.options));
  return model.extra_vocab_size();
}

int64_t vocabulary_of(std::span<const lora::LoRATarget> targets) {
  for (const auto& target : targets) {
    if (target.kind == lora::TargetKind::kEmbedding) return target.out();
  }
  return 0;
}

// Fills `own` for an adapter with `rows` of its own.
Status add_tokens(text::AddedTokenList list, int64_t rows, const OwnTokenizerSource& source, OwnTokenizer& own) {
  const int64_t ids = vocabulary_of(source.targets) + rows;
  const auto has_row = [ids](const text::AddedToken& token) { return token.id < ids; };
  const auto without = std::stable_partition(list.tokens.begin(), list.tokens.end(), has_row);
  if (without != list.tokens.end()) {
    own.notes.push_back(fmt::format("its tokenizer has tokens without a row, which are plain text: '{}' (id {}){}",
                                    printable(without->content, 100), without->id,
                                    list.tokens.end() - without > 1 ? " and others" : ""));
    list.tokens.erase(without, list.tokens.end());
  }
  CHORAL_TRY(own.tokens, source.base->unknown(list.tokens));
  if (own.tokens.empty()) return {};
  CHORAL_TRY(own.tokenizer, text::Tokenizer::with_tokens(*source.base, list.tokens));
  for (const auto& token : own.tokens) {
    if (token.content == list.eos_token) own.eos_id = token.id;
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const OwnTokenizer>> read_own_tokenizer(const lora::AdapterSource& adapter,
                                                               const OwnTokenizerSource& source) {
  auto own = std::make_shared<OwnTokenizer>();
  if (source.base == nullptr) return std::shared_ptr<const OwnTokenizer>(std::move(own));
  auto list = read_list(adapter);
  const auto unknown = list.ok() ? source.base->unknown(list->tokens) : list.status();
  if (unknown.ok() && unknown->empty()) return std::shared_ptr<const OwnTokenizer>(std::move(own));
  CHORAL_TRY(const int64_t rows, count_rows(adapter, source));
  Status added = list.ok() ? add_tokens(std::move(*list), rows, source, *own) : std::move(list).status();
  if (!added.ok()) {
    added = std::move(added).while_("the tokenizer of the adapter");
    if (rows > 0) return added;
    own = std::make_shared<OwnTokenizer>();
    own->notes.push_back(fmt::format("the base's tokenizer is used: {}", added.message()));
  }
  return std::shared_ptr<const OwnTokenizer>(std::move(own));
}

}  // namespace choral::engine
