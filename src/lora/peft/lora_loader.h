// Checks an adapter's tensors before they become a LoRAModel: names against the model's targets, completeness, shapes, ranks,
// values, and whether config and file agree. Every rule is one small function of the .cc. Internal to lora; used once, by one
// thread.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "io/text_half.h"
#include "lora/peft/lora_model.h"
#include "lora/peft/module_names.h"
#include "lora/problem_list.h"

namespace choral::lora {

std::string_view kind_name(TargetKind kind);  // "the embedding"

class LoRALoader {
 public:
  // `shapes_only`: the tensors' values may not be read.
  LoRALoader(const PEFTHelper& peft, std::span<const LoRATarget> targets, const LoRALoadOptions& options, std::string source,
             bool shapes_only = false);

  Result<LoRAModel> load(std::span<const NamedTensor> tensors);

 private:
  // A module of the model under the name a file uses: one member of a target, or a stacked target as a whole.
  struct Place {
    const LoRATarget* target = nullptr;
    int member = -1;  // -1: the whole
    int64_t out = 0;
    int64_t in = 0;
  };
  struct Module {
    const Place* place = nullptr;
    std::array<const NamedTensor*, 14> parts{};  // by TensorPart
    const NamedTensor* operator[](TensorPart part) const { return parts[static_cast<size_t>(part)]; }
  };
  using Modules = std::map<std::string, Module, std::less<>>;

  void index_targets(std::span<const NamedTensor> tensors);
  // How this file calls a module that the model calls `name`.
  std::string spelled(const LoRATarget& target, const std::string& name) const {
    if (!as_in_5_) return name;
    return renamed_in_5(target.name_in_5.empty() ? name : target.name_in_5);
  }
  // What a module of this file was called where the adapter was trained, which patterns of the config are of.
  std::string as_trained(std::string_view name) const { return io::whole_model_name(name, of_whole_model_); }
  int64_t count_experts(std::string_view experts, std::string_view parameter) const;
  std::optional<TensorName> name_of(const NamedTensor& tensor) const;
  bool is_saved_twice(const NamedTensor& a, const NamedTensor& b) const;
  Modules sort_tensors(std::span<const NamedTensor> tensors);
  void report_unexpected(const std::vector<std::string>& names, size_t all_tensors);

  void take_module(const std::string& name, const Module& module);
  void take_pair(const std::string& name, const Module& module, const NamedTensor* a, const NamedTensor* b);
  void take_embedding_pair(const std::string& name, const Module& module);
  void take_replacement(const std::string& name, const Module& module);
  void take_bias(const std::string& name, const Module& module);
  void check_selection_bias(const std::string& name, const Module& module);
  void take_token_rows(const std::string& name, const Module& module);
  void take_new_embeddings(const std::string& name, const Module& module);
  void check_frozen_copy(const std::string& name, const Module& module, const NamedTensor& tensor);
  // A and B with the config's scale; nothing, after adding a problem, when the patterns cannot say it.
  std::optional<LoRALayerWeights> scaled_pair(const std::string& name, const AdapterTensor& a, const AdapterTensor& b);
  // Splits a stacked target's layer into its members', or adds it as it is.
  void add_layer(const std::string& name, const Place& place, LoRALayerWeights layer);
  void add_by_member(std::map<std::string, AdapterTensor, std::less<>>& to, const std::string& name, const Place& place,
                     const AdapterTensor& tensor);
  void check_complete(const Modules& modules);
  void check_saved(const Modules& modules);
  void check_parameters();
  void check_token_config();
  void check_token_rows();
  void check_own_tokens();
  void check_activation();
  std::optional<int64_t> count_own_tokens(const LoRATarget& target);
  // Of an embedding's or a head's weight of this shape: rows for tokens that the base does not have.
  static int64_t rows_beyond(const Place& place, const Shape& shape);
  // The last `count` rows of `tensor` are those of the adapter's own tokens. False after adding a problem.
  bool take_own_rows(const std::string& name, const Module& module, const NamedTensor& tensor, int64_t count);
  // Whether the rows of a tied head that the config names, without own ones in the file, are the embedding's.
  bool follows_embedding(const std::string& name, const std::vector<int32_t>& ids) const;

  // False after adding a problem.
  bool expect_shape(const NamedTensor& tensor, std::initializer_list<int64_t> wanted, const std::string& module,
                    std::string_view meaning);
  bool expect_norm_shape(const NamedTensor& tensor, const Place& place, const std::string& module);
  bool expect_finite(const NamedTensor& tensor);
  bool expect_rank(const std::string& name, int64_t rank);
  bool expect_own_tokens(int64_t count, int64_t vocabulary, std::string_view where);
  std::string nearest(std::string_view name) const;

  const PEFTHelper& peft_;
  std::span<const LoRATarget> targets_;
  const LoRALoadOptions& options_;
  std::string source_;
  bool shapes_only_;
  std::string of_whole_model_;  // a name of a model that also sees, where the file has such
  bool as_in_5_ = false;        // made with transformers of version 5 or later, which calls some modules otherwise
  std::map<std::string, Place, std::less<>> places_;
  LoRAModel model_;
  ProblemList problems_;
  std::set<std::string> used_token_configs_;
};

}  // namespace choral::lora
