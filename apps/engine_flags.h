// The flags that say how an engine is set up: the same names in every subcommand, those of vLLM, with llama.cpp's short ones.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "adapter_flags.h"
#include "base/size_text.h"
#include "choral/llm.h"

namespace CLI {
class App;
}

namespace choral::apps {

struct EngineFlags {
  EngineOptions options;
  AdapterFlags adapters;
  std::optional<uint64_t> seed;  // of the engine
  std::string kv_cache_memory;
  std::string chat_template_file;
  std::string traffic_memory;
  std::string speculative_config;  // vLLM's JSON
  std::string speculative_model;   // vLLM's old word for it
  std::string numerics;            // a CPU level's name; empty: the machine's own
  std::string cpu_list;            // "0-7,16"; empty: all that the process may use
  std::string numa;                // as EngineOptions has it, or a node
  bool tells_memory = false;       // before loading
  bool quiet = false;
  bool verbose = false;
};

void add_model_flag(CLI::App& app, EngineFlags& flags);  // MODEL, also -m
void add_engine_flags(CLI::App& app, EngineFlags& flags);

// What the flags mean: the CPU level and the CPUs are set for the whole process, sizes are read, the chat template's file is
// read, adapters get their names and are found, a seed is drawn.
Result<EngineOptions> engine_options(const EngineFlags& flags);

// Of a process that mpirun started to compute for another, which serves: until that ends.
Status follow(const EngineFlags& flags);

// Loads with a progress bar; then says in one line what was loaded, and with --verbose every choice that was made.
Result<std::unique_ptr<LLM>> load_llm(const EngineFlags& flags);
Result<std::unique_ptr<LLM>> load_llm(const EngineFlags& flags, EngineOptions options);  // engine_options(flags)
void print_notes(const std::vector<std::string>& notes);
void print_layers(const std::vector<LayerForms>& layers);

// "512M", "2G", "1.5GiB", "4096": bytes; units are powers of 1024.
Result<int64_t> parse_size(std::string_view text);

}  // namespace choral::apps
