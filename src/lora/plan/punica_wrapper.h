// The step's LoRA plan and its execution, after the wrapper of that name in other engines. update_metadata() is called once a
// step and turns its segments into groups of rows with the same voice. Every layer then runs that plan. Code that gathers rows
// anew (the head, experts) asks row_groups() for the new groups. Base rows are in no group, so they cost nothing.
// On a device that computes adapters itself (use_device()) StackedAdapters runs the groups whose voice has a slot, and the host
// runs the others. Engine thread; the work is divided over the context's pool. Nothing allocates in a steady state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lora/plan/lora_segment.h"
#include "lora/plan/row_group.h"
#include "lora/stacked/stacked_adapters.h"
#include "lora/target.h"
#include "platform/context.h"

namespace choral::lora {

// What one target adds to one group's rows, ready for the epilogue.
struct GroupShare {
  int64_t row_begin = 0;
  int64_t row_count = 0;
  std::span<const kernels::LoRAShrink> shrinks = {};  // what makes the terms' middles
  std::span<const kernels::LoRATerm> terms = {};      // middles of all the group's rows
  bool plain = true;                                  // may be added to the result; else it must meet the base's bare product
  const PackedModule* replacement = nullptr;          // columns of it come from `values` instead of the base's product
  MatrixView<float> values = {};                      // [rows, out]; only replaced columns are filled
  MatrixView<float> token_values = {};                // [rows, replacement->token_ids]
};

// What is computed of a layer's outputs: all of them, or of a rank of a divided model those that it holds.
struct LayerOutput {
  LayerOutput(MatrixView<float> all) : y(all), outputs(all.cols) {}  // NOLINT(google-explicit-constructor)
  LayerOutput(MatrixView<float> own, std::span<const HeldColumns> held_columns, int64_t all)
      : y(own), held(held_columns), outputs(all) {}

  MatrixView<float> y;                     // [rows, the held columns]
  std::span<const HeldColumns> held = {};  // empty: y has all columns
  int64_t outputs;                         // of the whole layer
};

class PunicaWrapper {
 public:
  // fully_sharded: as LoRAConfig has it.
  explicit PunicaWrapper(int64_t max_num_seqs, bool fully_sharded = false);
  // From now on; null: the host again. They outlive this.
  void use_device(StackedAdapters* adapters) { device_ = adapters; }

  // voices[i] is that of segments[i], and outlives the step. Segments ascend and share no row; rows in none are the base's.
  void update_metadata(std::span<const LoRASegment> segments, std::span<const PackedVoice* const> voices, StepRows rows = {});
  // No step.
  void clear() { token_groups_.clear(), host_groups_.clear(); }
  // No row of the step has an adapter.
  bool no_lora() const { return token_groups_.empty(); }
  std::span<const RowGroup> token_groups() const { return token_groups_; }
  // The groups of rows that were gathered from the step's: row i of them is the step's row rows[i], in any order, one maybe
  // several times. They live in `scratch`.
  std::span<const RowGroup> row_groups(std::span<const int32_t> rows, Arena& scratch) const;

  // The base product into `y`, with the layer's own epilogue and what adapters want of it; a bias is its own.
  using BaseProduct = StackedAdapters::BaseProduct;
  // y = base(x) + every group's share, for the linear layer that is target `target`; with add, y += that. x [tokens, in]
  void add_lora_linear(const platform::Context& ctx, int target, MatrixView<const float> x, bool add, const LayerOutput& out,
                       BaseProduct base) const;
  // The same for rows that are not the step's own: `groups` ascend and share no row of x.
  void add_lora_linear(const platform::Context& ctx, int target, std::span<const RowGroup> groups, MatrixView<const float> x,
                       bool add, const LayerOutput& out, BaseProduct base) const;
  // The same for several layers at once, each with rows of its own from `row_begin` on, ascending, in which its groups count. Not
  // where a device computes adapters, which takes one layer after the other.
  struct TargetRows {
    int target = -1;
    int64_t row_begin = 0;
    std::span<const RowGroup> groups;
  };
  void add_lora_grouped(const platform::Context& ctx, std::span<const TargetRows> targets, MatrixView<const float> x,
                        const LayerOutput& out, BaseProduct base) const;
  bool on_device() const { return device_ != nullptr; }
  // For a projection that latent attention absorbs, in two halves, whose columns of the layer's output `columns` are. Of keys: y
  // holds base's product of q, each head's with its part of W, and gets what adapters add to it; base is given q as DoRA rescales
  // it. q [tokens, heads·(columns.count or more)], y [tokens, heads·(in or more)]
  using AbsorbedProduct = FunctionRef<void(MatrixView<const float> q)>;
  void add_lora_absorbed(const platform::Context& ctx, int target, const kernels::HeadColumns& columns, MatrixView<const float> q,
                         MatrixView<float> y, AbsorbedProduct base) const;
  // Of values: y = base(x) + every group's share, head by head. x [tokens, heads·in], y [tokens, heads·columns.count]
  void add_lora_heads(const platform::Context& ctx, int target, const kernels::HeadColumns& columns, MatrixView<const float> x,
                      MatrixView<float> y, FunctionRef<void()> base) const;
  // As a linear layer, for the head: row i of x is row rows[i] of the step.
  void add_lora_logits(const platform::Context& ctx, int target, MatrixView<const float> x, std::span<const int32_t> rows,
                       const LayerOutput& out, BaseProduct base) const;
  // Tokens that the voice of a row of the step brings: its logits go on with theirs.
  int64_t own_tokens(int64_t row) const;
  // Their logits, of the same rows: y's columns follow the base's. What a row's voice does not bring is not written. [rows, most]
  void fill_own_logits(const platform::Context& ctx, int target, MatrixView<const float> x, std::span<const int32_t> rows,
                       MatrixView<float> y) const;
  // `out` holds the base's rows of `ids`, or anything where a voice has the token alone; groups' shares and replacements are put
  // in. [tokens, hidden]
  void add_lora_embedding(const platform::Context& ctx, int target, platform::IndexArray<int32_t> ids,
                          MatrixView<float> out) const;
  // Calls run(row_begin, row_count, vectors) for runs of rows that cover all of [0, rows): vectors[i], on the device, are the
  // group's replacements of the norm targets[i]'s, empty for the base's.
  struct NormVectors {
    std::span<const float> weight = {}, bias = {};
  };
  using NormRun = FunctionRef<void(int64_t row_begin, int64_t row_count, std::span<const NormVectors> vectors)>;
  static constexpr size_t kNormsAtOnce = 2;  // q_norm and k_norm
  void for_each_norm(const platform::Context& ctx, std::span<const int> targets, int64_t rows, NormRun run) const;

 private:
  // The shares of the targets' groups, in the step's arena; nothing is computed yet.
  static std::span<GroupShare> plan(const platform::Context& ctx, std::span<const TargetRows> targets, MatrixView<const float> x);

  // What the target's pairs of a group's voice are, without middles; they live in the step's scratch.
  static std::span<kernels::LoRATerm> terms_of(const platform::Context& ctx, int target, const RowGroup& group);

  // Puts the shares of the tile's rows into it. `tile` holds rows from `row` and columns from `col` of the base's
  // product.
  static void add_expand(CpuLevel level, std::span<const GroupShare> shares, int64_t row, int64_t col, MatrixView<float> tile);
  // The host's share of add_lora_linear().
  void add_on_host(const platform::Context& ctx, std::span<const TargetRows> targets, MatrixView<const float> x,
                   kernels::Epilogue wanted, const LayerOutput& out, BaseProduct base) const;
  std::span<const RowGroup> host_groups() const { return device_ == nullptr ? token_groups_ : host_groups_; }

  bool fully_sharded_;
  std::vector<RowGroup> token_groups_;
  std::vector<RowGroup> host_groups_;  // with a device: those that it does not serve
  StackedAdapters* device_ = nullptr;
};

}  // namespace choral::lora
