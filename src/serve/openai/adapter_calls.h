// The bodies of the routes that change adapters. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/openai/calls.h"

namespace choral::serve {

struct LoadAdapterCall {
  std::string name;
  std::string path;
  bool load_inplace = false;  // an adapter of this name is replaced
  bool pinned = false;
  std::optional<int32_t> expected_generation;  // replaced only if it is at this one; 0: there is none yet
};

struct AdapterNameCall {
  std::string name;
  std::optional<int32_t> expected_generation;  // of unloading alone
};

struct AdapterScale {
  int32_t id = 0;
  float scale = 0;
};

Result<LoadAdapterCall> read_load_adapter_call(std::string_view body, BodyNotes& notes);
Result<AdapterNameCall> read_unload_adapter_call(std::string_view body, BodyNotes& notes);
Result<AdapterNameCall> read_adapter_name_call(std::string_view body, BodyNotes& notes);
// llama.cpp's: a list of {"id", "scale"}.
Result<std::vector<AdapterScale>> read_adapter_scales_call(std::string_view body, BodyNotes& notes);

std::string load_adapter_schema();
std::string unload_adapter_schema();
std::string adapter_name_schema();
std::string adapter_scales_schema();

}  // namespace choral::serve
