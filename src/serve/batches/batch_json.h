// Files, batches and their lines in OpenAI's words. Pure; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "serve/batches/batch_store.h"
#include "serve/http/message.h"

namespace choral::serve {

// What a batch may ask: OpenAI's generating routes. `choral run-batch` asks a few more (read_batch_line).
bool is_batch_endpoint(std::string_view path);
std::string batch_endpoints();  // "/v1/chat/completions, …"

std::string file_json(const StoredFile& file);
std::string batch_json(const StoredBatch& batch);
// {"object": "list", …} of objects that are written, of which each begins with its id.
std::string list_json(const std::vector<std::string>& objects, std::string_view first_id, std::string_view last_id,
                      bool has_more);
std::string deleted_file_json(std::string_view id);

// The facts of a new batch. `metadata_json`: an object; empty: none.
std::string batch_facts(std::string_view window, const std::string& metadata_json);
// Sets its status, and the time of that.
void set_batch_status(StoredBatch& batch, std::string_view status, int64_t unix_s);

// What is wrong with a line.
struct LineFault {
  std::string code;
  std::string message;
  std::string param = {};
  int64_t line = 0;  // from 1; 0: the file as a whole
};
void set_batch_errors(StoredBatch& batch, std::span<const LineFault> faults);

struct BatchLine {
  std::string custom_id;
  std::string url;
  std::string model;  // that its body names; empty: none
  std::string body;   // JSON
};
// `endpoint`: that the line must ask; empty: any that is known.
std::optional<LineFault> read_batch_line(std::string_view text, std::string_view endpoint, BatchLine& line);

// What an answer of any endpoint says that it used; nothing where it says nothing.
LineUsage used_tokens(std::string_view answer);

// A line of an output or error file.
std::string answer_line(std::string_view custom_id, const HttpResponse& answer, std::string_view request_id);
std::string fault_line(std::string_view custom_id, const LineFault& fault);

}  // namespace choral::serve
