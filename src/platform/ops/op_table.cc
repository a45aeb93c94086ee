#include "platform/ops/op_table.h"

namespace choral::platform {

std::vector<OpFacts> OpTable::facts() const {
  std::vector<OpFacts> all;
  for_each([&](const auto& op) { all.push_back({op.name, op.version, op.fused, op.provider, op.reason}); });
  return all;
}

}  // namespace choral::platform
