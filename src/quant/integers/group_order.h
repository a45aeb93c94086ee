// "act-order": a checkpoint whose columns of k name their groups. Columns of one group are brought together, and x is read in
// that order.
#pragma once

#include "quant/integers/integer_storage.h"

namespace choral::quant {

// Registers "g_idx": int32 [k], optional, one for each member.
void add_g_idx(const LinearShape& shape, ParameterSet& parameters, std::string_view suffix);
// Sorts the columns of q (`memory`, int8 [rows, k]) by the groups that the shard names, if there is one, and says in
// weight.k_order where they came from; nothing to do where groups follow each other. An error unless every group has
// weight.group_size columns.
Status order_by_group(const platform::Context& ctx, const Shard& g_idx, Tensor& memory, IntegerWeight& weight);

}  // namespace choral::quant
