// An adapter in the body of a request: a form (multipart/form-data) with the fields of /v1/load_lora_adapter but lora_path, and
// its files, as parts that have a file name. Views into the body. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/openai/adapter_calls.h"

namespace choral::serve {

struct AdapterForm {
  LoadAdapterCall call;  // without a path
  struct File {
    std::string name;
    std::string_view content;
  };
  std::vector<File> files;
};

bool is_form(std::string_view content_type);
// Whether the files are an adapter says check_adapter_files().
Result<AdapterForm> read_adapter_form(std::string_view content_type, std::string_view body, BodyNotes& notes);

}  // namespace choral::serve
