// Rotary position embedding. Frequencies follow transformers 4.57 (modeling_rope_utils) step by step in float32; cos and sin are
// tabulated once at load for every position the engine may use, so a step neither allocates nor calls a math library.
//   half-split: pairs (i, i + rotary_dim/2); interleaved: pairs (2i, 2i+1); a' = a·cos − b·sin, b' = b·cos + a·sin.
// Elements from rotary_dim on stay as they are. A table is immutable after make() and may be shared by threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

enum class RotaryScaling { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongRope };

// Names are those of `rope_scaling` in config.json; an empty optional means that the key is absent.
struct RotaryParams {
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;     // even, <= head_dim: int(head_dim · partial_rotary_factor)
  double theta = 10000.0;     // rope_theta
  int64_t max_positions = 0;  // the table holds positions [0, max_positions)
  bool interleaved = false;

  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1.0;
  // original_max_position_embeddings (llama3, yarn, longrope); for dynamic the config's max_position_embeddings.
  int64_t original_max_position = 0;
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0;        // yarn …
  double beta_slow = 1.0;
  bool truncate = true;
  std::optional<double> mscale = {};
  std::optional<double> mscale_all_dim = {};
  std::optional<double> attention_factor = {};  // yarn, longrope: multiplies cos and sin; inferred when absent
  // longrope, rotary_dim/2 each. HF takes the long ones for a forward pass that reaches beyond original_max_position and the
  // short ones otherwise, which would make a row depend on its neighbours; here a table uses one list: long iff max_positions >
  // original_max_position.
  std::vector<float> short_factors = {};
  std::vector<float> long_factors = {};
  std::optional<double> long_attention_factor = {};  // of the long ones, where it is another than attention_factor

  // Divides each frequency, after scaling: GGUF's rope_freqs.weight. Empty or rotary_dim/2 values.
  std::vector<float> frequency_divisors = {};
};

// Dynamic NTK stretches the base with the length of the sequence *being computed*, so cached keys and new ones would disagree and
// a row would depend on chunking; the table uses the stretch for max_positions where that exceeds original_max_position, else
// none (HF's short form).

class RotaryTable {
 public:
  static constexpr int64_t kMaxPositions = int64_t{1} << 21;
  static constexpr int64_t kMaxTableBytes = int64_t{4} << 30;

  RotaryTable() = default;
  static Result<RotaryTable> make(const RotaryParams& params);

  int64_t head_dim() const { return head_dim_; }
  int64_t rotary_dim() const { return rotary_dim_; }
  int64_t max_positions() const { return max_positions_; }
  bool interleaved() const { return interleaved_; }
  float attention_factor() const { return attention_factor_; }          // already in cos and sin
  std::span<const float> inv_freq() const { return inv_freq_; }         // [rotary_dim/2]
  std::span<const float> values() const { return table_.as<float>(); }  // [max_positions][cos: rotary_dim/2, sin: rotary_dim/2]
  const float* cos_row(int64_t position) const { return table_.as<float>().data() + position * rotary_dim_; }  // [rotary_dim/2]
  const float* sin_row(int64_t position) const { return cos_row(position) + rotary_dim_ / 2; }

 private:
  Status fill();

  int64_t head_dim_ = 0, rotary_dim_ = 0, max_positions_ = 0;
  bool interleaved_ = false;
  float attention_factor_ = 1.0f;
  std::vector<float> inv_freq_;
  AlignedBuffer table_;  // [max_positions][cos: rotary_dim/2, sin: rotary_dim/2]
};

// Rotates every head of x [tokens, heads · head_dim] in place; positions [tokens], each in [0, table.max_positions()).
void apply_rotary(const Context& ctx, const RotaryTable& table, std::span<const int32_t> positions, MatrixView<float> x,
                  int64_t heads);

// The same for q [tokens, heads · head_dim] and k [tokens, kv_heads · head_dim] in one pass over the tokens.
void apply_rotary(const Context& ctx, const RotaryTable& table, std::span<const int32_t> positions, MatrixView<float> q,
                  int64_t heads, MatrixView<float> k, int64_t kv_heads);

}  // namespace choral::kernels
