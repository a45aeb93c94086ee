#include "layers/graph.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "platform/gather.h"

namespace choral::layers {
namespace {

class Runner {
 public:
  Runner(const platform::Context& ctx, const ForwardBatch& batch, std::span<const MatrixView<float>> matrices)
      : ctx_(ctx), batch_(batch), matrices_(matrices) {}

  void operator()(const NormStep& s) const { s.norm->forward(ctx_, at(s.x), at(s.y), batch_.lora); }
  void operator()(const HeadsNormStep& s) const { s.norm->forward_heads(ctx_, at(s.x), batch_.lora); }
  void operator()(const PartsNormStep& s) const { s.norm->forward_in_parts(ctx_, at(s.x), s.parts, batch_.lora); }
  void operator()(const RotaryStep& s) const { s.rotary->forward(ctx_, batch_.positions, at(s.q), at(s.k)); }
  void operator()(const WriteKvStep& s) const { s.attention->write(ctx_, batch_, at(s.k), at(s.v)); }
  void operator()(const AttendStep& s) const { s.attention->attend(ctx_, batch_, at(s.q), at(s.out)); }
  void operator()(const LinearStep& s) const {
    if (s.add) return s.linear->forward_add(ctx_, at(s.x), at(s.y), batch_.lora);
    s.linear->forward(ctx_, at(s.x), at(s.y), batch_.lora);
  }
  void operator()(const ActivationStep& s) const { s.activation->forward(ctx_, at(s.x), at(s.y)); }
  void operator()(const ReorderStep& s) const { s.order->apply(ctx_, at(s.x), at(s.y)); }
  void operator()(const GateStep& s) const { ctx_.ops.gate_rows(ctx_, at(s.gate), s.act, at(s.y)); }
  void operator()(const AddStep& s) const { ctx_.ops.add(ctx_, at(s.x), at(s.y)); }
  void operator()(const ScaleStep& s) const { ctx_.ops.scale(ctx_, at(s.x), s.factor); }
  void operator()(const ScaleByPositionStep& s) const { ctx_.ops.scale_by_position(ctx_, s.scale, batch_.positions, at(s.x)); }
  void operator()(const SubtractMeanStep& s) const {
    const int64_t width = s.x.cols / s.parts;
    for (int64_t begin = 0; begin < s.x.cols; begin += width) {
      ctx_.ops.subtract_mean(ctx_, at(s.x.columns(begin, width)), at(s.y.columns(begin, width)));
    }
  }
  void operator()(const PluggedStep& s) const { s.block->forward(ctx_, batch_, at(s.x), s.add, at(s.y)); }
  void operator()(const GatherStep& s) const { platform::gather_columns(ctx_, at(s.y), *s.begins); }
  void operator()(const GatedAddStep& s) const { s.gate->add(ctx_, batch_, at(s.x), at(s.from), at(s.y)); }

  // A fused operator takes one weight of a norm, so it is called for each run of rows with theirs: a row meets the same operator
  // alone and beside rows whose adapter brings its own norm.
  void operator()(const AddNormStep& s) const {
    const auto x = at(s.x), residual = at(s.residual), y = at(s.y);
    RMSNorm::for_each_run(ctx_, std::array{s.norm}, x.rows, batch_.lora, [&](int64_t row, int64_t count, const auto& vectors) {
      const auto rows = [&](const auto& m) { return m.sub_rows(row, count); };
      const auto& [weight, bias] = vectors[0];
      if (bias.empty()) return ctx_.ops.add_rms_norm(ctx_, rows(x), rows(residual), weight, s.norm->eps(), rows(y));
      ctx_.ops.add_rms_norm_bias(ctx_, rows(x), rows(residual), weight, bias, s.norm->eps(), rows(y));
    });
  }
  void operator()(const QkNormRotaryStep& s) const {
    const auto q = at(s.q), k = at(s.k);
    RMSNorm::for_each_run(
        ctx_, std::array{s.q_norm, s.k_norm}, q.rows, batch_.lora, [&](int64_t row, int64_t count, const auto& vectors) {
          ctx_.ops.qk_norm_rope(ctx_, s.rotary->placed(), batch_.positions.sub(row, count), q.sub_rows(row, count),
                                vectors[0].weight, k.sub_rows(row, count), vectors[1].weight, s.q_norm->eps());
        });
  }
  void operator()(const RotaryWriteKvStep& s) const {
    ctx_.ops.rope_write_kv(ctx_, s.rotary->placed(), batch_.positions, at(s.q), at(s.k), at(s.v), s.attention->cache(),
                           s.attention->rows(batch_).slots);
  }

  void operator()(const NormLinearStep& s) const {
    with_quantised(*s.linear, at(s.x).rows, [&](const kernels::QuantisedRows& quantised) {
      const auto x = at(s.x), normed = for_adapters(s.normed);
      RMSNorm::for_each_run(ctx_, std::array{s.norm}, x.rows, batch_.lora, [&](int64_t row, int64_t count, const auto& vectors) {
        ctx_.ops.rms_norm_quantise(ctx_, x.sub_rows(row, count), vectors[0].weight, vectors[0].bias, s.norm->eps(),
                                   quantised.sub_rows(row, count), normed.data == nullptr ? normed : normed.sub_rows(row, count));
      });
      s.linear->forward_quantised(ctx_, at(s.normed), quantised, s.add, at(s.y), batch_.lora);
    });
  }
  void operator()(const ActivationLinearStep& s) const {
    with_quantised(*s.linear, at(s.x).rows, [&](const kernels::QuantisedRows& quantised) {
      ctx_.ops.silu_and_mul_quantise(ctx_, at(s.x), quantised, for_adapters(s.gated));
      s.linear->forward_quantised(ctx_, at(s.gated), quantised, s.add, at(s.y), batch_.lora);
    });
  }

 private:
  // Adapters read the float row, never the quantised one.
  MatrixView<float> for_adapters(const Value& v) const { return batch_.lora == nullptr ? MatrixView<float>() : at(v); }

  // Rows as `linear` wants them, for the time of `run`.
  template <class Run>
  void with_quantised(const LinearBase& linear, int64_t rows, Run run) const {
    const Arena::Mark mark(ctx_.kernel.scratch);
    const auto form = linear.quantised_input(ctx_.kernel.level);
    CHORAL_CHECK(form.has_value(), "the pass fuses what the packed weights take");
    run(kernels::QuantisedRows(ctx_.kernel.scratch, *form, rows, linear.in_features()));
  }

  MatrixView<float> at(const Value& v) const { return matrices_[v.matrix].sub_cols(v.begin, v.cols); }

  const platform::Context& ctx_;
  const ForwardBatch& batch_;
  std::span<const MatrixView<float>> matrices_;
};

// What a step's operator gives by its rule, and the value it is put into. A kind that has no rule is named with the reason.
class ShapeChecker {
 public:
  explicit ShapeChecker(const platform::OpTable& ops) : ops_(ops) {}

  Status operator()(const NormStep& s) const { return expect(ops_.rms_norm.meta, {of(s.x), of_norm(*s.norm)}, s.y); }
  Status operator()(const HeadsNormStep& s) const { return expect(ops_.rms_norm_heads.meta, {of(s.x), of_norm(*s.norm)}, s.x); }
  Status operator()(const PartsNormStep& s) const {
    if (s.x.cols % s.parts != 0) return internal_error("{} columns are no {} equal parts", s.x.cols, s.parts);
    return expect(ops_.rms_norm.meta, {of(s.x), of_norm(*s.norm)}, s.x);
  }
  Status operator()(const LinearStep& s) const { return expect(ops_.matmul.meta, {of(s.x), of_linear(*s.linear)}, s.y); }
  Status operator()(const ActivationStep& s) const { return expect(ops_.silu_and_mul.meta, {of(s.x)}, s.y); }
  Status operator()(const AddStep& s) const { return expect(ops_.add.meta, {of(s.x), of(s.y)}, s.y); }
  Status operator()(const SubtractMeanStep& s) const {
    if (s.x.cols % s.parts != 0) return internal_error("{} columns are no {} equal parts", s.x.cols, s.parts);
    return expect(ops_.subtract_mean.meta, {of(s.x)}, s.y);
  }
  Status operator()(const AddNormStep& s) const {
    return expect(ops_.add_rms_norm.meta, {of(s.x), of(s.residual), of_norm(*s.norm)}, s.y);
  }
  Status operator()(const NormLinearStep& s) const {
    CHORAL_RETURN_IF_ERROR((*this)(NormStep{s.norm, s.x, s.normed}));
    return (*this)(LinearStep{s.linear, s.normed, s.y, s.add});
  }
  Status operator()(const ActivationLinearStep& s) const {
    CHORAL_RETURN_IF_ERROR((*this)(ActivationStep{s.activation, s.x, s.gated}));
    return (*this)(LinearStep{s.linear, s.gated, s.y, s.add});
  }
  Status operator()(const QkNormRotaryStep& s) const {
    CHORAL_RETURN_IF_ERROR((*this)(HeadsNormStep{s.q_norm, s.q}));
    return (*this)(HeadsNormStep{s.k_norm, s.k});
  }
  // In place, or with the cache, which is no matrix of the step.
  Status operator()(const ReorderStep& s) const { return s.order->check(s.x.cols, s.y.cols); }
  Status operator()(const GateStep& s) const {
    return s.gate.cols == 1 ? Status() : expect(ops_.add.meta, {of(s.gate), of(s.y)}, s.y);
  }
  Status operator()(const ScaleStep&) const { return {}; }
  Status operator()(const ScaleByPositionStep&) const { return {}; }
  Status operator()(const RotaryStep&) const { return {}; }
  Status operator()(const WriteKvStep&) const { return {}; }
  Status operator()(const RotaryWriteKvStep&) const { return {}; }
  Status operator()(const AttendStep&) const { return {}; }
  Status operator()(const GatedAddStep& s) const { return expect(ops_.add.meta, {of(s.from), of(s.y)}, s.y); }
  Status operator()(const GatherStep& s) const {
    return s.begins->back() == s.y.cols ? Status() : internal_error("gathers {} of {} columns", s.begins->back(), s.y.cols);
  }
  // Its class alone knows what it does.
  Status operator()(const PluggedStep&) const { return {}; }

 private:
  static constexpr int64_t kRows = 1;  // any number
  static Shape of(const Value& v) { return {kRows, v.cols}; }
  static Shape of_norm(const RMSNorm& norm) { return {norm.size()}; }
  static Shape of_linear(const LinearBase& linear) { return {linear.out_features(), linear.in_features()}; }

  static Status expect(platform::ShapeRule rule, std::initializer_list<Shape> inputs, const Value& result) {
    CHORAL_TRY(const Shape shape, rule({inputs.begin(), inputs.size()}));
    if (shape == of(result)) return {};
    return internal_error("gives {}, which is put into {}", shape.to_string(), of(result).to_string());
  }

  const platform::OpTable& ops_;
};

}  // namespace

Access access_of(const Step& step) {
  return std::visit([](const auto& s) { return s.access(); }, step);
}

Status Graph::check_shapes(const platform::OpTable& ops) const {
  const ShapeChecker check(ops);
  for (size_t i = 0; i < steps_.size(); ++i) {
    CHORAL_RETURN_IF_ERROR(std::visit(check, steps_[i]).while_(fmt::format("step {} of the model", i)));
  }
  return {};
}

void Graph::place() {
  const size_t none = steps_.size();
  struct Life {
    size_t first, last;  // step
  };
  std::vector<Life> lives(matrices_.size(), {none, none});
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Access access = access_of(steps_[i]);
    for (const auto* values : {&access.reads, &access.writes}) {
      for (const Value& value : *values) {
        auto& life = lives[value.matrix];
        if (life.first == none) life.first = i;
        life.last = i;
      }
    }
  }
  std::vector<size_t> order(matrices_.size() - 1);  // without the residual, which is the caller's
  std::iota(order.begin(), order.end(), 1);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lives[a].first < lives[b].first; });
  for (auto& matrix : matrices_) matrix.place = kNoPlace;
  places_.clear();
  std::vector<size_t> last_user;  // of each place: the step after which it is free
  for (const size_t i : order) {
    if (lives[i].first == none) continue;
    // Of the free places the one whose width is nearest.
    const auto distance = [&](size_t place) { return std::abs(places_[place] - matrices_[i].cols); };
    size_t best = places_.size();
    for (size_t place = 0; place < places_.size(); ++place) {
      const bool free = last_user[place] < lives[i].first;
      if (free && (best == places_.size() || distance(place) < distance(best))) best = place;
    }
    if (best == places_.size()) {
      places_.push_back(0);
      last_user.push_back(0);
    }
    places_[best] = std::max(places_[best], matrices_[i].cols);
    last_user[best] = lives[i].last;
    matrices_[i].place = static_cast<int>(best);
  }
  placed_ = true;
}

int64_t Graph::floats_per_token() const { return std::accumulate(places_.begin(), places_.end(), int64_t{0}); }

void Graph::run(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<float> residual) const {
  CHORAL_CHECK(placed_, "a graph that runs has its matrices placed");
  const platform::StepMark mark(ctx);
  const auto places = ctx.kernel.scratch.make<float*>(places_.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = ctx.make_matrix(residual.rows, places_[i]).data;
  const auto matrices = ctx.kernel.scratch.make<MatrixView<float>>(matrices_.size());
  for (size_t i = 0; i < matrices.size(); ++i) {
    const auto& [cols, place] = matrices_[i];
    matrices[i] = place == kNoPlace ? MatrixView<float>() : MatrixView<float>(places[place], residual.rows, cols);
  }
  matrices[0] = residual;
  const Runner run(ctx, batch, matrices);
  for (const Step& step : steps_) std::visit(run, step);
}

}  // namespace choral::layers
