#include "serve/openai/logprobs_json.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/sampling_rule.h"
#include "requests/finite_logprob.h"

namespace choral::serve {
namespace {

using requests::finite_logprob;

int64_t characters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

Json token_json(const TokenLogprob& token, const TokenNames& names) {
  const std::string text = names.text(token.token_id);
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", names.name(token.token_id)}, {"logprob", finite_logprob(token.logprob)}, {"bytes", std::move(bytes)}};
}

Json chat_entry(const PositionLogprobs& position, Beside beside, const TokenNames& names) {
  Json entry = token_json(position.chosen, names);
  Json& others = entry["top_logprobs"] = Json::array();
  const auto top = std::span(position.top).first(std::min(beside.count, position.top.size()));
  const bool has_chosen =
      std::any_of(top.begin(), top.end(), [&](const TokenLogprob& token) { return token.token_id == position.chosen.token_id; });
  if (beside.are_named && !has_chosen) others.push_back(token_json(position.chosen, names));
  for (const auto& token : top) others.push_back(token_json(token, names));
  return entry;
}

// The chosen one is among them also when it is not of the most likely, as OpenAI's server has it.
Json likely_json(const PositionLogprobs& position, size_t top, const TokenNames& names) {
  Json likely = Json::object();
  for (size_t i = 0; i < std::min(top, position.top.size()); ++i) {
    likely[names.name(position.top[i].token_id)] = finite_logprob(position.top[i].logprob);
  }
  likely[names.name(position.chosen.token_id)] = finite_logprob(position.chosen.logprob);
  return likely;
}

Json prompt_entry(const PositionLogprobs& position, size_t top, const TokenNames& names) {
  Json entry = Json::object();
  const auto add = [&](const TokenLogprob& token, int64_t rank) {
    entry[fmt::format("{}", token.token_id)] = {
        {"logprob", finite_logprob(token.logprob)}, {"rank", rank}, {"decoded_token", names.text(token.token_id)}};
  };
  for (size_t i = 0; i < std::min(top, position.top.size()); ++i) add(position.top[i], static_cast<int64_t>(i) + 1);
  add(position.chosen, position.rank);
  return entry;
}

// Of the most likely ones, as many as are asked for.
size_t most(int top) { return static_cast<size_t>(std::max(top, 0)); }

}  // namespace

Beside tokens_beside(const SamplingParams& sampling) {
  return {engine::logprobs_beside(sampling), !sampling.logprob_token_ids.empty()};
}

Json token_logprobs(std::span<const PositionLogprobs> positions, Beside beside, const TokenNames& names) {
  Json content = Json::array();
  for (const auto& position : positions) content.push_back(chat_entry(position, beside, names));
  return content;
}

Json chat_logprobs(std::span<const PositionLogprobs> positions, Beside beside, const TokenNames& names) {
  return {{"content", token_logprobs(positions, beside, names)}, {"refusal", nullptr}};
}

LongJson long_chat_logprobs(std::span<const PositionLogprobs> positions, Beside beside, const TokenNames& names) {
  LongObject json;
  json.add("content", LongList{positions.size(), [=, &names](size_t i) { return chat_entry(positions[i], beside, names); }});
  json.add("refusal", Json(nullptr));
  return json;
}

void CompletionLogprobs::add_token(int32_t token, const TokenNames& names, int64_t& offset) {
  json_["text_offset"].push_back(offset);
  json_["tokens"].push_back(names.name(token));
  offset += characters(names.text(token));
}

void CompletionLogprobs::add_first(int32_t token, const TokenNames& names, int64_t& offset) {
  add_token(token, names, offset);
  json_["token_logprobs"].push_back(nullptr);
  json_["top_logprobs"].push_back(nullptr);
}

void CompletionLogprobs::add(const PositionLogprobs& position, size_t top, const TokenNames& names, int64_t& offset) {
  add_token(position.chosen.token_id, names, offset);
  json_["token_logprobs"].push_back(finite_logprob(position.chosen.logprob));
  json_["top_logprobs"].push_back(likely_json(position, top, names));
}

int64_t text_characters(std::span<const int32_t> tokens, const TokenNames& names) {
  int64_t all = 0;
  for (const int32_t id : tokens) all += characters(names.text(id));
  return all;
}

LongJson long_completion_logprobs(LogprobRows from, const TokenNames& names) {
  const auto rows = std::make_shared<const std::vector<LogprobRows::Row>>(std::move(from.rows_));
  const auto list = [&rows](auto entry) { return LongList{rows->size(), std::move(entry)}; };
  LongObject json;
  json.add("text_offset", list([rows, &names, offset = from.offset_](size_t i) mutable -> Json {
             return std::exchange(offset, offset + characters(names.text((*rows)[i].token)));
           }));
  json.add("token_logprobs", list([rows](size_t i) -> Json {
             const auto* position = (*rows)[i].position;
             return position == nullptr ? Json(nullptr) : Json(finite_logprob(position->chosen.logprob));
           }));
  json.add("tokens", list([rows, &names](size_t i) -> Json { return names.name((*rows)[i].token); }));
  json.add("top_logprobs", list([rows, &names](size_t i) -> Json {
             const auto& row = (*rows)[i];
             return row.position == nullptr ? Json(nullptr) : likely_json(*row.position, row.top, names);
           }));
  return json;
}

Json prompt_logprobs_json(std::span<const PositionLogprobs> positions, int top, const TokenNames& names) {
  Json all = Json::array({nullptr});
  for (const auto& position : positions) all.push_back(prompt_entry(position, most(top), names));
  return all;
}

LongJson long_prompt_logprobs(std::span<const PositionLogprobs> positions, int top, const TokenNames& names) {
  return LongList{positions.size() + 1, [positions, top, &names](size_t i) {
                    return i == 0 ? Json(nullptr) : prompt_entry(positions[i - 1], most(top), names);
                  }};
}

}  // namespace choral::serve
