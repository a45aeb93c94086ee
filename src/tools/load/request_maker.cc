#include "tools/load/request_maker.h"

#include <array>
#include <cmath>

#include "io/config_value.h"

namespace choral::tools {
namespace {

using io::ConfigArray;
using io::ConfigObject;
using io::ConfigValue;

// Common and short: nearly every tokenizer has each of them, with the space before it, as one token.
constexpr std::array kWords{"the",   "time",  "people", "water", "work",  "house",  "world", "school", "day",   "night", "hand",
                            "part",  "place", "case",   "week",  "book",  "number", "group", "room",   "line",  "city",  "money",
                            "story", "fact",  "month",  "right", "study", "word",   "side",  "head",   "power", "hour",  "game",
                            "end",   "law",   "car",    "name",  "team",  "idea",   "body",  "back",   "face",  "level", "door",
                            "art",   "war",   "party",  "table", "food",  "land",   "music", "light",  "road",  "form",  "air",
                            "field", "death", "role",   "king",  "heart", "space",  "river", "voice",  "stone"};
constexpr std::string_view kBase = "base";

}  // namespace

RequestMaker::RequestMaker(const LoadOptions& options, std::string model) : options_(options), random_(options.seed) {
  for (const auto& adapter : options.adapters) models_.push_back(adapter == kBase ? model : adapter);
  if (models_.empty()) models_.push_back(std::move(model));
  std::vector<double> weights;
  for (size_t i = 0; i < models_.size(); ++i) weights.push_back(1.0 / static_cast<double>(i + 1));
  zipf_ = {weights.begin(), weights.end()};
  shared_ = words(options.shared_tokens);
}

std::string RequestMaker::words(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += ' ';
    text += kWords[random_() % kWords.size()];
  }
  return text;
}

size_t RequestMaker::choose() {
  switch (options_.skew) {
    case AdapterSkew::kInTurn: return static_cast<size_t>(made_) % models_.size();
    case AdapterSkew::kUniform: return random_() % models_.size();
    case AdapterSkew::kZipf: return zipf_(random_);
  }
  return 0;
}

LoadRequest RequestMaker::next() {
  LoadRequest out{.model = models_[choose()], .body = {}};
  ++made_;
  ConfigObject body;
  body.set("model", out.model);
  std::string prompt = shared_ + words(options_.prompt_tokens - options_.shared_tokens);
  if (options_.chat) {
    ConfigObject message;
    message.set("role", "user");
    message.set("content", std::move(prompt));
    body.set("messages", ConfigArray{ConfigValue(std::move(message))});
  } else {
    body.set("prompt", std::move(prompt));
  }
  body.set("max_tokens", int64_t{options_.max_tokens});
  body.set("temperature", int64_t{0});
  if (options_.ignore_eos) body.set("ignore_eos", true);
  body.set("stream", options_.stream);
  if (options_.stream) {
    ConfigObject with_usage;
    with_usage.set("include_usage", true);
    body.set("stream_options", ConfigValue(std::move(with_usage)));
  }
  out.body = ConfigValue(std::move(body)).to_json();
  return out;
}

double RequestMaker::next_gap_s() {
  const double uniform = static_cast<double>(random_() >> 11) * 0x1.0p-53;  // [0, 1)
  return -std::log1p(-uniform) / options_.rate;
}

}  // namespace choral::tools
