#include "quant/parameter.h"

namespace choral::quant {

Parameter& ParameterSet::add(std::string name) { return parameters_.emplace_back(Parameter{std::move(name), {}}); }

Parameter& ParameterSet::get(std::string_view name) {
  for (auto& parameter : parameters_) {
    if (parameter.name == name) return parameter;
  }
  CHORAL_CHECK(false, "the quant method asks for a parameter it never registered");
}

bool ParameterSet::contains(std::string_view name) const {
  for (const auto& parameter : parameters_) {
    if (parameter.name == name) return true;
  }
  return false;
}

Status ParameterSet::weight_loader(WeightSource& source) {
  for (auto& parameter : parameters_) {
    for (auto& shard : parameter.shards) {
      CHORAL_TRY(shard.tensor, source.take(shard.name, shard.shape));
    }
  }
  return {};
}

void ParameterSet::release(WeightSource& source) {
  for (auto& parameter : parameters_) {
    for (auto& shard : parameter.shards) {
      source.release(shard.name);
      shard.tensor = {};
    }
  }
}

}  // namespace choral::quant
