// Single tokens of the embedding and the head: rows that are trained alone, and tokens that an adapter brings.
#include <algorithm>

#include "base/printable.h"
#include "lora/peft/lora_loader.h"

namespace choral::lora {
namespace {

bool has_vocabulary(TargetKind kind) { return kind == TargetKind::kEmbedding || kind == TargetKind::kHead; }

}  // namespace

void LoRALoader::take_token_rows(const std::string& name, const Module& module) {
  const Place& place = *module.place;
  const NamedTensor& rows = *module[TensorPart::kTokenRows];
  if (place.target->kind != TargetKind::kEmbedding && place.target->kind != TargetKind::kHead) {
    return problems_.add(unsupported("'{}': {} has no rows of tokens", printable(rows.name), kind_name(place.target->kind)));
  }
  const auto& configs = peft_.trainable_token_indices;
  const auto config_of = [&configs](const std::string& layer) {
    return std::find_if(configs.begin(), configs.end(),
                        [&](const auto& entry) { return layer == entry.first || layer.ends_with("." + entry.first); });
  };
  auto config = config_of(name);
  // With save_embedding_layers PEFT saves a tied head's rows, which are the embedding's, once more.
  if (config == configs.end() && !place.target->tied_to.empty()) config = config_of(place.target->tied_to);
  if (config == configs.end()) {
    return problems_.add(
        corrupt("'{}': trainable_token_indices does not say which tokens these rows belong to", printable(rows.name)));
  }
  used_token_configs_.insert(config->first);
  const std::vector<int32_t>& ids = config->second;
  std::vector<int32_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return problems_.add(invalid_argument("trainable_token_indices: '{}' names a token twice", printable(config->first)));
  }
  if (!sorted.empty() && sorted.back() >= place.out &&
      !expect_own_tokens(int64_t{sorted.back()} + 1 - place.out, place.out,
                         fmt::format("trainable_token_indices of '{}'", printable(config->first)))) {
    return;
  }
  if (!expect_shape(rows, {std::ssize(ids), place.in}, name, "(trained tokens, width)") || !expect_finite(rows)) {
    return;
  }
  model_.trainable_tokens_.push_back({name, ids, rows.tensor});
}

void LoRALoader::check_token_config() {
  for (const auto& [name, ids] : peft_.trainable_token_indices) {
    if (!used_token_configs_.contains(name) && !follows_embedding(name, ids)) {
      problems_.add(
          corrupt("trainable_token_indices names '{}', whose rows '...{}.token_adapter.trainable_tokens_delta' are not "
                  "in the file",
                  printable(name), printable(name)));
    }
  }
}

bool LoRALoader::follows_embedding(const std::string& name, const std::vector<int32_t>& ids) const {
  return std::any_of(targets_.begin(), targets_.end(), [&](const LoRATarget& target) {
    if (target.tied_to.empty() || (target.name != name && !target.name.ends_with("." + name))) return false;
    const TrainableTokens* tokens = model_.trainable_tokens_of(target);
    return tokens != nullptr && tokens->token_ids == ids;
  });
}

// PEFT wraps plain embeddings and heads only, so no adapter was trained with both on one module; but it wraps a tied head before
// it adds the head's pair.
void LoRALoader::check_token_rows() {
  for (const auto& target : targets_) {
    if (target.kind != TargetKind::kEmbedding && target.kind != TargetKind::kHead) continue;
    const TrainableTokens* tokens = model_.trainable_tokens_of(target);
    if (tokens == nullptr) continue;
    const bool saved = model_.replaced_weights_.contains(target.name), follows = tokens->module != target.name;
    const LoRALayerWeights* pair = model_.get_lora(target.name);
    const bool has_bias = target.base_bias && target.base_bias().size() > 1;  // of no model it is one number: adapter_check.cc
    if (target.kind == TargetKind::kHead && has_bias) {
      problems_.add(
          unsupported("trainable_token_indices: '{}' has a bias, which PEFT leaves out, of all tokens, once it trains rows "
                      "of it; train the embedding's rows alone",
                      target.name));
    }
    if (follows && pair != nullptr && pair->is_dora()) {
      problems_.add(
          unsupported("trainable_token_indices: DoRA of '{}', which is tied to '{}' and its rows, is not supported; "
                      "train the head as plain LoRA",
                      target.name, tokens->module));
    } else if (saved || (pair != nullptr && !follows)) {
      problems_.add(unsupported(
          "trainable_token_indices: '{}' has a {} as well; PEFT trains single rows only of modules that nothing else changes{}",
          target.name, saved ? "whole weight (modules_to_save)" : "low-rank pair",
          follows ? fmt::format(", and this head is tied to '{}'", tokens->module) : ""));
    }
  }
}

bool LoRALoader::expect_own_tokens(int64_t count, int64_t vocabulary, std::string_view where) {
  if (count <= options_.config.lora_extra_vocab_size) return true;
  problems_.add(too_large("{} goes {} tokens beyond the base's vocabulary of {}; {} are allowed (lora_extra_vocab_size); {}",
                          where, count, vocabulary, options_.config.lora_extra_vocab_size,
                          LoRAConfig::extra_vocab_advice(count)));
  return false;
}

int64_t LoRALoader::rows_beyond(const Place& place, const Shape& shape) {
  if (!has_vocabulary(place.target->kind) || shape.rank() != 2 || shape[1] != place.in) return 0;
  return std::max<int64_t>(shape[0] - place.out, 0);
}

bool LoRALoader::take_own_rows(const std::string& name, const Module& module, const NamedTensor& tensor, int64_t count) {
  const int64_t vocabulary = module.place->out;
  if (!expect_own_tokens(count, vocabulary, fmt::format("'{}'", printable(tensor.name)))) return false;
  const NamedTensor rows{tensor.name, tensor.tensor.rows(tensor.tensor.view.shape[0] - count, count)};
  if (!expect_finite(rows)) return false;
  model_.embeddings_tensors_.insert_or_assign(name, rows.tensor);
  return true;
}

// vLLM's file of new tokens: their rows alone.
void LoRALoader::take_new_embeddings(const std::string& name, const Module& module) {
  const NamedTensor& rows = *module[TensorPart::kNewRows];
  const Shape& shape = rows.tensor.view.shape;
  const int64_t count = shape.rank() == 2 ? shape[0] : 0;
  if (!expect_shape(rows, {std::max<int64_t>(count, 1), module.place->in}, name, "(new tokens, width)")) return;
  if (model_.embeddings_tensors_.contains(name)) {
    return problems_.add(
        corrupt("'{}': the rows of the adapter's own tokens stand in the file twice: here, and in the weight of '{}'",
                printable(rows.name), name));
  }
  take_own_rows(name, module, rows, count);
}

// How many tokens of its own the adapter has in `target`, all of which have a row; nothing after adding a problem.
std::optional<int64_t> LoRALoader::count_own_tokens(const LoRATarget& target) {
  const int64_t vocabulary = target.out();
  const auto found = model_.embeddings_tensors_.find(target.name);
  const int64_t rows = found == model_.embeddings_tensors_.end() ? 0 : found->second.view.shape[0];
  int64_t count = rows;
  std::vector<int32_t> trained;
  if (const TrainableTokens* tokens = model_.trainable_tokens_of(target)) trained = tokens->token_ids;
  std::erase_if(trained, [&](int32_t id) { return id < vocabulary + rows; });
  std::sort(trained.begin(), trained.end());
  if (!trained.empty()) count = int64_t{trained.back()} + 1 - vocabulary;
  const LoRALayerWeights* pair = model_.get_lora(target.name);
  int64_t adapted = 0;
  if (pair != nullptr) {
    const bool embedding = target.kind == TargetKind::kEmbedding;
    adapted = (embedding ? pair->lora_a.view.shape[1] : pair->lora_b.view.shape[0]) - vocabulary;
  }
  int64_t without = vocabulary + rows;  // the first token that has no row
  for (const int32_t id : trained) without += id == without ? 1 : 0;
  if (without < vocabulary + std::max(count, adapted)) {
    problems_.add(corrupt("'{}': the adapter's own token {} has no row in the file; save it with save_embedding_layers=True",
                          target.name, without));
    return std::nullopt;
  }
  if (adapted > 0 && adapted != count) {
    problems_.add(
        corrupt("'{}': the low-rank pair has {} tokens beyond the base's vocabulary, the rows {}", target.name, adapted, count));
    return std::nullopt;
  }
  if (count > 0 && target.kind == TargetKind::kHead && pair != nullptr && (pair->is_dora() || !pair->bias.empty())) {
    problems_.add(unsupported("'{}': {} of a head with tokens of the adapter's own is not supported; train it as plain LoRA",
                              target.name, pair->is_dora() ? "DoRA" : "lora_bias"));
    return std::nullopt;
  }
  return count;
}

void LoRALoader::check_own_tokens() {
  std::optional<int64_t> embedded;  // in every embedding
  int64_t given = 0;
  std::string head_name;
  for (const auto& target : targets_) {
    if (!has_vocabulary(target.kind)) continue;
    // A tied head is the embedding, unless that is a copy of the adapter's own.
    const auto tied = model_.embeddings_tensors_.find(target.tied_to);
    if (!target.tied_to.empty() && tied != model_.embeddings_tensors_.end() && !peft_.saves(as_trained(target.tied_to))) {
      model_.embeddings_tensors_.emplace(target.name, tied->second);
    }
    const auto count = count_own_tokens(target);
    if (!count) return;
    if (target.kind == TargetKind::kHead) {
      given = *count;
      head_name = target.name;
    } else if (embedded.value_or(*count) != *count) {
      return problems_.add(
          unsupported("the adapter's own tokens are {} in the embedding and {} in '{}', which has a row for each "
                      "token too; train it without tokens of its own",
                      *embedded, *count, target.name));
    } else {
      embedded = *count;
    }
  }
  const int64_t own = embedded.value_or(0);
  if (own == 0 && given == 0) return;
  if (given != 0 && given != own) {
    return problems_.add(corrupt("the adapter's own tokens are {} in the embedding and {} in the head '{}'; save both layers",
                                 own, given, head_name));
  }
  if (!peft_.alora_invocation_tokens.empty()) {
    return problems_.add(
        unsupported("alora_invocation_tokens: an adapter that brings tokens of its own cannot be activated by tokens, since the "
                    "rows before them are the base's"));
  }
  if (given == 0) {
    model_.notes_.push_back(
        fmt::format("'{}' has no rows for the adapter's {} tokens: they are read in prompts and never written", head_name, own));
  }
  model_.extra_vocab_size_ = own;
}

}  // namespace choral::lora
