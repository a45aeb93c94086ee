// The body of POST /v1/batches, and what POST /v1/files says beside its file. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "serve/http/form_data.h"
#include "serve/openai/calls.h"

namespace choral::serve {

struct BatchCall {
  std::string input_file, endpoint, window, metadata_json;
  int64_t window_s = 0;
  int64_t output_expires_s = 0;  // 0: not named
};
Result<BatchCall> read_batch_call(std::string_view body, BodyNotes& notes);
std::string batch_schema();

struct UploadCall {
  std::string name;
  std::string_view content;  // in the body
  int64_t expires_s = 0;     // 0: not named
};
Result<UploadCall> read_upload_call(std::string_view content_type, std::string_view body, BodyNotes& notes);

}  // namespace choral::serve
