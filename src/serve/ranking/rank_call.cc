#include "serve/ranking/rank_call.h"

#include <array>

#include "serve/openai/body_reader.h"

namespace choral::serve {
namespace {

constexpr size_t kMostTexts = 2048;

constexpr std::string_view kString = R"({"type":"string"})";
constexpr std::string_view kTexts = R"({"type":"array","minItems":1,"items":{"oneOf":[{"type":"string"},)"
                                    R"({"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}]}})";
constexpr std::string_view kTextOrTexts =
    R"({"oneOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"string"}}]})";

// A text, or {"text": …}.
Status read_text(const std::string& place, const Json& json, std::string& out) {
  if (!json.is_object()) return read_value(place, json, out);
  for (const auto& [key, value] : json.items()) {
    if (key != "text") return unsupported("'{}' has a field '{}'; this server reads text", place, shown(key));
  }
  if (!json.contains("text")) return invalid_argument("'{}.text' is missing", place);
  return read_value(place + ".text", json["text"], out);
}

Status read_texts(std::string_view name, const Json& json, std::vector<std::string>& out) {
  out.clear();
  if (!json.is_array() || json.empty()) return wrong_type(name, "a list of texts that is not empty", json);
  if (json.size() > kMostTexts)
    return too_large("'{}' has {} entries; at most {} are taken at once", name, json.size(), kMostTexts);
  for (size_t i = 0; i < json.size(); ++i)
    CHORAL_RETURN_IF_ERROR(read_text(fmt::format("{}[{}]", name, i), json[i], out.emplace_back()));
  return {};
}

Status read_text_or_texts(std::string_view name, const Json& json, std::vector<std::string>& out) {
  if (json.is_array()) return read_texts(name, json, out);
  out.clear();
  return read_text(std::string(name), json, out.emplace_back());
}

template <class Call>
constexpr std::array kPairFields{
    Field<Call>{"model", kString, read_member<Call, &PairsCall::model>},
    Field<Call>{"instruction", kString, read_member<Call, &PairsCall::instruction>},
};

constexpr std::array kRerankFields{
    Field<RerankCall>{"query", kString,
                      [](std::string_view n, const Json& j, RerankCall& c) {
                        c.left.clear();
                        return read_text(std::string(n), j, c.left.emplace_back());
                      }},
    Field<RerankCall>{"documents", kTexts,
                      [](std::string_view n, const Json& j, RerankCall& c) { return read_texts(n, j, c.right); }},
    Field<RerankCall>{"texts",
                      {},
                      [](std::string_view n, const Json& j, RerankCall& c) {
                        c.is_plain_list = true;
                        return read_texts(n, j, c.right);
                      }},
    Field<RerankCall>{"top_n", R"({"type":"integer","minimum":1})", read_member<RerankCall, &RerankCall::top_n>},
    Field<RerankCall>{"return_documents", R"({"type":"boolean"})", read_member<RerankCall, &RerankCall::return_documents>},
    Field<RerankCall>{"return_text", {}, read_member<RerankCall, &RerankCall::return_documents>},
    Field<RerankCall>{"max_tokens_per_doc",
                      {},
                      [](std::string_view n, const Json&, RerankCall&) {
                        return unsupported("'{}' is not served: send shorter documents", n);
                      }},
    Field<RerankCall>{"raw_scores",
                      {},
                      [](std::string_view n, const Json& j, RerankCall&) {
                        return j == false ? Status() : unsupported("'{}' is not served: scores are what --score-by says", n);
                      }},
};

constexpr std::array kScoreFields{
    Field<PairsCall>{"text_1", kTextOrTexts,
                     [](std::string_view n, const Json& j, PairsCall& c) { return read_text_or_texts(n, j, c.left); }},
    Field<PairsCall>{"text_2", kTextOrTexts,
                     [](std::string_view n, const Json& j, PairsCall& c) { return read_text_or_texts(n, j, c.right); }},
    Field<PairsCall>{
        "queries", {}, [](std::string_view n, const Json& j, PairsCall& c) { return read_text_or_texts(n, j, c.left); }},
    Field<PairsCall>{
        "documents", {}, [](std::string_view n, const Json& j, PairsCall& c) { return read_text_or_texts(n, j, c.right); }},
};

}  // namespace

Result<RerankCall> read_rerank_call(std::string_view body, BodyNotes& notes) {
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  RerankCall call;
  if (json.contains("texts")) call.return_documents = false;
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kRerankFields, call), table(kPairFields<RerankCall>, call),
                                      table(requests::prompt_fields(), call.request)));
  CHORAL_RETURN_IF_ERROR(check_salt(call.request, notes));
  if (call.left.empty()) return missing("query", notes);
  if (call.right.empty()) return missing("documents", notes);
  if (call.top_n && *call.top_n < 1) {
    notes.param = "top_n";
    return invalid_argument("'top_n' is {}; give at least 1", *call.top_n);
  }
  return call;
}

Result<PairsCall> read_score_call(std::string_view body, BodyNotes& notes) {
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  PairsCall call;
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kScoreFields, call), table(kPairFields<PairsCall>, call),
                                      table(requests::prompt_fields(), call.request)));
  CHORAL_RETURN_IF_ERROR(check_salt(call.request, notes));
  if (call.left.empty()) return missing("text_1", notes);
  if (call.right.empty()) return missing("text_2", notes);
  if (call.left.size() != 1 && call.right.size() != 1 && call.left.size() != call.right.size()) {
    notes.param = "text_2";
    return invalid_argument("{} texts stand against {}: give one on one side, or as many on both", call.left.size(),
                            call.right.size());
  }
  return call;
}

std::string rerank_schema() {
  return schema_of(R"(["query","documents"])", std::span<const Field<RerankCall>>(kRerankFields),
                   std::span<const Field<RerankCall>>(kPairFields<RerankCall>), requests::prompt_fields());
}

std::string score_schema() {
  return schema_of(R"(["text_1","text_2"])", std::span<const Field<PairsCall>>(kScoreFields),
                   std::span<const Field<PairsCall>>(kPairFields<PairsCall>), requests::prompt_fields());
}

}  // namespace choral::serve
