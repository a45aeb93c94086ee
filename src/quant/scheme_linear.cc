#include "quant/scheme_linear.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "platform/host_view.h"
#include "quant/packed_layers.h"
#include "quant/shards.h"

namespace choral::quant {
namespace {

class SchemeLinearMethod : public LinearMethod {
 public:
  explicit SchemeLinearMethod(LayerScheme chosen) : scheme_(std::move(chosen.scheme)), why_(std::move(chosen.why)) {}

  void create_weights(const LinearShape& shape, ParameterSet& parameters) override {
    scheme_->create_weights(shape, parameters);
    if (!shape.bias || scheme_->holds_bias()) return;
    for_each_shard(shape, parameters.add("bias", StoredAs::kFloatOrBlocks), ".bias", [](int64_t out) { return Shape{out}; });
  }

  Status process_weights_after_loading(const platform::Context& ctx, const WeightRequest& request, const LinearShape& shape,
                                       ParameterSet& parameters, PackedLayers* kept) override {
    CHORAL_TRY(PackedLayer packed, pack(ctx, request, shape, parameters, kept));
    runs_ = std::move(packed.runs);
    if (scheme_->holds_bias()) {
      bias_.host().assign(packed.bias.begin(), packed.bias.end());
    } else if (shape.bias) {
      load_bias(parameters.get("bias"), request, shape.out_total());
    }
    return bias_.host().empty() ? Status() : bias_.keep(ctx.session);
  }

  int64_t expected_bytes(const WeightRequest& request, const LinearShape& shape, const ParameterSet& parameters) const override {
    return scheme_->expected_bytes(request, shape, parameters);
  }

  void apply(const platform::Context& ctx, MatrixView<const float> x, const kernels::Epilogue& epilogue,
             MatrixView<float> y) const override {
    for_each_run(epilogue, y, [&](const kernels::PackedMatrix& matrix, const kernels::Epilogue& own, MatrixView<float> part) {
      ctx.ops.matmul(ctx, matrix, x, own, part);
    });
  }

  bool for_each_product(MatrixView<const float> x, const kernels::Epilogue& epilogue, MatrixView<float> y,
                        TakeProduct take) const override {
    for_each_run(epilogue, y, [&](const kernels::PackedMatrix& matrix, const kernels::Epilogue& own, MatrixView<float> part) {
      take({&matrix, {x, {}}, own, part});
    });
    return true;
  }

  std::optional<kernels::RowForm> quantised_input(CpuLevel level) const override {
    if (runs_.empty()) return std::nullopt;
    const auto first = runs_.front().matrix->quantised_input(level);
    for (const auto& run : runs_) {
      if (run.matrix->quantised_input(level) != first) return std::nullopt;
    }
    return first;
  }

  void apply_quantised(const platform::Context& ctx, const kernels::QuantisedRows& x, const kernels::Epilogue& epilogue,
                       MatrixView<float> y) const override {
    for_each_run(epilogue, y, [&](const kernels::PackedMatrix& matrix, const kernels::Epilogue& own, MatrixView<float> part) {
      ctx.ops.matmul_quantised(ctx, matrix, x, own, part);
    });
  }

  void gather_rows(const platform::Context& ctx, platform::IndexArray<int32_t> ids, MatrixView<float> out) const override {
    CHORAL_CHECK(runs_.size() == 1, "an embedding is one matrix");
    ctx.ops.gather_rows(ctx, *runs_.front().matrix, ids, out);
  }

  Status read_row(int64_t row, std::span<float> out) const override {
    auto run = runs_.begin();
    while (run + 1 != runs_.end() && row >= (run + 1)->begin) ++run;
    return run->matrix->read_row(row - run->begin, out);
  }
  std::span<const float> bias() const override { return bias_.host(); }

  int64_t size_bytes() const override {
    int64_t total = static_cast<int64_t>(bias().size_bytes());
    for (const auto& run : runs_) total += run.matrix->size_bytes();
    return total;
  }

  std::string scheme() const override { return scheme_->name().empty() ? format() : scheme_->name(); }
  std::string why() const override { return why_; }
  std::string format() const override {
    return joined([](const kernels::PackedMatrix& m) { return m.format(); });
  }
  std::string kernel_name(CpuLevel level) const override {
    return joined([level](const kernels::PackedMatrix& m) { return m.kernel_name(level); });
  }

 private:
  // What was kept of an earlier load, else made of what was loaded.
  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest& request, const LinearShape& shape,
                           ParameterSet& parameters, PackedLayers* kept) const {
    if (kept == nullptr) return scheme_->pack(ctx, request, shape, parameters);
    const std::string key = layer_key(shape, scheme_->name());
    if (auto found = kept->take(key, shape)) return std::move(*found);
    CHORAL_TRY(PackedLayer packed, scheme_->pack(ctx, request, shape, parameters));
    kept->keep(key, packed);
    return packed;
  }

  // Calls multiply(matrix, its epilogue, its columns of y) for each run.
  template <class Multiply>
  void for_each_run(const kernels::Epilogue& epilogue, MatrixView<float> y, Multiply multiply) const {
    for (const auto& run : runs_) {
      kernels::Epilogue own = epilogue;
      own.bias = bias_of(run);
      own.col += run.begin;
      multiply(*run.matrix, own, y.sub_cols(run.begin, run.matrix->n()));
    }
  }

  // Where the matrix's arithmetic runs.
  const float* bias_of(const PackedRun& run) const {
    const auto bias = run.matrix->on_device() ? bias_.on_device() : bias_.host();
    return bias.empty() ? nullptr : bias.data() + run.begin;
  }

  void load_bias(const Parameter& parameter, const WeightRequest& request, int64_t out_total) {
    bias_.host().resize(out_total);
    int64_t begin = 0;
    for (const auto& shard : parameter.shards) {
      const int64_t rows = shard.shape.elements();
      read_vector(shard.tensor, request, std::span(bias_.host()).subspan(begin, rows));
      begin += rows;
    }
  }

  template <class Name>
  std::string joined(Name name) const {
    std::vector<std::string> names;  // each once
    for (const auto& run : runs_) {
      std::string one = name(*run.matrix);
      if (std::find(names.begin(), names.end(), one) == names.end()) names.push_back(std::move(one));
    }
    return fmt::format("{}", fmt::join(names, "+"));
  }

  SchemePtr scheme_;
  std::string why_;
  std::vector<PackedRun> runs_;
  platform::KeptVector bias_;
};

}  // namespace

std::unique_ptr<LinearMethod> make_scheme_linear_method(LayerScheme chosen) {
  return std::make_unique<SchemeLinearMethod>(std::move(chosen));
}

}  // namespace choral::quant
