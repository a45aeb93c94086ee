#include "tools/quantize/gguf_tensors.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace choral::tools {
namespace {

using io::GgufJoint;

constexpr std::string_view kEmbedding = "model.embed_tokens.weight", kHead = "lm_head.weight", kLog = "A_log";

// Read by row, and most of a small model.
bool is_table(std::string_view name) {
  return name == kEmbedding || name == kHead || name == "model.embed_tokens_per_layer.weight";
}

// "….experts.12.up_proj.weight": a star for the 12.
struct Expert {
  std::string starred;
  int64_t number;
};
std::optional<Expert> expert_of(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + kExperts.size(), end = name.find('.', begin);
  int64_t number = 0;
  if (end == std::string::npos) return std::nullopt;
  const auto read = std::from_chars(name.data() + begin, name.data() + end, number);
  if (read.ec != std::errc() || read.ptr != name.data() + end || number < 0) return std::nullopt;
  return Expert{fmt::format("{}*{}", name.substr(0, begin), name.substr(end)), number};
}

std::vector<int32_t> inverse(const std::vector<int32_t>& order) {
  std::vector<int32_t> out(order.size());
  for (size_t i = 0; i < order.size(); ++i) out[order[i]] = static_cast<int32_t>(i);
  return out;
}

class Planner {
 public:
  Planner(const FloatModel& model, const models::DecoderSpec& spec, const io::GgufArchitecture& architecture, DType codes)
      : model_(model), spec_(spec), architecture_(architecture), codes_(codes) {}

  Result<std::vector<GgufTensorPlan>> run() {
    for (const std::string& name : model_.checkpoint->names()) {
      if (!is_written(name)) continue;
      CHORAL_TRY(const auto source, model_.checkpoint->find(name));
      CHORAL_RETURN_IF_ERROR(check_source(name, source.view));
      const auto expert = expert_of(name);
      const std::string whole = name_read_back(expert ? expert->starred : name);
      const int64_t number = expert ? expert->number : kWhole;
      if (const auto joint = io::gguf_joint_of(architecture_, whole)) {
        CHORAL_RETURN_IF_ERROR(add_joint(name, source.view, number, *joint));
        continue;
      }
      const auto gguf = io::gguf_tensor_name(architecture_, whole);
      if (gguf.empty()) return unsupported("tensor {}: GGUF has no name for it in a model of {}", name, architecture_.name);
      CHORAL_RETURN_IF_ERROR(add(name, source.view, number, gguf));
    }
    for (auto& plan : plans_) CHORAL_RETURN_IF_ERROR(finish(plan));
    return std::move(plans_);
  }

 private:
  static constexpr int64_t kWhole = -1;

  bool is_written(const std::string& name) const {
    constexpr std::string_view kLayers = "model.layers.";
    if (name.ends_with("rotary_emb.inv_freq") || name.starts_with("mtp.")) return false;
    if (spec_.tie_word_embeddings && name == kHead) return false;
    if (!name.starts_with(kLayers)) return true;
    int64_t layer = 0;
    const auto read = std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
    return read.ec != std::errc() || layer < spec_.layers;
  }

  Status check_source(const std::string& name, const TensorView& view) const {
    if (!is_float(view.dtype)) return unsupported("tensor {} is stored as {}, not as a float", name, dtype_name(view.dtype));
    if (!is_table(name) || view.rows() == spec_.vocab) return {};
    return corrupt("tensor {} has {} rows, but {} is {}", name, view.rows(), model_.config.path_of("vocab_size"), spec_.vocab);
  }

  // The tensor of the file of this name, which `piece` is a share of.
  Result<GgufTensorPlan*> add_piece(const std::string& gguf, int64_t number, Shape shape, GgufPiece piece) {
    const auto [at, is_new] = by_name_.emplace(gguf, plans_.size());
    if (is_new) plans_.push_back({.tensor = {gguf, DType::kF32, shape}});
    GgufTensorPlan& plan = plans_[at->second];
    const auto place = static_cast<size_t>(std::max<int64_t>(number, 0));
    if (plan.tensor.shape != shape) {
      return corrupt("tensor {} is {}, but that of another expert is {}", piece.source, shape.to_string(),
                     plan.tensor.shape.to_string());
    }
    if (number == kWhole ? !is_new : place >= static_cast<size_t>(experts())) {
      return corrupt("tensor {} has no place of its own in {}", piece.source, gguf);
    }
    if (number != kWhole) stacked_.insert(gguf);
    if (plan.pieces.size() <= place) plan.pieces.resize(place + 1);
    plan.pieces[place] = std::move(piece);
    return &plan;
  }
  int64_t experts() const { return spec_.moe ? spec_.moe->experts : 0; }

  Status add(const std::string& name, const TensorView& view, int64_t number, const std::string& gguf) {
    Shape shape = view.shape;
    const bool one_row = shape.rank() == 2 && shape[0] == 1 && io::is_one_row_in_gguf(name);
    if (one_row) shape = {shape[1]};
    if (shape.rank() == 3 && shape[1] == 1 && name.ends_with(".conv1d.weight")) shape = {shape[0], shape[2]};
    GgufPiece piece{.source = name, .rows = {}};
    CHORAL_RETURN_IF_ERROR(order_rows(name, shape, piece));
    CHORAL_TRY(GgufTensorPlan* const plan, add_piece(gguf, number, shape, std::move(piece)));
    plan->added = io::gguf_added(architecture_, name);
    plan->is_decay = name.ends_with(kLog);
    if (architecture_.tiled_value_heads && name.ends_with(".linear_attn.out_proj.weight")) {
      const auto& net = spec_.delta_net->layer;
      plan->columns = inverse(io::tiled_heads_order(shape[1], net.key_heads, net.value_heads, net.value_dim));
    }
    if (architecture_.mamba2) plan->tensor.shape = shape_of_mamba2(name, shape);
    return {};
  }

  // Vectors as matrices of one column, or of a row for each group.
  Shape shape_of_mamba2(const std::string& name, const Shape& shape) const {
    if (shape.rank() != 1 || name.find(".mamba.") == name.npos) return shape;
    if (name.ends_with(kLog) || name.ends_with(".D")) return {shape[0], 1};
    const int64_t groups = spec_.mamba2->layer.groups;
    if (name.ends_with(".norm.weight") && shape[0] % groups == 0) return {groups, shape[0] / groups};
    return shape;
  }

  Status order_rows(const std::string& name, const Shape& shape, GgufPiece& piece) const {
    const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
    if (architecture_.interleaved_qk && (has(".self_attn.q_proj.") || has(".self_attn.k_proj."))) {
      const int64_t heads = has(".q_proj.") ? spec_.heads : spec_.kv_heads;
      if (shape[0] % (2 * heads) != 0) {
        return corrupt("tensor {} has {} rows, which is no even number for each of {} heads", name, shape[0], heads);
      }
      piece.rows = inverse(io::half_split_order(shape[0], heads));
    }
    if (!architecture_.tiled_value_heads || !has(".linear_attn.")) return {};
    const auto& net = spec_.delta_net->layer;
    int64_t dim = 0;
    if (has(".in_proj_qkv.") || has(".in_proj_z.") || has(".conv1d.")) dim = net.value_dim;
    if (has(".in_proj_a.") || has(".in_proj_b.") || name.ends_with(kLog) || name.ends_with(".dt_bias")) dim = 1;
    if (dim == 0) return {};
    if (shape[0] < net.value_heads * dim) {
      return corrupt("tensor {} has {} rows, too few for {} value heads of {}", name, shape[0], net.value_heads, dim);
    }
    piece.rows = inverse(io::tiled_heads_order(shape[0], net.key_heads, net.value_heads, dim));
    return {};
  }

  // The rows of either part, in the file's order.
  struct Parts {
    std::vector<int32_t> first, second;
  };

  static void append_range(int64_t begin, int64_t count, std::vector<int32_t>& rows) {
    for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(begin + i));
  }

  Parts parts_of(const GgufJoint& joint, int64_t rows) const {
    Parts out;
    switch (joint.turn) {
      case GgufJoint::Turn::kRow:
        for (int64_t i = 0; i < rows; ++i) (i % 2 == 0 ? out.first : out.second).push_back(static_cast<int32_t>(i));
        break;
      case GgufJoint::Turn::kAll:
        append_range(0, rows / 2, out.first);
        append_range(rows / 2, rows / 2, out.second);
        break;
      case GgufJoint::Turn::kLatentHead:
        for (int64_t head = 0; head < spec_.heads; ++head) {
          const int64_t begin = head * (spec_.latent->nope_dim + spec_.latent->value_dim);
          append_range(begin, spec_.latent->nope_dim, out.first);
          append_range(begin + spec_.latent->nope_dim, spec_.latent->value_dim, out.second);
        }
        break;
      case GgufJoint::Turn::kDeltaHead: {
        const auto& net = spec_.delta_net->layer;
        const int64_t values = net.value_heads / net.key_heads * net.value_dim, turn = 2 * (net.key_dim + values);
        const auto of_each = [&](int64_t begin, int64_t count, std::vector<int32_t>& to) {
          for (int64_t head = 0; head < net.key_heads; ++head) append_range(head * turn + begin, count, to);
        };
        of_each(0, net.key_dim, out.first);
        of_each(net.key_dim, net.key_dim, out.first);
        of_each(2 * net.key_dim, values, out.first);
        of_each(2 * net.key_dim + values, values, out.second);
      }
    }
    return out;
  }

  Status add_joint(const std::string& name, const TensorView& view, int64_t number, const io::GgufJointNames& names) {
    Parts parts = parts_of(*names.joint, view.shape[0]);
    if (std::ssize(parts.first) + std::ssize(parts.second) != view.shape[0]) {
      return corrupt("tensor {} has {} rows, which are not those of {} and {}", name, view.shape[0], names.first, names.second);
    }
    const bool latent = names.joint->turn == GgufJoint::Turn::kLatentHead;
    const auto shape_of = [&](const std::vector<int32_t>& rows, bool turned) -> Shape {
      const int64_t count = std::ssize(rows);
      if (view.shape.rank() == 1) return {count};
      if (!latent) return {count, view.shape[1]};
      const int64_t of_head = count / spec_.heads;
      return turned ? Shape{spec_.heads, view.shape[1], of_head} : Shape{spec_.heads, of_head, view.shape[1]};
    };
    const Shape first = shape_of(parts.first, true), second = shape_of(parts.second, false);
    CHORAL_TRY(GgufTensorPlan* const plan, add_piece(names.first, number, first, {name, std::move(parts.first)}));
    if (latent) plan->turned = spec_.latent->nope_dim;
    return add_piece(names.second, number, second, {name, std::move(parts.second)}).status();
  }

  // The type, and the shape of all experts.
  Status finish(GgufTensorPlan& plan) const {
    Shape& shape = plan.tensor.shape;
    const bool stacked = stacked_.contains(plan.tensor.name);
    int64_t missing = stacked ? experts() - std::ssize(plan.pieces) : 0, quantised = 0;
    DType stored = DType::kF32;
    bool matrix =
        shape.rank() > 1 && !plan.tensor.name.ends_with(".ssm_conv1d.weight") && !plan.tensor.name.ends_with("_norm.weight");
    for (size_t i = 0; i < plan.pieces.size(); ++i) {
      const auto& source = plan.pieces[i].source;
      if (source.empty()) {
        ++missing;
        continue;
      }
      CHORAL_TRY(const auto tensor, model_.checkpoint->find(source));
      stored = i == 0 || stored == tensor.view.dtype ? tensor.view.dtype : DType::kF32;
      quantised += model_.quantised_layer(source) != nullptr ? 1 : 0;
      matrix = matrix && tensor.view.shape.rank() > 1;
    }
    if (missing > 0) return corrupt("{}: {} of {} experts of the layer are missing", plan.tensor.name, missing, experts());
    if (quantised > 0 && quantised < std::ssize(plan.pieces)) {
      return invalid_argument("--ignore: {} is one tensor of all experts, of which some are ignored and others are not",
                              plan.tensor.name);
    }
    const bool router = plan.tensor.name.find(".ffn_gate_inp") != std::string::npos;
    if (quantised > 0) {
      plan.tensor.dtype = codes_;
    } else if (is_table(plan.pieces.front().source) && shape[1] % 32 == 0) {
      plan.tensor.dtype = DType::kQ8_0;
    } else if (matrix && !router) {
      plan.tensor.dtype = stored;  // of a layer that is ignored
    }
    if (stacked) shape = shape.rank() == 1 ? Shape{experts(), shape[0]} : Shape{experts(), shape[0], shape[1]};
    return {};
  }

  const FloatModel& model_;
  const models::DecoderSpec& spec_;
  const io::GgufArchitecture& architecture_;
  DType codes_;
  std::vector<GgufTensorPlan> plans_;
  std::map<std::string, size_t> by_name_;
  std::set<std::string> stacked_;  // of all experts of a layer
};

}  // namespace

Result<std::vector<GgufTensorPlan>> plan_gguf_tensors(const FloatModel& model, const models::DecoderSpec& spec,
                                                      const io::GgufArchitecture& architecture, DType codes) {
  return Planner(model, spec, architecture, codes).run();
}

std::string name_read_back(std::string_view source) {
  // The logarithm of the decay is kept by its value.
  const bool is_log = source.ends_with(fmt::format(".{}", kLog));
  return std::string(is_log ? source.substr(0, source.size() - std::string_view("_log").size()) : source);
}

}  // namespace choral::tools
