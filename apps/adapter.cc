// `choral adapter`: looks at adapters without or beside serving them.
#include <CLI/CLI.hpp>

#include "adapter_catalogue.h"
#include "adapter_check_report.h"
#include "adapter_diff.h"
#include "adapter_list.h"
#include "command.h"

namespace choral::apps {
namespace {

void add_check(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("check", "what DIR holds, whether it can be served, with --model whether it fits");
  const auto flags = std::make_shared<AdapterCheckFlags>();
  sub->add_option("DIR", flags->paths, "folders in PEFT's form or GGUF files")->type_name("")->required();
  sub->add_option("-m,--model", flags->engine.options.model, "the model that it is for; of its weights only DoRA's are read")
      ->type_name("MODEL");
  sub->add_flag("--strict", flags->engine.options.strict, "an adapter that was made for another base is refused");
  sub->add_option("--max-lora-rank", flags->engine.options.max_lora_rank, "the highest rank that is served (512)")
      ->type_name("N");
  sub->add_option("--lora-extra-vocab-size", flags->engine.options.lora_extra_vocab_size,
                  "the most tokens that an adapter may bring (256)")
      ->type_name("N");
  sub->add_flag("--json", flags->json, "one record a line");
  sub->callback([flags, &command] { command.run = [flags] { return check_adapters(*flags); }; });
}

void add_catalogue(CLI::App& app, Command& command) {
  auto* sub =
      app.add_subcommand("catalogue", "write DIR/catalogue.json, which servers with --adapter-root DIR, or its URL, follow");
  const auto flags = std::make_shared<AdapterCatalogueFlags>();
  sub->add_option("DIR", flags->folder, "a folder of adapters, as --adapter-root has it")->type_name("")->required();
  sub->add_option("-m,--model", flags->engine.options.model, "the model that they are for; of its weights only DoRA's are read")
      ->type_name("MODEL");
  sub->add_option("--max-lora-rank", flags->engine.options.max_lora_rank, "adapters of a higher rank are refused (512)")
      ->type_name("N");
  sub->add_flag("-q,--quiet", flags->quiet, "no last line");
  sub->callback([flags, &command] { command.run = [flags] { return write_adapter_catalogue(*flags); }; });
}

void add_list(CLI::App& app, Command& command) {
  struct Flags {
    AdapterFlags adapters;
    EngineOptions options;
    bool json = false;
  };
  auto* sub = app.add_subcommand("list", "the adapters that --adapter-root or --lora lead to: kind, rank, size, base");
  const auto flags = std::make_shared<Flags>();
  add_adapter_place_flags(*sub, flags->adapters, flags->options);
  sub->add_option("-m,--model", flags->options.model, "also says which do not fit it, or were made for another base")
      ->type_name("MODEL");
  sub->add_flag("--json", flags->json, "one record a line");
  sub->callback(
      [flags, &command] { command.run = [flags] { return list_adapters(flags->adapters, flags->options, flags->json); }; });
}

void add_diff(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("diff", "a prompt answered by A and by B in one batch, and where the answers part");
  const auto flags = std::make_shared<AdapterDiffFlags>();
  sub->add_option("A", flags->first, "base, an adapter, NAME:FACTOR, or a mix X+Y")->type_name("")->required();
  sub->add_option("B", flags->second, "the other one")->type_name("")->required();
  sub->add_option("-m,--model", flags->engine.options.model, "a folder, a GGUF file, or org/name")->type_name("MODEL");
  sub->add_option("-p,--prompt", flags->prompts, "the text to continue; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  sub->add_flag("--chat", flags->chat, "put the prompt through the model's chat template as the user's message");
  sub->add_option("--system", flags->system, "the system's message; implies --chat")->type_name("TEXT");
  sub->add_flag("--json", flags->json, "one record a prompt");
  sub->add_option("--html", flags->html, "also a page of it, one file: with what the adapters change, by layer and module")
      ->type_name("FILE");
  add_sampling_flags(*sub, flags->sampling);
  add_engine_flags(*sub, flags->engine);
  sub->callback([flags, &command] { command.run = [flags] { return diff_adapters(*flags); }; });
}

}  // namespace

void add_adapter(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("adapter", "check, list and compare adapters");
  add_check(*sub, command);
  add_catalogue(*sub, command);
  add_list(*sub, command);
  add_diff(*sub, command);
}

}  // namespace choral::apps
