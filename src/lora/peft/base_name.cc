#include "lora/peft/base_name.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/printable.h"
#include "base/status.h"

namespace choral::lora {
namespace {

constexpr size_t kMostNameBytes = 4096;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool all_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

template <size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_prefix_and_digits(std::string_view word, std::string_view prefix) {
  return word.starts_with(prefix) && all_digits(word.substr(prefix.size()));
}

// "org/Name-1B/" -> "name-1b", ".../models--org--Name-1B/snapshots/3f2a" -> "name-1b"
std::string last_part(std::string_view name) {
  name = name.substr(0, kMostNameBytes);
  constexpr std::string_view kCacheFolder = "models--";
  if (const size_t cache = name.rfind(kCacheFolder); cache != name.npos && (cache == 0 || name[cache - 1] == '/')) {
    name = name.substr(cache);
    name = name.substr(0, name.find('/'));
    name = name.substr(name.rfind("--") + 2);
  }
  while (name.ends_with('/') || name.ends_with('\\')) name.remove_suffix(1);
  std::string part(name.substr(name.find_last_of("/\\") + 1));  // npos + 1 is 0
  std::transform(part.begin(), part.end(), part.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return part;
}

std::vector<std::string> words_of(std::string_view part) {
  std::vector<std::string> words(1);
  for (const char c : part) {
    const bool separates = c == '-' || c == '_' || c == '.' || c == ' ' || c == ':' || c == '@';
    if (!separates) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// "q4", "iq3", "tq1": "k", "m", "0" and the like behind it belong to it.
bool is_quant_type(std::string_view word) {
  return is_prefix_and_digits(word, "q") || is_prefix_and_digits(word, "iq") || is_prefix_and_digits(word, "tq");
}

// What says how weights are stored, packed into files or converted, not which they are.
bool is_storage(std::string_view word) {
  static constexpr auto kWords = std::to_array<std::string_view>(
      {"f16",  "f32",  "fp16", "fp32",      "bf16",      "fp8",     "fp4",         "nf4",     "mxfp4",     "nvfp4",
       "int4", "int8", "bit",  "gguf",      "ggml",      "awq",     "gptq",        "exl2",    "exl3",      "bnb",
       "mlx",  "onnx", "hf",   "quantized", "quantised", "quant",   "qat",         "imat",    "i1",        "dwq",
       "ud",   "gs",   "hqq",  "aqlm",      "eetq",      "unsloth", "safetensors", "imatrix", "autoround", "dynamic"});
  if (is_one_of(word, kWords)) return true;
  if (word.ends_with("bit") && all_digits(word.substr(0, word.size() - 3))) return true;  // "4bit"
  if (word.size() >= 3 && is_prefix_and_digits(word, "g")) return true;                   // "g128"
  const size_t a = word.find('a');                                                        // "w4a16"
  return word.starts_with('w') && a != word.npos && all_digits(word.substr(1, a - 1)) && all_digits(word.substr(a + 1));
}

// What remains of a name: which model it is.
std::vector<std::string> model_words(std::string_view name) {
  static constexpr auto kQuantTails =
      std::to_array<std::string_view>({"0", "1", "k", "m", "s", "l", "xs", "xxs", "xl", "nl", "p"});
  std::vector<std::string> out;
  bool after_quant = false;
  const auto words = words_of(last_part(name));
  for (size_t i = 0; i < words.size(); ++i) {
    const bool of_files = i + 2 < words.size() && words[i + 1] == "of" && all_digits(words[i]) && all_digits(words[i + 2]);
    if (of_files) {  // "00001-of-00003"
      i += 2;
      continue;
    }
    if (after_quant && is_one_of(words[i], kQuantTails)) continue;
    after_quant = is_quant_type(words[i]);
    if (!after_quant && !is_storage(words[i])) out.push_back(words[i]);
  }
  return out;
}

// A name that any model may have.
bool says_nothing(const std::vector<std::string>& words) {
  static constexpr auto kWords = std::to_array<std::string_view>(
      {"model",   "models",   "base",      "checkpoint", "checkpoints", "ckpt",   "step",    "steps",    "epoch",  "iter",
       "final",   "best",     "last",      "latest",     "merged",      "output", "outputs", "out",      "result", "results",
       "weights", "snapshot", "snapshots", "main",       "the",         "my",     "new",     "old",      "test",   "tmp",
       "content", "global",   "full",      "train",      "trained",     "run",    "sft",     "converted"});
  const auto is_hash = [](std::string_view word) {
    return word.size() >= 7 && word.find_first_not_of("0123456789abcdef") == word.npos &&
           word.find_first_of("0123456789") != word.npos;
  };
  return std::all_of(words.begin(), words.end(), [&](std::string_view word) {
    while (!word.empty() && is_digit(word.back()) && !is_hash(word)) word.remove_suffix(1);
    return word.empty() || is_hash(word) || is_one_of(word, kWords);
  });
}

std::string joined(std::span<const std::string> words) {
  std::string out;
  for (const auto& word : words) out += word;
  return out;
}

// Equal, or one with its maker before it: "meta-llama-3-8b", "llama-3-8b".
bool same_model(std::span<const std::string> one, std::span<const std::string> other) {
  if (joined(one) == joined(other)) return true;
  if (one.size() < other.size()) std::swap(one, other);
  return std::equal(other.begin(), other.end(), one.end() - static_cast<ptrdiff_t>(other.size()));
}

}  // namespace

BaseMatch match_base(std::string_view made_for, std::span<const std::string> names) {
  const auto wanted = model_words(made_for);
  if (says_nothing(wanted)) return BaseMatch::kUnknown;
  BaseMatch match = BaseMatch::kUnknown;
  for (const auto& name : names) {
    const auto words = model_words(name);
    if (says_nothing(words)) continue;
    if (same_model(wanted, words)) return BaseMatch::kSame;
    match = BaseMatch::kDifferent;
  }
  return match;
}

std::string other_base_note(std::string_view made_for, std::span<const std::string> names) {
  if (match_base(made_for, names) != BaseMatch::kDifferent) return {};
  return fmt::format("it was made for the base '{}' (base_model_name_or_path), this model is called '{}'", printable(made_for),
                     printable(names.front()));
}

Status check_lora_name(std::string_view made_for, std::span<const std::string> names) {
  const std::string note = other_base_note(made_for, names);
  return note.empty() ? Status() : invalid_argument("--strict: {}; load that base, or leave --strict out", note);
}

}  // namespace choral::lora
