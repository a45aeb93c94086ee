#include "chat_session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/nearest_name.h"
#include "base/status.h"
#include "io/mapped_file.h"

namespace choral::apps {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;
constexpr size_t kMaxMessages = 100'000;
constexpr size_t kShareOfAnswer = 4;  // of the context

template <class T>
Status parse_into(std::string_view name, std::string_view text, T& out) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return invalid_argument("/set {}: '{}' is not a number", name, text);
  out = value;
  return {};
}

struct Setting {
  std::string_view name;
  Status (*set)(std::string_view name, std::string_view value, SamplingParams& params);
  std::string (*get)(const SamplingParams& params);
};

#define CHORAL_SETTING(field)                                                                                                   \
  Setting {                                                                                                                     \
#field, [](std::string_view n, std::string_view v,                                                                          \
               SamplingParams &                                                                                                 \
                   p) { return parse_into(n, v, p.field); }, [](const SamplingParams& p) { return fmt::format("{}", p.field); } \
  }
constexpr std::array kSettings{
    Setting{"max_tokens",
            [](std::string_view n, std::string_view v, SamplingParams& p) {
              return parse_into(n, v == "-1" ? "0" : v, p.max_tokens);  // as the flag
            },
            [](const SamplingParams& p) { return fmt::format("{}", p.max_tokens); }},
    CHORAL_SETTING(temperature),
    CHORAL_SETTING(top_k),
    CHORAL_SETTING(top_p),
    CHORAL_SETTING(min_p),
    CHORAL_SETTING(presence_penalty),
    CHORAL_SETTING(frequency_penalty),
    CHORAL_SETTING(repetition_penalty),
    CHORAL_SETTING(penalty_last_n),
    CHORAL_SETTING(typical_p),
    CHORAL_SETTING(top_n_sigma),
    CHORAL_SETTING(xtc_probability),
    CHORAL_SETTING(xtc_threshold),
    CHORAL_SETTING(dry_multiplier),
    CHORAL_SETTING(dry_base),
    CHORAL_SETTING(dry_allowed_length),
    CHORAL_SETTING(dry_penalty_last_n),
    Setting{"seed",
            [](std::string_view n, std::string_view v, SamplingParams& p) {
              if (v == "none" || v == "-1") return p.seed.reset(), Status();
              uint64_t seed = 0;
              CHORAL_RETURN_IF_ERROR(parse_into(n, v, seed));
              p.seed = seed;
              return Status();
            },
            [](const SamplingParams& p) { return p.seed ? fmt::format("{}", *p.seed) : std::string("none"); }},
};
#undef CHORAL_SETTING

// At least `share` of the text, the system's and the last question stay; gives how many messages. A question goes with its
// answer: templates want them in turns.
size_t drop_oldest(std::vector<ChatMessage>& messages, double share) {
  size_t bytes = 0;
  for (const auto& message : messages) bytes += message.content.size();
  const auto begin = messages.begin() + (messages.front().role == "system" ? 1 : 0);
  auto end = begin;
  double dropped = 0;
  while (end + 1 < messages.end() && (end == begin || dropped < share * static_cast<double>(bytes))) {
    do {
      dropped += static_cast<double>(end->content.size());
      ++end;
    } while (end + 1 != messages.end() && end->role != "user");
  }
  const auto count = static_cast<size_t>(end - begin);
  messages.erase(begin, end);
  return count;
}

}  // namespace

void ChatSession::reset() {
  left_out_ = 0;
  messages_.clear();
  if (!system_.empty()) messages_.push_back({"system", system_});
}

void ChatSession::set_system(std::string text) {
  system_ = std::move(text);
  const bool has = !messages_.empty() && messages_.front().role == "system";
  if (has) messages_.erase(messages_.begin());
  if (!system_.empty()) messages_.insert(messages_.begin(), {"system", system_});
}

Result<size_t> ChatSession::tokens_of(const Request& request) const {
  CHORAL_TRY(const auto prompt, llm_.apply_chat_template(request));
  CHORAL_TRY(const auto ids, llm_.tokenize(prompt, false));
  return ids.size();
}

Result<Request> ChatSession::request(std::vector<ChatMessage> messages) {
  Request request;
  request.adapters = voice_.adapters;
  request.sampling = sampling_;
  request.messages = std::move(messages);
  const auto most = static_cast<size_t>(llm_.info().max_model_len);
  CHORAL_TRY(size_t tokens, tokens_of(request));
  const size_t room = most - most / kShareOfAnswer;
  size_t left_out = 0;
  while (tokens > room) {
    const size_t dropped = drop_oldest(request.messages, 1 - static_cast<double>(room) / static_cast<double>(tokens));
    if (dropped == 0) break;
    left_out += dropped;
    CHORAL_TRY(tokens, tokens_of(request));
  }
  if (tokens >= most) {
    return too_large(
        "the message has {} tokens with what goes with it, and the context holds {}: nothing was sent. A larger --max-model-len "
        "may "
        "help",
        tokens, most);
  }
  left_out_ = left_out;
  return request;
}

Result<Request> ChatSession::ask(std::string text) {
  messages_.push_back({"user", std::move(text)});
  auto made = request(messages_);
  if (!made.ok()) messages_.pop_back();
  return made;
}

Result<Request> ChatSession::last_question() {
  auto messages = messages_;
  while (!messages.empty() && messages.back().role != "user") messages.pop_back();
  if (messages.empty()) return invalid_argument("there is no message yet");
  return request(std::move(messages));
}

Result<Request> ChatSession::ask_again() {
  if (messages_.size() < 2 || messages_.back().role != "assistant") return invalid_argument("/retry: there is no answer yet");
  ChatMessage answer = std::move(messages_.back());
  messages_.pop_back();
  auto made = request(messages_);
  if (!made.ok()) messages_.push_back(std::move(answer));
  return made;
}

void ChatSession::answer(std::string text) { messages_.push_back({"assistant", std::move(text)}); }

void ChatSession::take_back() {
  if (!messages_.empty() && messages_.back().role == "user") messages_.pop_back();
}

Status ChatSession::undo() {
  const auto question = std::find_if(messages_.rbegin(), messages_.rend(), [](const auto& m) { return m.role == "user"; });
  if (question == messages_.rend()) return invalid_argument("/undo: there is no message yet");
  messages_.erase(std::prev(question.base()), messages_.end());
  return {};
}

std::vector<std::string> ChatSession::setting_names() {
  std::vector<std::string> names;
  for (const Setting& setting : kSettings) names.emplace_back(setting.name);
  return names;
}

Status ChatSession::set(std::string_view name, std::string_view value) {
  for (const Setting& setting : kSettings) {
    if (setting.name == name) return setting.set(name, value, sampling_);
  }
  const auto names = setting_names();
  const std::string nearest = nearest_name(name, names);
  return invalid_argument("/set: no setting is named '{}'{}; there are {}", name,
                          nearest.empty() ? "" : fmt::format(", did you mean {}?", nearest), fmt::join(names, ", "));
}

std::string ChatSession::settings() const {
  std::string text;
  for (const Setting& setting : kSettings)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", setting.name, setting.get(sampling_));
  return text;
}

Status ChatSession::save(OutputFile& file) const {
  using Json = nlohmann::ordered_json;
  Json messages = Json::array();
  for (const auto& m : messages_) messages.push_back({{"role", m.role}, {"content", m.content}});
  const Json all{{"messages", std::move(messages)}};
  CHORAL_RETURN_IF_ERROR(file.write_line(all.dump(2, ' ', false, Json::error_handler_t::replace)));
  return file.commit();
}

Status ChatSession::load(const std::string& path) {
  using Json = nlohmann::json;  // sorted: a key is found in log n steps
  CHORAL_TRY(const auto text, io::read_whole_file(path, kMaxFileBytes));
  // Read as the two levels that are wanted; deeper values are dropped while parsing.
  constexpr int kDepth = 4;
  const auto keep = [](int depth, Json::parse_event_t, Json&) { return depth < kDepth; };
  const Json json = Json::parse(text, keep, false);
  const auto wrong = [&](std::string_view why) {
    return corrupt("{}: {}; a saved chat is {{\"messages\": [{{\"role\", \"content\"}}, …]}}", path, why);
  };
  if (json.is_discarded() || !json.is_object()) return wrong("not a JSON object");
  const auto found = json.find("messages");
  if (found == json.end() || !found->is_array() || found->size() > kMaxMessages) return wrong("no array `messages`");
  std::vector<ChatMessage> messages;
  for (const auto& m : *found) {
    const auto is_text = [&m](const char* key) { return m.is_object() && m.contains(key) && m[key].is_string(); };
    if (!is_text("role") || !is_text("content"))
      return wrong(fmt::format("message {} has no role or no content", messages.size()));
    messages.push_back({m["role"].get<std::string>(), m["content"].get<std::string>()});
  }
  messages_ = std::move(messages);
  system_ = !messages_.empty() && messages_.front().role == "system" ? messages_.front().content : "";
  return {};
}

}  // namespace choral::apps
