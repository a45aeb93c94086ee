#include "serve/pooling/pooled_call.h"

#include <array>

#include "serve/openai/body_reader.h"

namespace choral::serve {
namespace {

constexpr std::string_view kTrueOrFalse = R"({"type":"boolean"})";

constexpr std::array kPooledFields{
    Field<PooledCall>{"model", R"({"type":"string"})", read_member<PooledCall, &EmbeddingCall::model>},
    Field<PooledCall>{"input", kPromptsSchema,
                      [](std::string_view n, const Json& j, PooledCall& c) { return read_inputs(n, j, c); }},
    Field<PooledCall>{"use_activation", kTrueOrFalse, read_member<PooledCall, &PooledCall::use_activation>},
    // Older names of it.
    Field<PooledCall>{"activation", {}, read_member<PooledCall, &PooledCall::use_activation>},
    Field<PooledCall>{"softmax", {}, read_member<PooledCall, &PooledCall::use_activation>},
    Field<PooledCall>{"messages",
                      {},
                      [](std::string_view n, const Json&, PooledCall&) {
                        return unsupported("'{}' is not served here: send the conversation's text as 'input' (/apply-template)",
                                           n);
                      }},
};

constexpr std::array kPoolingFields{
    Field<PooledCall>{"encoding_format", kEncodingSchema,
                      [](std::string_view n, const Json& j, PooledCall& c) { return read_encoding(n, j, c); }},
    Field<PooledCall>{"dimensions", kDimensionsSchema,
                      [](std::string_view n, const Json& j, PooledCall& c) { return read_dimensions(n, j, c); }},
    Field<PooledCall>{"task", R"({"type":"string","enum":["embed","classify"]})",
                      [](std::string_view n, const Json& j, PooledCall& c) {
                        if (j != "embed" && j != "classify")
                          return unsupported("'{}' is {}; served are embed and classify, of a text as a whole", n,
                                             shown(j.dump()));
                        c.wants_classes = j == "classify";
                        return Status();
                      }},
};

template <class... Fields>
Result<PooledCall> read_call(std::string_view body, BodyNotes& notes, const Fields&... more) {
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  PooledCall call;
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kPooledFields, call), table(more, call)...,
                                      table(requests::prompt_fields(), call.request)));
  CHORAL_RETURN_IF_ERROR(check_salt(call.request, notes));
  if (call.inputs.empty()) return missing("input", notes);
  return call;
}

}  // namespace

Result<PooledCall> read_classify_call(std::string_view body, BodyNotes& notes) {
  auto call = read_call(body, notes);
  if (call.ok()) call->wants_classes = true;
  return call;
}

Result<PooledCall> read_pooling_call(std::string_view body, BodyNotes& notes) { return read_call(body, notes, kPoolingFields); }

std::string classify_schema() {
  return schema_of(R"(["input"])", std::span<const Field<PooledCall>>(kPooledFields), requests::prompt_fields());
}

std::string pooling_schema() {
  return schema_of(R"(["input"])", std::span<const Field<PooledCall>>(kPooledFields),
                   std::span<const Field<PooledCall>>(kPoolingFields), requests::prompt_fields());
}

}  // namespace choral::serve
