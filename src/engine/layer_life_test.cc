// The times of a layer's life over a whole model: every layer is built and its parameters are created, then all are loaded, then
// all are packed, and only then one is multiplied.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "engine/tiny_model_test.h"
#include "layers/linear.h"
#include "platform/layer_overrides.h"

namespace choral::engine {
namespace {

using layers::Builder;
using layers::RowParallelLinear;

enum class Time { kBuild, kCreateWeights, kLoad, kProcess, kApply };

class Life {
 public:
  void note(Time time) {
    const std::lock_guard lock(mutex_);
    times_.push_back(time);
  }
  std::vector<Time> times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Time> times_;
};

// A layer's method, which notes what it is asked for.
class NotedMethod : public quant::LinearMethod {
 public:
  NotedMethod(std::unique_ptr<quant::LinearMethod> method, Life& life) : method_(std::move(method)), life_(life) {}

  void create_weights(const quant::LinearShape& shape, quant::ParameterSet& parameters) override {
    life_.note(Time::kCreateWeights);
    method_->create_weights(shape, parameters);
  }
  Status process_weights_after_loading(const platform::Context& ctx, const quant::WeightRequest& request,
                                       const quant::LinearShape& shape, quant::ParameterSet& parameters,
                                       quant::PackedLayers* kept) override {
    life_.note(Time::kProcess);
    return method_->process_weights_after_loading(ctx, request, shape, parameters, kept);
  }
  void apply(const platform::Context& ctx, MatrixView<const float> x, const kernels::Epilogue& epilogue,
             MatrixView<float> y) const override {
    life_.note(Time::kApply);
    method_->apply(ctx, x, epilogue, y);
  }
  void gather_rows(const platform::Context& ctx, platform::IndexArray<int32_t> ids, MatrixView<float> out) const override {
    method_->gather_rows(ctx, ids, out);
  }
  Status read_row(int64_t row, std::span<float> out) const override { return method_->read_row(row, out); }
  std::span<const float> bias() const override { return method_->bias(); }
  std::string scheme() const override { return method_->scheme(); }
  std::string why() const override { return method_->why(); }
  int64_t size_bytes() const override { return method_->size_bytes(); }
  std::string format() const override { return method_->format(); }
  std::string kernel_name(CpuLevel level) const override { return method_->kernel_name(level); }

 private:
  std::unique_ptr<quant::LinearMethod> method_;
  Life& life_;
};

class NotedConfig : public quant::QuantConfig {
 public:
  NotedConfig(const quant::QuantConfig& usual, Life& life) : usual_(usual), life_(life) {}
  Result<quant::LayerScheme> scheme_for(quant::LayerKind kind, std::string_view layer) const override {
    return usual_.scheme_for(kind, layer);
  }
  Result<std::unique_ptr<quant::LinearMethod>> get_quant_method(quant::LayerKind kind,
                                                                const quant::LinearShape& shape) const override {
    CHORAL_TRY(auto method, usual_.get_quant_method(kind, shape));
    return std::unique_ptr<quant::LinearMethod>(std::make_unique<NotedMethod>(std::move(method), life_));
  }

 private:
  const quant::QuantConfig& usual_;
  Life& life_;
};

class NotedLinear : public RowParallelLinear {
 public:
  NotedLinear(Builder& builder, const Spec& spec, Life& life) : RowParallelLinear(noted(builder, life), spec), life_(life) {}
  Status load_weights(quant::WeightSource& source) override {
    life_.note(Time::kLoad);
    return RowParallelLinear::load_weights(source);
  }

 private:
  static Builder& noted(Builder& builder, Life& life) {
    life.note(Time::kBuild);
    return builder;
  }
  Life& life_;
};

TEST(LayerLife, EveryTimeOfAllLayersComesBeforeTheNext) {
  Life life;
  const auto overrides = std::make_shared<platform::LayerOverrides>();
  const auto make = [&life](Builder& builder, const RowParallelLinear::Spec& spec) {
    const NotedConfig config(builder.quant_config, life);
    Builder inner{builder.session, config, builder.custom_ops, builder.overrides};
    std::swap(inner.modules, builder.modules);
    std::swap(inner.lora_targets, builder.lora_targets);
    auto layer = std::make_unique<NotedLinear>(inner, spec, life);
    std::swap(inner.modules, builder.modules);
    std::swap(inner.lora_targets, builder.lora_targets);
    if (!inner.status.ok()) builder.fail(inner.status);
    return layer;
  };
  ASSERT_TRUE((overrides->replace<RowParallelLinear, Builder>(RowParallelLinear::kLayerName, make)).ok());
  for (const char* quantization : {"auto", "w4a16"}) {
    const size_t before = life.times().size();
    auto options = tiny_options();
    options.quantization = quantization;
    options.layer_overrides = overrides;
    const auto llm = load_or_die(options);
    llm->generate({greedy_request(random_prompt(5, 1), 2)});
    auto times = life.times();
    times.erase(times.begin(), times.begin() + static_cast<ptrdiff_t>(before));
    const auto count = [&](Time time) { return std::count(times.begin(), times.end(), time); };
    ASSERT_GT(count(Time::kBuild), 2);
    for (const Time time : {Time::kCreateWeights, Time::kLoad, Time::kProcess}) EXPECT_EQ(count(time), count(Time::kBuild));
    ASSERT_GT(count(Time::kApply), 0);
    // A layer is built and its weights are created in one go; from there on all layers go together.
    const auto later = std::stable_partition(times.begin(), times.end(), [](Time t) { return t <= Time::kCreateWeights; });
    for (auto at = times.begin(); at != later; at += 2) {
      EXPECT_EQ(at[0], Time::kBuild);
      EXPECT_EQ(at[1], Time::kCreateWeights);
    }
    const auto all = life.times();
    const auto last_created = std::find(all.rbegin(), all.rend(), Time::kCreateWeights).base();
    EXPECT_TRUE(std::is_sorted(last_created, all.end())) << "load, process, apply";
    EXPECT_TRUE(std::is_sorted(later, times.end()));
  }
}

}  // namespace
}  // namespace choral::engine
