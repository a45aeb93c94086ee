// Builds one adapter of some kind twice: as PEFT's files, and folded into the base's weights by the kind's definition.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "golden/weight_set.h"

namespace choral::golden {

class AdapterKind {
 public:
  // Starts from a copy of the base and PEFT's default config at this rank and alpha.
  AdapterKind(const WeightSet& base, int64_t rank, double alpha);

  nlohmann::json config;  // adapter_config.json
  WeightSet files;        // adapter_model.safetensors
  WeightSet merged;       // the base with the adapter in it
  WeightSet new_tokens;   // new_embeddings.safetensors; empty = no such file
  bool unties = false;    // merged needs a head of its own
  int64_t own_tokens = 0;

  // A random pair on the linear layer `module`, at this rank and scale (default: the config's), folded as W + s·B·A, or as DoRA.
  void add_pair(const std::string& module, int64_t rank = 0, double scale = 0);
  void add_dora(const std::string& module);
  void add_lora_bias(const std::string& module);  // after add_pair
  // lora_embedding_A [r, vocab], lora_embedding_B [width, r] on an embedding stored as `module`.weight.
  void add_embedding_pair(const std::string& module);
  // A pair on the head; `stored` is the weight the head multiplies by in the base.
  void add_head_pair(const std::string& stored);
  void replace(const std::string& tensor, float bound);  // a whole new tensor, under its plain name
  void replace_bias(const std::string& module);          // bias = "all": `module`.base_layer.bias
  // Rows of an embedding, which a tied head has too, or of the head. Once for each module.
  void train_tokens(const std::string& module, const std::vector<int32_t>& ids, bool tied_head);
  // The adapter brings tokens: random rows follow the base's in embedding and head. Before anything else that changes these.
  void add_own_tokens(int64_t count);
  // Puts a layer's whole weight as it is now into the file, under this tail of its name.
  void save_layer(const std::string& module, const std::string& tail);
  // The head gets a weight of its own, as it is in the base now.
  void untie();

  double scale() const { return scale_; }
  void set_scale(double s) { scale_ = s; }

 private:
  Matrix& weight(const std::string& module) { return merged.at(module + ".weight"); }
  std::pair<Matrix, Matrix> random_pair(const std::string& module, int64_t in, int64_t out, int64_t rank);
  uint32_t next_seed() { return ++seed_; }

  const WeightSet& base_;
  int64_t rank_;
  double scale_;
  uint32_t seed_ = 100;
};

// Every linear layer of a model of the common decoder: "model.layers.0.self_attn.q_proj", …
std::vector<std::string> linear_modules(const WeightSet& base);

}  // namespace choral::golden
