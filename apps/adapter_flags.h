// The flags that bring adapters: --lora NAME=PATH and its neighbours, the same in every subcommand, with vLLM's names beside.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "choral/llm.h"
#include "lora/peft/adapter_name.h"

namespace CLI {
class App;
}

namespace choral::apps {

// The word that stands for the model without adapters, wherever a name is asked for.
using lora::kBaseName;

struct AdapterFlags {
  std::vector<std::string> loras;    // --lora
  std::vector<std::string> modules;  // --lora-modules
  std::vector<std::string> drafts;   // --draft-lora
  std::string memory;
};

// --lora, --lora-modules and --adapter-root: where adapters are.
void add_adapter_place_flags(CLI::App& app, AdapterFlags& flags, EngineOptions& options);
// The former, and how the engine keeps them.
void add_adapter_flags(CLI::App& app, AdapterFlags& flags, EngineOptions& options);

// "name=path", "path" (named by its last component), or {"name": …, "path": …}. A name may hold "/"; a path with "=" in it begins
// with "/", "./", "../" or "~/", so that it is told from a name.
Result<AdapterSpec> parse_adapter_spec(std::string_view text);
// The names of those that --lora gives as a path alone, as llama.cpp does, in order.
std::vector<std::string> unnamed_adapters(const AdapterFlags& flags);
// Reads what the flags hold into `options`, with the paths of adapters that the Hugging Face cache has; a name given twice is an
// error.
Status put_adapters(const AdapterFlags& flags, EngineOptions& options);

}  // namespace choral::apps
