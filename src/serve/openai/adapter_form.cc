#include "serve/openai/adapter_form.h"

#include "base/ascii.h"
#include "serve/http/form_data.h"
#include "serve/http/message.h"
#include "serve/openai/body_reader.h"

namespace choral::serve {
namespace {

constexpr size_t kMostFieldBytes = 1 << 10;

// A field of a form is text: of a name or a number, and of what is true.
Result<Json> value_of(const FormPart& part) {
  if (part.content.size() > kMostFieldBytes)
    return invalid_argument("'{}' has more than {} bytes; an adapter's file has a file name", shown(part.name), kMostFieldBytes);
  if (part.name == "lora_name") return Json(part.content);
  if (part.content == "true" || part.content == "false") return Json(part.content == "true");
  const Json number = Json::parse(part.content, nullptr, false);
  return number.is_number_integer() ? number : Json(part.content);
}

// The last part of a path that a client may have sent along.
std::string_view plain_name(std::string_view file_name) { return file_name.substr(file_name.find_last_of("/\\") + 1); }

}  // namespace

bool is_form(std::string_view content_type) {
  return equal_ignoring_case(trimmed(content_type.substr(0, content_type.find(';'))), "multipart/form-data");
}

Result<AdapterForm> read_adapter_form(std::string_view content_type, std::string_view body, BodyNotes& notes) {
  CHORAL_TRY(const auto parts, read_form_data(content_type, body));
  AdapterForm form;
  Json fields = Json::object();
  for (const auto& part : parts) {
    if (part.file_name) {
      form.files.push_back({std::string(plain_name(*part.file_name)), part.content});
      continue;
    }
    notes.param = shown(part.name);
    if (fields.contains(part.name)) return invalid_argument("'{}' is there twice", shown(part.name));
    CHORAL_TRY(fields[part.name], value_of(part));
  }
  notes.param.clear();
  CHORAL_TRY(form.call, read_load_upload_call(dumped(fields), notes));
  if (form.files.empty()) return missing("files", notes);
  return form;
}

}  // namespace choral::serve
