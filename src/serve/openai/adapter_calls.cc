#include "serve/openai/adapter_calls.h"

#include <array>

#include "serve/openai/body_reader.h"

namespace choral::serve {
namespace {

constexpr size_t kMaxScales = 1024, kMaxFiles = 64;
constexpr std::string_view kGeneration = R"({"type":"integer","minimum":0})";

template <class Call>
Status read_generation(std::string_view name, const Json& json, Call& call) {
  CHORAL_RETURN_IF_ERROR(read_value(name, json, call.expected_generation));
  if (*call.expected_generation >= 0) return {};
  return invalid_argument("'{}' is {}; generations count from 1, and 0 is what was never loaded", name,
                          *call.expected_generation);
}

Status refuse_generation(std::string_view name, const Json&, AdapterNameCall&) {
  return unsupported("'{}' goes with loading and unloading; a pin is for whatever the name stands for", name);
}

Status read_files(std::string_view name, const Json& json, BeginUploadCall& call) {
  if (!json.is_array() || json.size() > kMaxFiles)
    return invalid_argument(
        R"('{}' must be a list such as [{{"name": "adapter_config.json", "bytes": 700}}], of at most {} files)", name, kMaxFiles);
  for (const Json& entry : json) {
    if (!entry.is_object() || entry.size() != 2 || !entry.contains("name") || !entry.contains("bytes"))
      return invalid_argument(R"('{}': each must be an object such as {{"name": "adapter_config.json", "bytes": 700}})", name);
    FileToCome& file = call.files.emplace_back();
    CHORAL_RETURN_IF_ERROR(read_value("name", entry["name"], file.name));
    CHORAL_RETURN_IF_ERROR(read_value("bytes", entry["bytes"], file.bytes));
  }
  return {};
}

constexpr Field<LoadAdapterCall> kPath{"lora_path", R"({"type":"string"})", read_member<LoadAdapterCall, &LoadAdapterCall::path>};
constexpr std::array kLoadFields{
    Field<LoadAdapterCall>{"lora_name", R"({"type":"string"})", read_member<LoadAdapterCall, &LoadAdapterCall::name>},
    Field<LoadAdapterCall>{"load_inplace", R"({"type":"boolean"})", read_member<LoadAdapterCall, &LoadAdapterCall::load_inplace>},
    Field<LoadAdapterCall>{"pinned", R"({"type":"boolean"})", read_member<LoadAdapterCall, &LoadAdapterCall::pinned>},
    Field<LoadAdapterCall>{"expected_generation", kGeneration, read_generation<LoadAdapterCall>},
};
constexpr std::array kBeginFields{
    Field<BeginUploadCall>{
        "files",
        R"({"type":"array","items":{"type":"object","required":["name","bytes"],"additionalProperties":false,"properties":)"
        R"({"name":{"type":"string"},"bytes":{"type":"integer","minimum":1}}}})",
        read_files},
};

constexpr Field<AdapterNameCall> kName{"lora_name", R"({"type":"string"})", read_member<AdapterNameCall, &AdapterNameCall::name>};
constexpr std::array kUnloadFields{
    kName,
    Field<AdapterNameCall>{"expected_generation", kGeneration, read_generation<AdapterNameCall>},
};
constexpr std::array kNameFields{
    kName,
    Field<AdapterNameCall>{"expected_generation", {}, refuse_generation},
};

constexpr std::array kScaleFields{
    Field<AdapterScale>{"id", R"({"type":"integer"})", read_member<AdapterScale, &AdapterScale::id>},
    Field<AdapterScale>{"scale", R"({"type":"number"})", read_member<AdapterScale, &AdapterScale::scale>},
};

Result<AdapterNameCall> read_name(std::string_view body, std::span<const Field<AdapterNameCall>> fields, BodyNotes& notes) {
  AdapterNameCall call;
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(fields, call)));
  if (call.name.empty()) return missing("lora_name", notes);
  return call;
}

}  // namespace

Result<LoadAdapterCall> read_load_adapter_call(std::string_view body, BodyNotes& notes) {
  LoadAdapterCall call;
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kLoadFields, call), table(std::span(&kPath, 1), call)));
  if (call.name.empty()) return missing("lora_name", notes);
  if (call.path.empty()) return missing("lora_path", notes);
  return call;
}

Result<LoadAdapterCall> read_load_upload_call(std::string_view body, BodyNotes& notes) {
  LoadAdapterCall call;
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kLoadFields, call)));
  if (call.name.empty()) return missing("lora_name", notes);
  return call;
}

Result<BeginUploadCall> read_begin_upload_call(std::string_view body, BodyNotes& notes) {
  BeginUploadCall call;
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kBeginFields, call)));
  if (call.files.empty()) return missing("files", notes);
  return call;
}

Result<AdapterNameCall> read_unload_adapter_call(std::string_view body, BodyNotes& notes) {
  return read_name(body, kUnloadFields, notes);
}

Result<AdapterNameCall> read_adapter_name_call(std::string_view body, BodyNotes& notes) {
  return read_name(body, kNameFields, notes);
}

Result<std::vector<AdapterScale>> read_adapter_scales_call(std::string_view body, BodyNotes& notes) {
  // A list, which the reader of objects takes as a member.
  CHORAL_TRY(const Json json, parse_object(fmt::format("{{\"list\":{}}}", body), "the body"));
  const Json& list = json.begin().value();
  if (json.size() != 1 || !list.is_array() || list.size() > kMaxScales)
    return invalid_argument(R"(the body must be a list such as [{{"id": 0, "scale": 0.5}}], of at most {} adapters)", kMaxScales);
  std::vector<AdapterScale> scales;
  for (const Json& entry : list) {
    if (!entry.is_object() || !entry.contains("id") || !entry.contains("scale"))
      return invalid_argument(R"(each entry must be an object such as {{"id": 0, "scale": 0.5}})");
    CHORAL_RETURN_IF_ERROR(read_members(entry, notes, table(kScaleFields, scales.emplace_back())));
  }
  return scales;
}

std::string load_adapter_schema() {
  return schema_of(R"(["lora_name","lora_path"])", std::span<const Field<LoadAdapterCall>>(kLoadFields), std::span(&kPath, 1));
}

std::string load_upload_schema() { return schema_of(R"(["lora_name"])", std::span<const Field<LoadAdapterCall>>(kLoadFields)); }

std::string begin_upload_schema() { return schema_of(R"(["files"])", std::span<const Field<BeginUploadCall>>(kBeginFields)); }

std::string unload_adapter_schema() {
  return schema_of(R"(["lora_name"])", std::span<const Field<AdapterNameCall>>(kUnloadFields));
}

std::string adapter_name_schema() { return schema_of(R"(["lora_name"])", std::span<const Field<AdapterNameCall>>(kNameFields)); }

std::string adapter_scales_schema() {
  return fmt::format(R"({{"type":"array","items":{}}})",
                     schema_of(R"(["id","scale"])", std::span<const Field<AdapterScale>>(kScaleFields)));
}

}  // namespace choral::serve
