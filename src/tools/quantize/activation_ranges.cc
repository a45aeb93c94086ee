#include "tools/quantize/activation_ranges.h"

#include "base/out_of_memory.h"
#include "tools/eval/reference_rows.h"
#include "tools/eval/window_engine.h"
#include "tools/quantize/linear_overrides.h"

namespace choral::tools {
namespace {

using Ranges = std::map<std::string, quant::InputRange, std::less<>>;

// Below that, ranges are those of a few words.
constexpr int64_t kFewestTokens = 256;

// A linear layer that looks at what it is given.
template <class Layer>
class Observed : public Layer {
 public:
  Observed(layers::Builder& builder, const typename Layer::Spec& spec, Ranges& ranges) : Layer(builder, spec) {
    for (const auto& member : this->lora_target(lora::TargetKind::kLinear, this->prefix()).members) {
      ranges_.push_back(&ranges[member.name]);
    }
  }
  void forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
               const lora::PunicaWrapper* lora) const override {
    look_at(x);
    Layer::forward(ctx, x, y, lora);
  }
  void forward_add(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                   const lora::PunicaWrapper* lora) const override {
    look_at(x);
    Layer::forward_add(ctx, x, y, lora);
  }
  bool may_group() const override { return false; }
  void forward_rows(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y, const lora::PunicaWrapper* lora,
                    std::span<const lora::RowGroup> groups) const override {
    look_at(x);
    Layer::forward_rows(ctx, x, y, lora, groups);
  }

 private:
  void look_at(MatrixView<const float> x) const {
    quant::InputRange range;
    for (int64_t i = 0; i < x.rows; ++i) range.take(x.row_span(i));
    for (auto* member : ranges_) member->join(range);
  }

  std::vector<quant::InputRange*> ranges_;  // of each member: all are given the same
};

Result<ActivationRanges> observe(const std::string& model, const CalibrationText& text, int threads,
                                 const std::function<void(const LoadProgress&)>& on_progress) {
  CHORAL_RETURN_IF_ERROR(check_text(text.text, text.name));
  ActivationRanges observed;
  const auto overrides = std::make_shared<platform::LayerOverrides>();
  CHORAL_RETURN_IF_ERROR(replace_linear_layers<Observed>(*overrides, observed.by_layer));
  EngineOptions options;
  options.model = model;
  options.device = "cpu";
  options.fuse = "none";  // a fused operator gives a layer its input in another form
  options.layer_overrides = overrides;
  options.threads = threads;
  options.on_progress = on_progress;
  CHORAL_TRY(const auto engine, WindowEngine::load(options, {}, text.window_tokens));
  for (auto& [layer, range] : observed.by_layer) range = {};  // the engine tried itself
  CHORAL_TRY(auto windows, cut_text(*engine, {.text = text.text, .text_name = text.name, .max_tokens = text.max_tokens}));
  --windows.window_tokens;  // the engine keeps a place for an answer
  if (windows.part_tokens() < 1) {
    return invalid_argument("--ctx-size {}: give {} or more", engine->window_tokens(), windows.prefix.size() + 2);
  }
  observed.tokens = std::ssize(windows.tokens);
  if (observed.tokens < kFewestTokens) {
    return invalid_argument(
        "{} tokens of {}: scales of activations are found on {} or more; some thousand that are like what the "
        "model will read are better",
        observed.tokens, text.name, kFewestTokens);
  }
  for (int64_t i = 0; i < windows.count(); ++i) {
    const auto window = windows.window(i);
    if (on_progress) on_progress({"calibrate", text.name, static_cast<double>(i) / static_cast<double>(windows.count())});
    CHORAL_RETURN_IF_ERROR(engine->begin(window));
    for (int64_t done = 0; done < std::ssize(window);) {
      CHORAL_TRY(const auto rows, engine->next());
      done += rows.logits.rows;
    }
  }
  return observed;
}

}  // namespace

Result<ActivationRanges> observe_activations(const std::string& model, const CalibrationText& text, int threads,
                                             const std::function<void(const LoadProgress&)>& on_progress) {
  return or_out_of_memory("the calibration cannot go on", [&] { return observe(model, text, threads, on_progress); });
}

}  // namespace choral::tools
