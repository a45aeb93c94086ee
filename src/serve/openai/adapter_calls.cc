#include "serve/openai/adapter_calls.h"

#include <array>

#include "serve/openai/body_reader.h"

namespace choral::serve {
namespace {

constexpr size_t kMaxScales = 1024;

constexpr std::array kLoadFields{
    Field<LoadAdapterCall>{"lora_name", R"({"type":"string"})", read_member<LoadAdapterCall, &LoadAdapterCall::name>},
    Field<LoadAdapterCall>{"lora_path", R"({"type":"string"})", read_member<LoadAdapterCall, &LoadAdapterCall::path>},
    Field<LoadAdapterCall>{"load_inplace", R"({"type":"boolean"})", read_member<LoadAdapterCall, &LoadAdapterCall::load_inplace>},
    Field<LoadAdapterCall>{"pinned", R"({"type":"boolean"})", read_member<LoadAdapterCall, &LoadAdapterCall::pinned>},
    Field<LoadAdapterCall>{"expected_generation", R"({"type":"integer"})",
                           read_member<LoadAdapterCall, &LoadAdapterCall::expected_generation>},
};

constexpr std::array kNameFields{
    Field<AdapterNameCall>{"lora_name", R"({"type":"string"})", read_member<AdapterNameCall, &AdapterNameCall::name>},
};

constexpr std::array kScaleFields{
    Field<AdapterScale>{"id", R"({"type":"integer"})", read_member<AdapterScale, &AdapterScale::id>},
    Field<AdapterScale>{"scale", R"({"type":"number"})", read_member<AdapterScale, &AdapterScale::scale>},
};

}  // namespace

Result<LoadAdapterCall> read_load_adapter_call(std::string_view body, BodyNotes& notes) {
  LoadAdapterCall call;
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  CHORAL_RETURN_IF_ERROR(read_body<LoadAdapterCall>(json, kLoadFields, call, notes));
  if (call.name.empty()) return missing("lora_name", notes);
  if (call.path.empty()) return missing("lora_path", notes);
  return call;
}

Result<AdapterNameCall> read_adapter_name_call(std::string_view body, BodyNotes& notes) {
  AdapterNameCall call;
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  CHORAL_RETURN_IF_ERROR(read_body<AdapterNameCall>(json, kNameFields, call, notes));
  if (call.name.empty()) return missing("lora_name", notes);
  return call;
}

Result<std::vector<AdapterScale>> read_adapter_scales_call(std::string_view body, BodyNotes& notes) {
  // A list, which the reader of objects takes as a member.
  CHORAL_TRY(const Json json, parse_object(fmt::format("{{\"list\":{}}}", body), "the body"));
  const Json& list = json.begin().value();
  if (json.size() != 1 || !list.is_array() || list.size() > kMaxScales)
    return invalid_argument(R"(the body must be a list such as [{{"id": 1, "scale": 0.5}}], of at most {} adapters)", kMaxScales);
  std::vector<AdapterScale> scales;
  for (const Json& entry : list) {
    if (!entry.is_object() || !entry.contains("id") || !entry.contains("scale"))
      return invalid_argument(R"(each entry must be an object such as {{"id": 1, "scale": 0.5}})");
    CHORAL_RETURN_IF_ERROR(read_body<AdapterScale>(entry, kScaleFields, scales.emplace_back(), notes));
  }
  return scales;
}

std::string load_adapter_schema() {
  return schema_of(R"(["lora_name","lora_path"])", std::span<const Field<LoadAdapterCall>>(kLoadFields));
}

std::string adapter_name_schema() { return schema_of(R"(["lora_name"])", std::span<const Field<AdapterNameCall>>(kNameFields)); }

std::string adapter_scales_schema() {
  return fmt::format(R"({{"type":"array","items":{}}})",
                     schema_of(R"(["id","scale"])", std::span<const Field<AdapterScale>>(kScaleFields)));
}

}  // namespace choral::serve
