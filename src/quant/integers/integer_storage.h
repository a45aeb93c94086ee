// How the integers of a linear layer's weight stand in a checkpoint, or are made of floats: what every scheme over integers reads
// them through. A format is one file here and says which tensors it has and how they become rows of int8; what is multiplied with
// them is the scheme's (quant/schemes). Stateless: one object serves many layers, in several threads.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/gemm/pack_spec.h"
#include "platform/context.h"
#include "quant/linear_method.h"

namespace choral::quant {

// One shard: w[i, j] = scale[i, group of j] · (q[i, j] − zero[i, group of j]).
struct IntegerWeight {
  kernels::WeightRows q = {};                      // int8 [rows, k], a byte each
  Tensor memory = {};                              // of q, unless it is the checkpoint's own
  int64_t group_size = 0;                          // k of a scale; 0: all of them
  std::vector<float> scales = {};                  // [rows, groups], rows as stored
  std::vector<int16_t> zeros = {};                 // as many, or none: all are 0
  std::vector<int32_t> k_order = {};               // column j of q belongs to x[k_order[j]]; empty: to x[j]
  std::optional<kernels::StaticQuant> input = {};  // x has a scale of its own, which `scales` hold
};

// Consecutive members in one matrix: columns [begin, begin + matrix->n()) of y.
struct PackedRun {
  int64_t begin = 0;
  std::unique_ptr<kernels::PackedMatrix> matrix;
};

class IntegerStorage {
 public:
  virtual ~IntegerStorage() = default;

  virtual int bits() const = 0;  // of a weight in memory: 4 (q from -8 to 7) or 8
  virtual kernels::Codebook codebook() const { return kernels::Codebook::kLinear; }
  // Registers what the checkpoint holds of a layer, its bias apart.
  virtual void create_weights(const LinearShape& shape, ParameterSet& parameters) const = 0;
  // What they take in memory, padding apart, and their scales there: floats, which are half floats in most checkpoints.
  virtual int64_t expected_bytes(const LinearShape& shape, const ParameterSet& parameters) const {
    const int64_t scales =
        std::max<int64_t>(shape.out_total() * static_cast<int64_t>(sizeof(float)), 2 * parameters.companion_bytes());
    return shape.in * shape.out_total() * bits() / 8 + scales;
  }
  // Member `shard` of what was loaded. Its q may be a view of the checkpoint's bytes.
  virtual Result<IntegerWeight> read(const platform::Context& ctx, const LinearShape& shape, ParameterSet& parameters,
                                     size_t shard) const = 0;
};

// What a checkpoint says of its integers.
struct IntegerFormat {
  int bits = 8;            // 2 to 8 in the checkpoint
  int64_t group_size = 0;  // k of a scale; 0: one for each output channel
  bool one_scale = false;  // for the whole tensor
  bool symmetric = true;   // no zero points
  bool g_idx = false;      // each k names its group
};

// compressed-tensors: `weight` int8 [n, k], a byte each; `weight_scale`, `weight_zero_point`.
std::shared_ptr<const IntegerStorage> int8_rows(const IntegerFormat& format);
// compressed-tensors: `weight_packed` int32 [n, k · bits / 32] along k, zero points packed along n.
std::shared_ptr<const IntegerStorage> packed_rows(const IntegerFormat& format);
// AutoAWQ's gemm layout: `qweight` int32 [k, n / 8], channels interleaved.
std::shared_ptr<const IntegerStorage> awq_columns(const IntegerFormat& format);
// GPTQ: `qweight` int32 [k · bits / 32, n]. Zero points are stored less one in version 1.
enum class GptqVersion : uint8_t { k1, k2 };
std::shared_ptr<const IntegerStorage> gptq_columns(const IntegerFormat& format, GptqVersion version);
// compressed-tensors' mxfp4: `weight_packed` uint8 [n, k / 2], a power of two for each 32 k.
std::shared_ptr<const IntegerStorage> e2m1_rows();
// ModelSlim: `weight` int8 [n, k], or [n / 2, k] with two channels in a byte; scales and offsets as columns, a second level of
// scales for each group.
enum class ModelSlimBytes : uint8_t { kOne, kPair };
std::shared_ptr<const IntegerStorage> modelslim_rows(const IntegerFormat& format, ModelSlimBytes bytes,
                                                     Presence scales = Presence::kRequired);
// A float checkpoint's `weight`, rounded while it is loaded (quant/rounded_weight.h).
std::shared_ptr<const IntegerStorage> rounded_floats(int bits);

// The matrices of all members as `storage` read them, neighbours that can be multiplied as one together.
Result<std::vector<PackedRun>> pack_runs(const platform::Context& ctx, const IntegerStorage& storage, kernels::Activations x,
                                         std::span<const IntegerWeight> weights);
// storage.read() of every member, then pack_runs().
Result<std::vector<PackedRun>> pack_members(const platform::Context& ctx, const LinearShape& shape, ParameterSet& parameters,
                                            const IntegerStorage& storage, kernels::Activations x);

}  // namespace choral::quant
