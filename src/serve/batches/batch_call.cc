#include "serve/batches/batch_call.h"

#include <array>
#include <charconv>

#include "serve/batches/batch_json.h"
#include "serve/openai/body_reader.h"
#include "serve/openai/metadata.h"

namespace choral::serve {
namespace {

constexpr int64_t kLeastExpiry_s = 3600, kMostExpiry_s = int64_t{30} * 86'400;
constexpr size_t kMostFileNameBytes = 255;

// As OpenAI's: from an hour to 30 days.
Status check_expiry(std::string_view anchor, int64_t seconds, std::string_view name) {
  if (anchor != "created_at") return invalid_argument("'{}[anchor]' must be created_at, not '{}'", name, shown(anchor));
  if (seconds < kLeastExpiry_s || seconds > kMostExpiry_s)
    return invalid_argument("'{}[seconds]' must be from {} to {}", name, kLeastExpiry_s, kMostExpiry_s);
  return {};
}

// "24h", "7d", "30m".
Status read_window(std::string_view name, const Json& json, BatchCall& call) {
  CHORAL_RETURN_IF_ERROR(read_value(name, json, call.window));
  constexpr std::string_view kUnits = "smhd";
  constexpr std::array<int64_t, kUnits.size()> kUnitSeconds{1, 60, 3600, 86'400};
  int64_t number = 0;
  const char* const end = call.window.data() + call.window.size();
  const auto [behind, error] = std::from_chars(call.window.data(), end, number);
  const size_t unit = error == std::errc() && behind + 1 == end ? kUnits.find(*behind) : kUnits.npos;
  if (unit == kUnits.npos || number < 1 || number > kMostExpiry_s / kUnitSeconds[unit])
    return invalid_argument("'{}' must be 24h, or another time up to 30d such as 90m or 7d, not '{}'", name, shown(call.window));
  call.window_s = number * kUnitSeconds[unit];
  return {};
}

Status read_metadata(std::string_view name, const Json& json, BatchCall& call) {
  CHORAL_RETURN_IF_ERROR(check_metadata(name, json));
  call.metadata_json = dumped(json);
  return {};
}

Status read_output_expiry(std::string_view name, const Json& json, BatchCall& call) {
  if (!json.is_object() || !json.contains("anchor") || !json.contains("seconds"))
    return wrong_type(name, "an object with 'anchor' and 'seconds'", json);
  std::string anchor;
  CHORAL_RETURN_IF_ERROR(read_value(fmt::format("{}.anchor", name), json["anchor"], anchor));
  CHORAL_RETURN_IF_ERROR(read_value(fmt::format("{}.seconds", name), json["seconds"], call.output_expires_s));
  return check_expiry(anchor, call.output_expires_s, name);
}

Status read_endpoint(std::string_view name, const Json& json, BatchCall& call) {
  CHORAL_RETURN_IF_ERROR(read_value(name, json, call.endpoint));
  if (is_batch_endpoint(call.endpoint)) return {};
  return invalid_argument("'{}' is '{}'; batches are served of {}", name, shown(call.endpoint), batch_endpoints());
}

constexpr std::array kBatchFields{
    Field<BatchCall>{"input_file_id", R"({"type":"string"})", read_member<BatchCall, &BatchCall::input_file>},
    Field<BatchCall>{"endpoint", R"({"enum":["/v1/chat/completions","/v1/completions","/v1/embeddings","/v1/responses"]})",
                     read_endpoint},
    Field<BatchCall>{"completion_window", R"({"type":"string","pattern":"^[1-9][0-9]*[smhd]$"})", read_window},
    Field<BatchCall>{"metadata", R"({"type":"object","additionalProperties":{"type":"string"}})", read_metadata},
    Field<BatchCall>{"output_expires_after",
                     R"({"type":"object","required":["anchor","seconds"],"properties":{"anchor":{"const":"created_at"},)"
                     R"("seconds":{"type":"integer","minimum":3600,"maximum":2592000}}})",
                     read_output_expiry},
};

// One part of the form, and the anchor of its expires_after.
Status read_form_field(const FormPart& part, UploadCall& call, std::string& purpose, std::string& anchor, BodyNotes& notes) {
  if (part.name == "file") {
    call.name = part.file_name.value_or("");
    call.content = part.content;
  } else if (part.name == "purpose") {
    purpose = part.content;
  } else if (part.name == "expires_after[anchor]") {
    anchor = part.content;
  } else if (part.name == "expires_after[seconds]") {
    const char* const end = part.content.data() + part.content.size();
    const auto [behind, error] = std::from_chars(part.content.data(), end, call.expires_s);
    if (error != std::errc() || behind != end) call.expires_s = -1;
  } else {
    return meet_unread(part.name, Json(""), notes, [] {
      return std::vector<std::string>{"file", "purpose", "expires_after[anchor]", "expires_after[seconds]"};
    });
  }
  return {};
}

}  // namespace

Result<BatchCall> read_batch_call(std::string_view body, BodyNotes& notes) {
  BatchCall call;
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kBatchFields, call)));
  if (call.input_file.empty()) return missing("input_file_id", notes);
  if (call.endpoint.empty()) return missing("endpoint", notes);
  if (call.window.empty()) return missing("completion_window", notes);
  return call;
}

std::string batch_schema() {
  return schema_of(R"(["input_file_id","endpoint","completion_window"])", std::span<const Field<BatchCall>>(kBatchFields));
}

Result<UploadCall> read_upload_call(std::string_view content_type, std::string_view body, BodyNotes& notes) {
  CHORAL_TRY(const auto parts, read_form_data(content_type, body));
  UploadCall call;
  std::string purpose, anchor;
  bool has_file = false;
  for (const auto& part : parts) {
    CHORAL_RETURN_IF_ERROR(read_form_field(part, call, purpose, anchor, notes));
    has_file = has_file || part.name == "file";
  }
  if (!has_file) return missing("file", notes);
  if (purpose.empty()) return missing("purpose", notes);
  notes.param = "purpose";
  if (purpose != "batch")
    return unsupported("'purpose' is '{}'; files are kept for batches alone ('batch'): other requests bring all that they need",
                       shown(purpose));
  notes.param = "expires_after";
  if (!anchor.empty() || call.expires_s != 0) CHORAL_RETURN_IF_ERROR(check_expiry(anchor, call.expires_s, "expires_after"));
  notes.param = "file";
  if (call.content.empty()) return invalid_argument("the file is empty");
  if (call.name.size() > kMostFileNameBytes)
    return invalid_argument("the file's name has more than {} bytes", kMostFileNameBytes);
  if (call.name.empty()) call.name = "file.jsonl";
  notes.param.clear();
  return call;
}

}  // namespace choral::serve
