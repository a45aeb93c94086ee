// The numbers by which the engine thread knows adapters. They are valid in one engine. The digest of an adapter's files is what
// lasts.
#pragma once

#include "base/typed_id.h"

namespace choral::lora {

// What some adapter's files hold: equal contents have one, whatever their names. In budgets, accounts and limits; 0: the base.
using AdapterId = TypedId<struct AdapterIdTag>;
inline constexpr AdapterId kBaseAdapter{};

// The adapters of a request together, each with its factor: rows of a step with equal keys are one group, and requests with
// equal keys share KV. Other factors of the same adapters have another key. 0: the base alone.
using AdapterKey = TypedId<struct AdapterKeyTag>;
inline constexpr AdapterKey kBaseKey{};

}  // namespace choral::lora
