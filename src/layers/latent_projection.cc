#include "layers/latent_projection.h"

#include <algorithm>
#include <cmath>

#include "base/float16.h"
#include "platform/ops/op_profile.h"
#include "platform/ops/op_table.h"
#include "quant/held_rows.h"

namespace choral::layers {
namespace {

constexpr float kGreatestFloat16 = 65504;

bool is_plain_float(DType type) { return type == DType::kF32 || type == DType::kBF16 || type == DType::kF16; }

// W [rows, cols] of floats, stored as `type`; turned: its transposed.
Result<Tensor> stored_as(DType type, std::span<const float> w, int64_t rows, int64_t cols, bool turned) {
  CHORAL_TRY(Tensor out, Tensor::allocate(type, turned ? Shape{cols, rows} : Shape{rows, cols}));
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t at = turned ? i % cols * rows + i / cols : i;
    switch (type) {
      case DType::kBF16: out.as<BFloat16>()[at] = to_bfloat16(w[i]); break;
      case DType::kF16: out.as<Float16>()[at] = to_float16(w[i]); break;
      default: out.as<float>()[at] = w[i];
    }
  }
  return out;
}

Result<std::unique_ptr<kernels::PackedMatrix>> pack(const platform::Context& ctx, kernels::PackSpec form,
                                                    std::span<const float> w, int64_t rows, int64_t cols, bool turned) {
  CHORAL_TRY(const Tensor stored, stored_as(form.format, w, rows, cols, turned));
  const kernels::WeightRows part{stored.view(), {}};
  form.rows = {&part, 1};
  return ctx.session.prepack(ctx, form);
}

Share heads_of(const LatentProjection::Spec& spec) { return spec.own.value_or(Share{0, spec.heads}); }

// Of the heads that are a rank's own.
quant::LinearShape shape_of(const LatentProjection::Spec& spec) {
  const int64_t rows = spec.key_dim + spec.value_dim;  // of a head
  quant::LinearShape whole{.in = spec.rank, .out = {spec.heads * rows}, .shard_names = {spec.prefix}};
  if (!spec.own) return whole;
  quant::LinearShape held{.in = spec.rank, .out = {}, .shard_names = {}};
  quant::hold_rows(whole, spec.own->begin * rows, spec.own->count * rows, held);
  return held;
}

}  // namespace

LatentProjection::LatentProjection(Builder& builder, const Spec& spec)
    : spec_(spec),
      shape_(shape_of(spec)),
      key_columns_{.heads = heads_of(spec).count,
                   .begin = heads_of(spec).begin * head_rows(),
                   .stride = head_rows(),
                   .count = spec.key_dim},
      value_columns_{.heads = heads_of(spec).count,
                     .begin = heads_of(spec).begin * head_rows() + spec.key_dim,
                     .stride = head_rows(),
                     .count = spec.value_dim} {
  auto method = builder.quant_config.get_quant_method(quant::LayerKind::kAbsorbed, shape_);
  if (!method.ok()) {
    builder.fail(std::move(method).status().while_(spec_.prefix));
    return;
  }
  loading_ = std::move(*method);
  loading_->create_weights(shape_, parameters_);
  builder.modules.push_back(this);
  lora::LoRATarget target{
      .name = spec_.prefix, .members = {{spec_.prefix, spec_.heads * head_rows()}}, .in = spec_.rank, .absorbed = true};
  if (spec_.own) target.held = {{key_columns_.begin, 0, shape_.out_total()}};
  target.base_row = [this](int64_t row, std::span<float> out) { return read_row(row, out); };
  lora_target_ = builder.add_lora_target(std::move(target));
}

bool LatentProjection::may_own(const Builder& builder, const Spec& spec) {
  const quant::LinearShape shape = shape_of(spec);
  const auto method = builder.quant_config.get_quant_method(quant::LayerKind::kAbsorbed, shape);
  return method.ok() && quant::may_hold(**method, shape);
}

Status LatentProjection::load_weights(quant::WeightSource& source) {
  if (!spec_.own) return parameters_.weight_loader(source);
  return quant::load_held_rows(*loading_, shape_, source, parameters_);
}

DType LatentProjection::stored_type(const quant::WeightRequest& request) const {
  if (!request.as_stored && is_plain_float(request.convert_to)) return request.convert_to;
  const auto* weight = parameters_.find("weight");  // formats of integers may call it otherwise
  const DType stored = weight == nullptr ? DType::kI8 : weight->shards.front().tensor.view.dtype;
  return is_plain_float(stored) ? stored : DType::kF16;
}

Status LatentProjection::process_weights_after_loading(const platform::Context& ctx, quant::WeightSource& source) {
  CHORAL_RETURN_IF_ERROR(quant::cut_held_rows(ctx, parameters_));
  CHORAL_RETURN_IF_ERROR(loading_->process_weights_after_loading(ctx, source.request(), shape_, parameters_));
  const kernels::PackSpec form{.rows = {}, .format = stored_type(source.request()), .activations = source.request().activations};
  parameters_.release(source);
  for (int64_t head = 0; head < own_heads(); ++head) {
    CHORAL_TRY(auto made, make_head(ctx, head, form));
    heads_.push_back(std::move(made));
  }
  why_ = fmt::format("{}, {}: absorbed by queries and outputs", loading_->scheme(), loading_->why());
  loading_.reset();
  return {};
}

Result<LatentProjection::Head> LatentProjection::make_head(const platform::Context& ctx, int64_t head,
                                                           kernels::PackSpec form) const {
  const int64_t rank = spec_.rank, rows = head_rows();
  std::vector<float> w(rows * rank);
  for (int64_t i = 0; i < rows; ++i) {
    CHORAL_RETURN_IF_ERROR(loading_->read_row(head * rows + i, std::span(w).subspan(i * rank, rank)).while_(spec_.prefix));
  }
  const auto fits = [](float v) { return std::abs(v) <= kGreatestFloat16; };
  if (form.format == DType::kF16 && !std::all_of(w.begin(), w.end(), fits)) form.format = DType::kF32;
  Head out;
  const auto keys = std::span(w).first(spec_.key_dim * rank), values = std::span(w).subspan(spec_.key_dim * rank);
  CHORAL_TRY(out.keys, pack(ctx, form, keys, spec_.key_dim, rank, /*turned=*/true));
  CHORAL_TRY(out.values, pack(ctx, form, values, spec_.value_dim, rank, /*turned=*/false));
  return out;
}

Status LatentProjection::read_row(int64_t row, std::span<float> out) const {
  const Head& head = heads_[row / head_rows()];
  const int64_t at = row % head_rows();
  if (at >= spec_.key_dim) return head.values->read_row(at - spec_.key_dim, out);
  std::vector<float> column(spec_.key_dim);
  for (int64_t l = 0; l < spec_.rank; ++l) {
    CHORAL_RETURN_IF_ERROR(head.keys->read_row(l, column));
    out[l] = column[at];
  }
  return {};
}

void LatentProjection::count_product(const platform::Context& ctx, int64_t rows, int64_t dim) const {
  if (ctx.profile == nullptr) return;
  const double share = static_cast<double>(dim) / static_cast<double>(head_rows());
  ctx.profile->add_product(share * static_cast<double>(weight_bytes()),
                           2.0 * static_cast<double>(rows * own_heads() * dim * spec_.rank));
}

void LatentProjection::multiply(const platform::Context& ctx, std::unique_ptr<kernels::PackedMatrix> Head::*part,
                                MatrixView<const float> x, MatrixView<float> y) const {
  const int64_t from = x.cols / own_heads(), to = y.cols / own_heads();
  const auto products = ctx.kernel.scratch.make<kernels::GroupProduct>(own_heads());
  for (int64_t h = 0; h < own_heads(); ++h) {
    const auto& w = *(heads_[h].*part);
    products[h] = {.w = &w, .x = {x.sub_cols(h * from, w.k()), {}}, .epilogue = {}, .y = y.sub_cols(h * to, w.n())};
  }
  ctx.ops.grouped_matmul(ctx, products);
}

void LatentProjection::absorb_queries(const platform::Context& ctx, MatrixView<const float> q, MatrixView<float> y,
                                      const lora::PunicaWrapper* lora) const {
  count_product(ctx, q.rows, spec_.key_dim);
  const auto base = [&](MatrixView<const float> x) { multiply(ctx, &Head::keys, x, y); };
  if (lora == nullptr) return base(q);
  lora->add_lora_absorbed(ctx, lora_target_, key_columns_, q, y, base);
}

void LatentProjection::make_values(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                                   const lora::PunicaWrapper* lora) const {
  count_product(ctx, x.rows, spec_.value_dim);
  const auto base = [&] { multiply(ctx, &Head::values, x, y); };
  if (lora == nullptr) return base();
  lora->add_lora_heads(ctx, lora_target_, value_columns_, x, y, base);
}

int64_t LatentProjection::expected_bytes(const quant::WeightRequest& request) const {
  return row_bytes(stored_type(request), shape_.out_total() * spec_.rank);
}

int64_t LatentProjection::weight_bytes() const {
  int64_t total = 0;
  for (const Head& head : heads_) total += head.keys->size_bytes() + head.values->size_bytes();
  return total;
}

std::optional<ProductForm> LatentProjection::product_form(CpuLevel level) const {
  return ProductForm{format(), kernel_name(level), why_};
}

std::string LatentProjection::format() const { return heads_.empty() ? "" : heads_.front().keys->format(); }

std::string LatentProjection::kernel_name(CpuLevel level) const {
  return heads_.empty() ? "" : heads_.front().keys->kernel_name(level);
}

}  // namespace choral::layers
