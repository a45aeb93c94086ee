#include "golden/adapter_kind.h"

#include <cmath>

namespace choral::golden {
namespace {

constexpr float kBoundA = 0.3f, kBoundB = 0.1f;

std::string file_name(const std::string& module) { return "base_model.model." + module; }

void add_scaled(Matrix& to, const Matrix& delta, double scale) {
  for (size_t i = 0; i < to.values.size(); ++i) {
    to.values[i] = static_cast<float>(to.values[i] + scale * static_cast<double>(delta.values[i]));
  }
}

}  // namespace

AdapterKind::AdapterKind(const WeightSet& base, int64_t rank, double alpha)
    : config{{"peft_type", "LORA"},
             {"r", rank},
             {"lora_alpha", alpha},
             {"bias", "none"},
             {"target_modules", nlohmann::json::array()}},
      merged(base),
      base_(base),
      rank_(rank),
      scale_(alpha / static_cast<double>(rank)) {}

std::pair<Matrix, Matrix> AdapterKind::random_pair(const std::string& module, int64_t in, int64_t out, int64_t rank) {
  Matrix a = random_matrix({rank, in}, kBoundA, next_seed()), b = random_matrix({out, rank}, kBoundB, next_seed());
  files[file_name(module) + ".lora_A.weight"] = a;
  files[file_name(module) + ".lora_B.weight"] = b;
  return {std::move(a), std::move(b)};
}

void AdapterKind::add_pair(const std::string& module, int64_t rank, double scale) {
  Matrix& w = weight(module);
  const auto [a, b] = random_pair(module, w.cols(), w.rows(), rank == 0 ? rank_ : rank);
  add_scaled(w, product(b, a), scale == 0 ? scale_ : scale);
}

void AdapterKind::add_dora(const std::string& module) {
  Matrix& w = weight(module);
  const auto [a, b] = random_pair(module, w.cols(), w.rows(), rank_);
  add_scaled(w, product(b, a), scale_);
  Matrix m = random_matrix({w.rows()}, 0.2f, next_seed());
  for (int64_t j = 0; j < w.rows(); ++j) {
    double squares = 0, base_squares = 0;
    const Matrix& old = base_.at(module + ".weight");
    for (int64_t k = 0; k < w.cols(); ++k) {
      squares += static_cast<double>(w.at(j, k)) * w.at(j, k);
      base_squares += static_cast<double>(old.at(j, k)) * old.at(j, k);
    }
    m.at(j) += static_cast<float>(std::sqrt(base_squares));  // where training begins
    for (int64_t k = 0; k < w.cols(); ++k) w.at(j, k) = static_cast<float>(w.at(j, k) * (m.at(j) / std::sqrt(squares)));
  }
  files[file_name(module) + ".lora_magnitude_vector"] = std::move(m);
}

void AdapterKind::add_lora_bias(const std::string& module) {
  Matrix bias = random_matrix({weight(module).rows()}, 0.2f, next_seed());
  add_scaled(merged.at(module + ".bias"), bias, scale_);
  files[file_name(module) + ".lora_B.bias"] = std::move(bias);
}

void AdapterKind::add_embedding_pair(const std::string& module) {
  untie();  // the head keeps the base's rows
  Matrix& w = weight(module);
  Matrix a = random_matrix({rank_, w.rows()}, kBoundA, next_seed()), b = random_matrix({w.cols(), rank_}, kBoundB, next_seed());
  for (int64_t token = 0; token < w.rows(); ++token) {
    for (int64_t j = 0; j < w.cols(); ++j) {
      double sum = 0;
      for (int64_t r = 0; r < rank_; ++r) sum += static_cast<double>(b.at(j, r)) * a.at(r, token);
      w.at(token, j) = static_cast<float>(w.at(token, j) + scale_ * sum);
    }
  }
  files[file_name(module) + ".lora_embedding_A"] = std::move(a);
  files[file_name(module) + ".lora_embedding_B"] = std::move(b);
}

void AdapterKind::untie() {
  if (merged.contains("lm_head.weight")) return;
  merged["lm_head.weight"] = base_.at("model.embed_tokens.weight");
  unties = true;
}

void AdapterKind::add_head_pair(const std::string& stored) {
  const Matrix w = merged.at(stored);
  const auto [a, b] = random_pair("lm_head", w.cols(), w.rows(), rank_);
  untie();
  add_scaled(merged.at("lm_head.weight"), product(b, a), scale_);
}

void AdapterKind::replace(const std::string& tensor, float bound) {
  Matrix fresh = merged.at(tensor);
  const Matrix change = random_matrix(fresh.shape, bound, next_seed());
  for (size_t i = 0; i < fresh.values.size(); ++i) fresh.values[i] += change.values[i];
  files[file_name(tensor)] = fresh;
  merged[tensor] = std::move(fresh);
}

void AdapterKind::replace_bias(const std::string& module) {
  Matrix bias = merged.at(module + ".bias");
  const Matrix change = random_matrix(bias.shape, 0.3f, next_seed());
  for (size_t i = 0; i < bias.values.size(); ++i) bias.values[i] += change.values[i];
  files[file_name(module) + ".base_layer.bias"] = bias;
  merged[module + ".bias"] = std::move(bias);
}

void AdapterKind::train_tokens(const std::string& module, const std::vector<int32_t>& ids, bool tied_head) {
  if (!tied_head) untie();
  Matrix& w = weight(module);
  Matrix rows = random_matrix({std::ssize(ids), w.cols()}, 0.5f, next_seed());
  for (size_t i = 0; i < ids.size(); ++i) {
    for (int64_t c = 0; c < w.cols(); ++c) w.at(ids[i], c) = rows.at(static_cast<int64_t>(i), c);
  }
  files[file_name(module) + ".token_adapter.trainable_tokens_delta"] = std::move(rows);
  config["trainable_token_indices"][module.substr(module.rfind('.') + 1)] = ids;
}

void AdapterKind::add_own_tokens(int64_t count) {
  own_tokens = count;
  for (const auto& [module, name] : {std::pair("model.embed_tokens", "input_embeddings"), {"lm_head", "output_embeddings"}}) {
    if (!merged.contains(module + std::string(".weight"))) continue;
    Matrix& w = weight(module);
    new_tokens[name] = random_matrix({count, w.cols()}, 2.0f, next_seed());
    const auto& rows = new_tokens.at(name).values;
    w.values.insert(w.values.end(), rows.begin(), rows.end());
    w.shape[0] += count;
  }
}

void AdapterKind::save_layer(const std::string& module, const std::string& tail) {
  files[file_name(module) + tail] = weight(merged.contains(module + ".weight") ? module : "model.embed_tokens");
  new_tokens.clear();
}

std::vector<std::string> linear_modules(const WeightSet& base) {
  std::vector<std::string> modules;
  for (const auto& [name, matrix] : base) {
    if (name.ends_with("_proj.weight")) modules.push_back(name.substr(0, name.size() - 7));
  }
  return modules;
}

}  // namespace choral::golden
