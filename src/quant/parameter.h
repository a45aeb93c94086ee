// The stored tensors of one layer, registered by its quant method (create_weights), filled from the checkpoint (weight_loader),
// packed and let go (process_weights_after_loading). A fused layer has one shard a member: q, k, v.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/weight_source.h"
#include "tensor/tensor.h"

namespace choral::quant {

struct Shard {
  std::string name;  // in the checkpoint: "model.layers.0.self_attn.q_proj.weight"
  Shape shape;
  io::SourceTensor tensor;               // empty view until loaded
  std::vector<Shape> other_shapes = {};  // that are as good
  // Of a rank of a divided model: what it holds of the tensor is to be cut out of it (quant/held_rows.h).
  struct Cut {
    int dim = 0;
    int64_t begin = 0;
    Shape shape = {};  // of what is held
  };
  std::optional<Cut> cut = {};
  Tensor memory = {};  // what was cut out, where it is no part of the file as it lies

  bool loaded() const { return tensor.view.data != nullptr; }
};

// The types that a parameter may have in a checkpoint.
enum class StoredAs : uint8_t {
  kFloat,
  kFloatOrBlocks,
  kInt8,
  kUint8,
  kInt32,
  kInteger,
  kFloatOrInt64,
  kFloat8,
  kFloatOrE8M0,
};
enum class Presence : uint8_t { kRequired, kOptional };

struct Parameter {
  std::string name;  // "weight", "bias", "weight_scale"
  StoredAs stored_as;
  std::vector<Shard> shards;
  Presence presence = Presence::kRequired;  // of each shard
};

// The shard's tensor, in one of its shapes; none, where it need not be there and is not.
Result<io::SourceTensor> load_shard(WeightSource& source, const Parameter& parameter, const Shard& shard);

class ParameterSet {
 public:
  Parameter& add(std::string name, StoredAs stored_as, Presence presence = Presence::kRequired);
  // Must exist: a method asks only for what it registered.
  Parameter& get(std::string_view name);
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Parameter* find(std::string_view name) const;  // null: not registered
  std::span<Parameter> all() { return parameters_; }
  std::span<const Parameter> all() const { return parameters_; }

  // Every registered shard must be in the source if it is required, in a type that is read; the first that is not is named.
  Status weight_loader(WeightSource& source);
  // Of what was loaded: all of it, and what accompanies the largest parameter (its scales, zero points and the like).
  int64_t stored_bytes() const;
  int64_t companion_bytes() const;
  // After packing: the mapped pages of every shard are given back and the views dropped.
  void release(WeightSource& source);

 private:
  std::vector<Parameter> parameters_;
};

}  // namespace choral::quant
