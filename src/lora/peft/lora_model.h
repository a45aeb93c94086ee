// An adapter, read and checked against a model: each module's low-rank pair, and everything else a PEFT file can bring. It holds
// all that the adapter does: every tensor of the file is here, or was refused, or is one of the few in `notes` that do not
// matter. Tensors stay in the memory that their file was read into.
// Immutable and thread-safe. Made off the engine thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "lora/lora_config.h"
#include "lora/peft/adapter_file.h"
#include "lora/peft/lora_layer_weights.h"
#include "lora/peft/peft_helper.h"
#include "lora/target.h"

namespace choral::lora {

// Rows of an embedding or a head that the adapter replaces.
struct TrainableTokens {
  std::string module;
  std::vector<int32_t> token_ids;  // as in the config: not sorted; each once; the adapter's own may be among them
  AdapterTensor rows;              // [ids, width]; row i is token_ids[i]'s whole new row, not a difference
};

struct LoRALoadOptions {
  int64_t lora_model_id = 1;
  LoRAConfig config = {};
  AdapterLimits limits = {};
  // What is asked of the model for a GGUF adapter only. 0 and empty: unknown.
  int64_t head_dim = 0;         // rows of one head of q and k, to undo the row order of the llama family
  std::string base_class = {};  // "LlamaForCausalLM"; an adapter that names another's architecture is refused
  // All that the model is called (see base_name.h). Whoever loads an adapter tells the user when it was made for another.
  std::vector<std::string> base_names = {};
  bool strict = false;  // and refuses it
};

class LoRAModel {
 public:
  // Reads and checks `path`'s tensors (a directory of PEFT files, or a .gguf file) for `targets`. A refusal lists all it found.
  static Result<LoRAModel> from_local_checkpoint(const std::filesystem::path& path, const PEFTHelper& peft,
                                                 std::span<const LoRATarget> targets, const LoRALoadOptions& options = {});
  // The same for a file that was read already. Of one whose shapes alone were read, PackedAdapter::packed_bytes() may be asked,
  // and no value. kUnavailable when the config's file is not any more what `config` was read from.
  static Result<LoRAModel> from_adapter_file(const AdapterFile& file, const PEFTHelper& config,
                                             std::span<const LoRATarget> targets, const LoRALoadOptions& options = {});
  // The same for tensors that are in memory, with their names and rows as PEFT has them.
  static Result<LoRAModel> from_lora_tensors(std::span<const NamedTensor> tensors, const PEFTHelper& peft,
                                             std::span<const LoRATarget> targets, const LoRALoadOptions& options = {});

  int64_t id() const { return id_; }
  int64_t rank() const { return rank_; }                          // the largest of its modules'
  float scaling() const { return scaling_; }                      // at r and lora_alpha; modules have their own
  int64_t extra_vocab_size() const { return extra_vocab_size_; }  // tokens of its own, which follow the base's vocabulary
  // Of config and tensors, by canonical names: equal for equal adapters wherever and in whatever container their files are, and
  // however many threads hash. Reads every tensor each time.
  Sha256Digest digest() const;
  Sha256Digest digest(ThreadPool& pool) const;

  // By the names of the targets' members. A pair that a file gives to a fused module ("…qkv_proj") is split into its members'.
  const std::map<std::string, LoRALayerWeights, std::less<>>& loras() const { return loras_; }
  const LoRALayerWeights* get_lora(std::string_view module) const;  // null when the adapter leaves it alone

  // Whole weights that take the base's place (modules_to_save): [out, in], a norm's [size], an embedding's [vocabulary, width].
  const std::map<std::string, AdapterTensor, std::less<>>& replaced_weights() const { return replaced_weights_; }
  // Whole biases that take the base's place (bias = "all", or of a replaced module). [out]
  const std::map<std::string, AdapterTensor, std::less<>>& replaced_biases() const { return replaced_biases_; }
  // Rows of the embedding and the head for tokens beyond the base's vocabulary. Those that trainable_tokens() names have their
  // rows there. [extra, width]
  const std::map<std::string, AdapterTensor, std::less<>>& embeddings_tensors() const { return embeddings_tensors_; }
  // Whether replaced_weights() has `module` only because its file holds the whole layer (save_embedding_layers): it may be the
  // base's own.
  bool may_be_the_base(std::string_view module) const { return saved_layers_.contains(module); }
  // Copies of the base's weights that PEFT saved with it. Not used, but they tell whether the base is the one it was trained on.
  const std::map<std::string, AdapterTensor, std::less<>>& frozen_copies() const { return frozen_copies_; }
  std::span<const TrainableTokens> trainable_tokens() const { return trainable_tokens_; }
  // Those that act on `target`, or null: its own, else, of a tied head, the embedding's.
  const TrainableTokens* trainable_tokens_of(const LoRATarget& target) const;
  std::span<const int32_t> alora_invocation_tokens() const { return alora_invocation_tokens_; }  // empty: acts everywhere

  std::span<const std::string> notes() const { return notes_; }  // what was in the file and does not matter
  int64_t size_bytes() const;                                    // of all tensors that matter

 private:
  friend class LoRALoader;
  LoRAModel() = default;

  int64_t id_ = 0;
  int64_t rank_ = 0;
  float scaling_ = 1.0F;
  int64_t extra_vocab_size_ = 0;
  std::map<std::string, LoRALayerWeights, std::less<>> loras_;
  std::map<std::string, AdapterTensor, std::less<>> replaced_weights_, replaced_biases_, embeddings_tensors_, frozen_copies_;
  std::set<std::string, std::less<>> saved_layers_;
  std::vector<TrainableTokens> trainable_tokens_;
  std::vector<int32_t> alora_invocation_tokens_;
  std::vector<std::string> notes_;
};

}  // namespace choral::lora
