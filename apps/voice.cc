#include "voice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "adapter_flags.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "lora/peft/adapters_in_root.h"

namespace choral::apps {
namespace {

constexpr size_t kListed = 12;

Result<AdapterUse> parse_use(std::string_view text) {
  AdapterUse use{.name = std::string(text), .scale = 1.0F};
  const size_t colon = text.rfind(':');
  if (colon != text.npos) {
    float scale = 0;
    const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), scale);
    if (error == std::errc() && end == text.data() + text.size()) {
      if (!std::isfinite(scale)) return invalid_argument("'{}': the factor must be a finite number", text);
      use = {.name = std::string(text.substr(0, colon)), .scale = scale};
    }
  }
  if (use.name.empty()) return invalid_argument("'{}': an adapter's name is missing; write NAME or NAME:FACTOR", text);
  if (use.name == kBaseName)
    return invalid_argument("'{}': {} stands for the model without adapters and goes alone", text, kBaseName);
  return use;
}

// Sorted, each once, with those of `root`.
std::vector<std::string> with_root(std::vector<std::string> names, const std::string& root) {
  if (!root.empty()) {
    const auto found = lora::adapters_in_root(root);
    if (found.ok()) {
      for (const auto& adapter : *found) {
        if (lora::check_adapter_name(adapter.name).ok()) names.push_back(adapter.name);
      }
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

Result<Voice> parse_voice(std::string_view text) {
  Voice voice{.name = std::string(text)};
  if (text == kBaseName) return voice;
  for (size_t at = 0; at <= text.size();) {
    const size_t plus = std::min(text.find('+', at), text.size());
    CHORAL_TRY(auto use, parse_use(text.substr(at, plus - at)));
    voice.adapters.push_back(std::move(use));
    at = plus + 1;
  }
  return voice;
}

Result<std::vector<Voice>> parse_voices(std::string_view text) {
  std::vector<Voice> voices;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    CHORAL_TRY(auto voice, parse_voice(text.substr(at, comma - at)));
    const auto same = [&](const Voice& other) { return other.name == voice.name; };
    if (std::any_of(voices.begin(), voices.end(), same)) return invalid_argument("'{}' is named twice", voice.name);
    voices.push_back(std::move(voice));
    at = comma + 1;
  }
  return voices;
}

std::vector<std::string> known_adapters(const LLM& llm, const std::string& root) {
  std::vector<std::string> names;
  for (const auto& adapter : llm.adapters()) names.push_back(adapter.name);
  return with_root(std::move(names), root);
}

std::vector<std::string> known_adapters(const EngineOptions& options) {
  std::vector<std::string> names;
  for (const auto& adapter : options.adapters) names.push_back(adapter.name);
  return with_root(std::move(names), options.adapter_root);
}

Status check_voice(const Voice& voice, std::span<const std::string> known, const std::string& root) {
  for (const auto& use : voice.adapters) {
    if (std::find(known.begin(), known.end(), use.name) != known.end()) continue;
    // The engine finds it there too when the root cannot be listed, or holds more than is listed.
    if (!root.empty() && lora::check_adapter_name(use.name).ok()) {
      CHORAL_TRY(const auto folder, lora::adapter_in_root(root, use.name));
      if (folder) continue;
    }
    if (known.empty() && !root.empty()) return not_found("no adapter is named '{}': {} has no such folder", use.name, root);
    if (known.empty()) {
      return not_found("no adapter is named '{}': none was given. --lora NAME=PATH or --adapter-root DIR brings some", use.name);
    }
    const std::string near = nearest_name(use.name, known);
    const std::string list = fmt::format("{}", fmt::join(known.first(std::min(known.size(), kListed)), ", "));
    return not_found("no adapter is named '{}'{}; there are {}, {}{}", use.name,
                     near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), kBaseName, list,
                     known.size() > kListed ? fmt::format(" and {} more", known.size() - kListed) : "");
  }
  return {};
}

Result<Voice> chosen_voice(const std::vector<std::string>& texts, const AdapterFlags& flags, const EngineOptions& options,
                           std::string& unused) {
  Voice voice;
  for (const auto& text : texts) {
    CHORAL_TRY(auto one, parse_voice(text).while_("--adapter"));
    if (one.adapters.empty() && texts.size() > 1)
      return invalid_argument("--adapter {}: it stands for the model without adapters and goes alone", text);
    if (!one.adapters.empty()) voice.name = voice.adapters.empty() ? one.name : voice.name + "+" + one.name;
    std::move(one.adapters.begin(), one.adapters.end(), std::back_inserter(voice.adapters));
  }
  if (texts.empty() && flags.loras.size() == 1 && options.adapters.size() == 1) {
    voice = {.name = options.adapters.front().name, .adapters = {{.name = options.adapters.front().name}}};
  } else if (texts.empty() && !options.adapters.empty()) {
    std::vector<std::string> names;
    for (const auto& adapter : options.adapters) names.push_back(adapter.name);
    unused = fmt::format("loaded, not used: {}", fmt::join(names, ", "));
  }
  CHORAL_RETURN_IF_ERROR(check_voice(voice, known_adapters(options), options.adapter_root));
  return voice;
}

}  // namespace choral::apps
