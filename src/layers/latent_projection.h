// Latent attention's kv_b_proj, whose rows of head h are [W_UK | W_UV]: what makes keys and what makes values of a latent c.
// Neither is made. A query meets the latents themselves, and what attention gives is a latent:
//   q·(W_UK·c) = (q·W_UK)·c,   Σ p·(W_UV·c) = W_UV·(Σ p·c)
// So W is held once, as two matrices of floats a head, W_UK turned round; one that is stored in integers or blocks becomes
// floats. Adapters act on both halves, with the rows whose queries and outputs they are (PunicaWrapper::add_lora_absorbed). A
// PluggableLayer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/module.h"
#include "lora/plan/punica_wrapper.h"

namespace choral::layers {

class LatentProjection : public Module {
 public:
  static constexpr std::string_view kLayerName = "latent_projection";
  struct Spec {
    std::string prefix;
    int64_t heads = 0;
    int64_t rank = 0;  // of the latent
    int64_t key_dim = 0;
    int64_t value_dim = 0;
    std::optional<Share> own = {};  // heads that a rank has, and computes alone; none: all
  };
  LatentProjection(Builder& builder, const Spec& spec);
  // Whether a rank may have spec.own alone.
  static bool may_own(const Builder& builder, const Spec& spec);

  // Of the own heads: the first rank() of each head of y = those key_dim of q · W_UK. q [tokens, heads·(key_dim or more)], y
  // [tokens, heads·(rank or more)]
  virtual void absorb_queries(const platform::Context& ctx, MatrixView<const float> q, MatrixView<float> y,
                              const lora::PunicaWrapper* lora) const;
  // Each head of y = W_UV · that of x. x [tokens, heads·rank], y [tokens, heads·value_dim]
  virtual void make_values(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                           const lora::PunicaWrapper* lora) const;

  Status load_weights(quant::WeightSource& source) override;
  Status process_weights_after_loading(const platform::Context& ctx, quant::WeightSource& source) override;
  std::string prefix() const override { return spec_.prefix; }
  int64_t expected_bytes(const quant::WeightRequest& request) const override;
  int64_t weight_bytes() const override;
  int64_t parameters() const override { return spec_.heads * head_rows() * spec_.rank; }  // of all ranks
  std::optional<ProductForm> product_form(CpuLevel level) const override;
  std::string format() const override;
  std::string kernel_name(CpuLevel level) const override;

 private:
  struct Head {
    std::unique_ptr<kernels::PackedMatrix> keys;    // W_UKᵀ [rank, key_dim]
    std::unique_ptr<kernels::PackedMatrix> values;  // W_UV [value_dim, rank]
  };
  int64_t head_rows() const { return spec_.key_dim + spec_.value_dim; }
  int64_t own_heads() const { return key_columns_.heads; }
  DType stored_type(const quant::WeightRequest& request) const;
  Result<Head> make_head(const platform::Context& ctx, int64_t head, kernels::PackSpec form) const;
  // Row `row` of kv_b_proj's, of the own heads.
  Status read_row(int64_t row, std::span<float> out) const;
  // Each head's product, the first columns of x's head by the first of y's.
  void multiply(const platform::Context& ctx, std::unique_ptr<kernels::PackedMatrix> Head::*part, MatrixView<const float> x,
                MatrixView<float> y) const;
  void count_product(const platform::Context& ctx, int64_t rows, int64_t dim) const;

  Spec spec_;
  quant::LinearShape shape_;  // of the own heads
  kernels::HeadColumns key_columns_, value_columns_;
  std::unique_ptr<quant::LinearMethod> loading_;  // until the heads are made
  quant::ParameterSet parameters_;
  std::vector<Head> heads_;
  std::string why_;
  int lora_target_ = -1;
};

}  // namespace choral::layers
