// Rotary positions of q and k. The table is made once a model, shared by its layers. CustomOp "rotary_embedding".
#pragma once

#include "layers/module.h"
#include "platform/host_view.h"

namespace choral::layers {

class RotaryEmbedding : public platform::CustomOp {
 public:
  static constexpr std::string_view kLayerName = "rotary_embedding";
  using Spec = kernels::RotaryParams;
  RotaryEmbedding(Builder& builder, const Spec& spec);
  virtual ~RotaryEmbedding() = default;

  // In place. q [tokens, heads·head_dim], k [tokens, kv_heads·head_dim]
  virtual void forward(const platform::Context& ctx, platform::IndexArray<int32_t> positions, MatrixView<float> q,
                       MatrixView<float> k) const {
    op_(ctx, placed(), positions, q, k);
  }

  virtual bool may_fuse(std::string_view provider) const { return agrees_with<platform::ops::RotaryEmbedding>(provider); }
  platform::PlacedRotary placed() const { return {table_, on_device_}; }

 private:
  Status make_table(platform::Session& session, const Spec& spec);

  kernels::RotaryTable table_;
  Tensor copy_;  // on a device that can't read the host's
  const float* on_device_ = nullptr;
  const platform::OpOf<platform::ops::RotaryEmbedding>& op_;
};

}  // namespace choral::layers
