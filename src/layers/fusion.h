// The fusion pass: replaces steps of a graph that stand side by side by a fused operator, where the device has one and it pays.
// It reads the op table, not the model: a model never says that something is fused. Each operator can be switched off by name
// (--fuse), and what was decided is listed with its reason.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "layers/graph.h"

namespace choral::layers {

// Entries as for custom ops: "all", "none", "+add_rms_norm", "-qk_norm_rope"; "+" insists where the pass would not bother.
class FusionConfig {
 public:
  FusionConfig() = default;  // "all"
  static Result<FusionConfig> parse(std::string_view comma_separated);

  enum class Wish { kNever, kIfItPays, kAlways };
  Wish wish(std::string_view op) const;
  // A platform's patch, over what the user said.
  Status force(std::string_view op, bool on);

 private:
  bool all_ = true;
  std::vector<std::pair<std::string, bool>> named_;
};

// The fused operators that the pass knows.
const std::vector<std::string>& fused_op_names();

struct FusionDecision {
  std::string op;
  int sites = 0;         // how many were replaced
  std::string provider;  // who serves it
  std::string reason;    // why none was, or why it is this provider
};

// Rewrites `graph` for the context's table and CPU level, once the weights of its layers are packed.
std::vector<FusionDecision> fuse(Graph& graph, const platform::Context& ctx, const FusionConfig& config);

}  // namespace choral::layers
