// Flags and commands of llama.cpp, vLLM and Ollama that are none here, and what is meant by them: who brings a command line from
// there is told what it is called here, or that it changes nothing. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace choral::apps {

struct ForeignFlag {
  enum class Value { kNone, kOne, kMaybe };  // kMaybe: on, off, auto or nothing

  std::string_view names;  // "-ngl --n-gpu-layers"
  Value value = Value::kNone;
  std::string_view fine;  // values with which it asks for what is so anyway, "*": any, or none; empty: it asks for something else
  std::string_view instead;  // "here it is …"

  // With this value it may be left out.
  bool changes_nothing(std::string_view with) const;
  // "--enable-lora changes nothing here: it is always so"
  std::string note(std::string_view typed) const;
};

// nullptr for a flag that nobody has. `name` as typed, without a value behind "="; '_' counts as '-'.
const ForeignFlag* foreign_flag(std::string_view name);
// Whether a word behind a flag of kMaybe is its value.
bool is_switch_word(std::string_view word);

struct ForeignCommand {
  std::string_view words;    // "bench serve"
  std::string_view same;     // the command that takes the same words here; empty: none does
  std::string_view instead;  // else: what is done here in its place
};
// Of the first two words of a command line.
const ForeignCommand* foreign_command(std::string_view first, std::string_view second);

}  // namespace choral::apps
