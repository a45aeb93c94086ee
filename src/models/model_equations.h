// What a model computes, number by number: all that a spec says, with the rotary embedding as the frequencies that come of it.
// So two configurations can be held against each other, however differently they say the same. Pure; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"

namespace choral::models {

// "moe.experts": 128, or "hidden_act": silu.
struct ModelFact {
  std::string name;
  double number = 0;
  std::string text = {};  // of what is no number
};

// In an order that the spec alone decides. How a checkpoint stores things is in it where tensors have other names or shapes for
// it; the length that texts may have is not.
Result<std::vector<ModelFact>> facts_of(const ModelSpec& spec);

// Where two models differ first; none: they compute the same. Numbers count as equal that a float cannot tell apart, but for its
// last bits: frequencies are what quotients and products of floats leave of them.
struct ModelDifference {
  std::string name;
  std::string first, second;  // "16"; "absent"
};
std::optional<ModelDifference> first_difference(std::span<const ModelFact> first, std::span<const ModelFact> second);

}  // namespace choral::models
