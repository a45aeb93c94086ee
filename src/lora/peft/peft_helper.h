// Reads adapter_config.json by PEFT's own rules: which modules are adapted, at which rank, alpha and scale. A key that Choral
// cannot serve is refused by its name. Nothing is dropped silently: `notes` lists the keys that were read and do not matter. A
// GGUF adapter (llama.cpp) has its few facts in the file's metadata and reads into the same class. A value; const calls are
// thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/config_map.h"
#include "io/gguf.h"
#include "io/module_pattern.h"
#include "io/regular_file.h"
#include "lora/lora_config.h"
#include "lora/problem_list.h"
#include "lora/target.h"

namespace choral::lora {

inline constexpr double kMostAlpha = 1e9;  // a scale beyond it is no training result, and must not overflow a float

struct PEFTLimits {
  uint64_t max_config_bytes = 4 << 20;
  size_t max_names = 8192;   // target_modules, modules_to_save, …; entries of rank_pattern and alpha_pattern
  size_t max_regexes = 256;  // of those entries that are more than plain names
  size_t max_token_ids = 1 << 20;
};

enum class PEFTBias : uint8_t { kNone, kAll, kLoraOnly };

class PEFTHelper {
 public:
  // `path` is a directory with adapter_config.json (or with nothing but one GGUF adapter), or a .gguf file. Fails for what cannot
  // be read: no file, no JSON, a value of the wrong type. What is read but not allowed waits for validate_legal().
  static Result<PEFTHelper> from_local_dir(const std::filesystem::path& path, const PEFTLimits& limits = {});
  static Result<PEFTHelper> from_config(const io::ConfigMap& config, const PEFTLimits& limits = {});
  static Result<PEFTHelper> from_gguf(const io::GgufFile& file);

  // kUnavailable when the adapter_config.json that from_local_dir() read is not there as it was: asked after the tensors were
  // read, it says that both were there at one time. A GGUF file is config and tensors in one.
  Status check_unchanged() const;

  // All problems in one error, one a line: what Choral does not support (by key, with what to do), and what `config` forbids.
  Status validate_legal(const LoRAConfig& config) const;
  // The first half alone: what no configuration would allow.
  const ProblemList& problems() const { return problems_; }

  // PEFT's get_pattern_key: the first key of the pattern table that matches wins; else r and lora_alpha.
  Result<int64_t> rank_for(std::string_view module) const;
  Result<double> alpha_for(std::string_view module) const;
  // What B·A is multiplied with: alpha / rank, with use_rslora alpha / sqrt(rank). `rank` is the tensors' own.
  Result<double> scaling_for(std::string_view module, int64_t rank) const;
  Result<double> scaling_for(std::string_view module) const;  // at rank_for(module)
  // PEFT's check_target_module_exists: whether the config adapts `module`, which is of this kind ("all-linear" means kLinear
  // only). Always true when targets_known is false.
  Result<bool> targets(std::string_view module, TargetKind kind) const;
  // Whether modules_to_save names `module`, or one that it lies in. PEFT asks only for the same end: "norm" names
  // "model.norm" and "input_layernorm", "mlp" names "model.layers.0.mlp" with all that it holds.
  bool saves(std::string_view module) const;
  static bool is_saved_by(std::string_view wanted, std::string_view module);
  // PEFT adds both names that heads of classes have, whichever a model has.
  static constexpr const char* kClassesTask = "SEQ_CLS";
  bool adds_by_itself(std::string_view wanted) const {
    return task_type == kClassesTask && (wanted == "classifier" || wanted == "score");
  }
  int64_t largest_rank() const;    // of r and rank_pattern
  std::string first_kind() const;  // "LoRA", "DoRA", or the word of a peft_type that is refused
  std::string kind() const;        // what its config makes of it: "LoRA", "DoRA, rsLoRA", "LoRA, modules_to_save"

  int64_t r = 8;
  double lora_alpha = 8;
  std::vector<std::string> target_modules;    // as a list …
  std::optional<std::string> target_pattern;  // … or as a regular expression …
  bool all_linear = false;                    // … or "all-linear"
  bool targets_known = true;                  // false for GGUF: what the file holds is what is adapted
  bool ranks_known = true;                    // false for GGUF: each module's rank is its tensors'
  PEFTBias bias = PEFTBias::kNone;
  std::vector<std::string> modules_to_save;
  bool use_rslora = false;
  bool use_dora = false;
  bool lora_bias = false;
  bool fan_in_fan_out = false;  // only says how the base stores W; A and B are the same
  bool ensure_weight_tying = false;
  std::vector<std::pair<std::string, int64_t>> rank_pattern;  // in the file's order
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::optional<std::vector<int64_t>> layers_to_transform;
  std::vector<std::string> layers_pattern;
  std::vector<std::string> exclude_modules;
  std::optional<std::string> exclude_pattern;
  // Module name (or its end) -> rows of its embedding; "embed_tokens" where the config gives a plain list.
  std::vector<std::pair<std::string, std::vector<int32_t>>> trainable_token_indices;
  std::string init_lora_weights = "true";
  std::vector<std::string> target_parameters;
  std::string base_model_name_or_path;
  std::string peft_type = "LORA";
  std::string peft_version;
  std::string task_type;
  std::vector<int32_t> alora_invocation_tokens;
  // Long-context adapters, as vLLM spells them: tokens the adapter was trained for, the base's own, and their quotient.
  int64_t context_length = 0;
  std::optional<int64_t> vllm_max_position_embeddings;
  std::optional<double> vllm_long_context_scaling_factor;
  std::optional<std::string> gguf_architecture;  // "llama": the file is GGUF
  bool gguf_interleaved_qk = false;              // its q and k rows lie in pairs, as in the base's GGUF file

  std::string source;              // the file all this was read from
  std::vector<std::string> notes;  // "lora_dropout: acts in training only"

 private:
  struct PatternTable {
    std::vector<io::ModulePattern> patterns;                     // beside rank_pattern or alpha_pattern
    Result<int64_t> first_match(std::string_view module) const;  // -1: none
  };

  std::optional<io::FileStamp> stamp_;  // of `source`, when it was read from an adapter_config.json

  Status read_targets(const io::ConfigMap& config, const PEFTLimits& limits);
  Status read_scaling(const io::ConfigMap& config, const PEFTLimits& limits);
  Status read_kinds(const io::ConfigMap& config);
  Status read_layers(const io::ConfigMap& config, const PEFTLimits& limits);
  Status read_tokens(const io::ConfigMap& config, const PEFTLimits& limits);
  Status read_long_context(const io::ConfigMap& config);
  void check_other_keys(const io::ConfigMap& config);
  void check_together();
  Result<bool> in_layers(std::string_view module) const;

  PatternTable ranks_, alphas_;
  std::optional<io::ModulePattern> target_regex_, exclude_regex_;
  std::vector<io::ModulePattern> layer_regexes_;
  ProblemList problems_;
};

// The GGUF adapter that `path` names: itself, or the only one in a directory without PEFT files. Nothing when there is none.
std::optional<std::filesystem::path> gguf_adapter_path(const std::filesystem::path& path);

}  // namespace choral::lora
