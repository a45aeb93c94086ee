// How a model's layers are stored and multiplied, as one table. Layers that differ only by their number are one row.
#pragma once

#include <span>
#include <vector>

#include "choral/llm.h"
#include "layers/module.h"

namespace choral::engine {

// "model.layers.12.mlp.down_proj" -> "model.layers.*.mlp.down_proj"
std::string without_numbers(std::string_view name);

// Of those modules that multiply by a weight, in order of their first appearance. The kernel is known once they are packed.
std::vector<LayerForms> layer_forms(std::span<layers::Module* const> modules, CpuLevel level);

}  // namespace choral::engine
