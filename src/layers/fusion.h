// The fusion pass: replaces steps of a graph that stand side by side by a fused operator, where the device has one and it pays.
// It reads the op table, not the model: a model never says that something is fused. Each operator can be switched off by name
// (--fuse), and what was decided is listed with its reason.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "layers/graph.h"
#include "platform/name_switches.h"

namespace choral::layers {

// A list as name_switches.h has it, the one of custom ops too; "+" insists where the pass would not bother.
class FusionConfig {
 public:
  FusionConfig() = default;  // "all"
  static Result<FusionConfig> parse(std::string_view comma_separated);

  enum class Wish { kNever, kIfItPays, kAlways };
  Wish wish(std::string_view op) const;
  // A platform's patch, over what the user said.
  Status force(std::string_view op, bool on);

 private:
  platform::NameSwitches switches_;
  std::vector<std::pair<std::string, bool>> forced_;
};

// The fused operators that the pass knows.
const std::vector<std::string>& fused_op_names();
// Fine, or the error of a name that the pass does not know.
Status check_fused_op_name(std::string_view op);

struct FusionDecision {
  std::string op;
  int sites = 0;         // how many were replaced
  std::string provider;  // who serves it
  std::string reason;    // why none was, or why it is this provider
};

// Rewrites `graph` for the context's table and CPU level, once the weights of its layers are packed, and gives its matrices their
// places.
std::vector<FusionDecision> fuse(Graph& graph, const platform::Context& ctx, const FusionConfig& config);

}  // namespace choral::layers
