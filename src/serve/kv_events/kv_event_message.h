// Events of the prefix cache as vLLM 0.26 and later publish them: MessagePack, [time, [event, …], 0], each event a map with its
// name under "type". Readers find what they need by name. The medium is "GPU", vLLM's word for what an answer can use at once,
// whatever memory that is here. Pure.
#pragma once

#include <span>
#include <string>

#include "choral/kv_events.h"

namespace choral::serve {

std::string kv_event_message(std::span<const KvEvent> events, int block_tokens, double unix_s);
// Of a cache that has nothing: how an engine begins.
std::string all_blocks_cleared_message(double unix_s);

// How a block says whose it is, empty for the base: the adapter's name, with others and factors as "a+b:0.5".
std::string kv_event_lora_name(std::span<const AdapterUse> adapters);

}  // namespace choral::serve
