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

// An adapter that is to come, and a file of it.
struct FileToCome {
  std::string name;
  int64_t bytes = 0;
};
struct BeginUploadCall {
  std::vector<FileToCome> files;
};

Result<LoadAdapterCall> read_load_adapter_call(std::string_view body, BodyNotes& notes);
// The same of an adapter that was sent, which has no path.
Result<LoadAdapterCall> read_load_upload_call(std::string_view body, BodyNotes& notes);
Result<BeginUploadCall> read_begin_upload_call(std::string_view body, BodyNotes& notes);
Result<AdapterNameCall> read_unload_adapter_call(std::string_view body, BodyNotes& notes);
Result<AdapterNameCall> read_adapter_name_call(std::string_view body, BodyNotes& notes);
// llama.cpp's: a list of {"id", "scale"}.
Result<std::vector<AdapterScale>> read_adapter_scales_call(std::string_view body, BodyNotes& notes);

std::string load_adapter_schema();
std::string load_upload_schema();
std::string begin_upload_schema();
std::string unload_adapter_schema();
std::string adapter_name_schema();
std::string adapter_scales_schema();

}  // namespace choral::serve
