// Reads an adapter's files and packs them for the engine. The order spends least on adapters that will be refused: the config,
// then the memory it would take by its tensors' shapes alone, and only then its file, read into memory once. Those bytes are
// checked, hashed and packed. Keeps the memory of one file for the next, and makes memory ready for what is packed next. One
// thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "io/read_file.h"
#include "lora/peft/adapter_source.h"
#include "lora/store/packed_adapter.h"

namespace choral::lora {

// What its config says of an adapter.
struct AdapterDescription {
  std::string kind;                // PEFTHelper::kind
  std::vector<std::string> notes;  // what may be wrong with it, though it is served
};

class PackedAdapterLoader {
 public:
  // `ctx` as PackedAdapter::pack() wants it; it and `targets` outlive this. `budget_bytes`: what an adapter may take when it is
  // packed; 0 is no limit.
  PackedAdapterLoader(const platform::Context& ctx, std::span<const LoRATarget> targets, LoRALoadOptions options,
                      int64_t budget_bytes);

  // `described` is filled as soon as it is known. `admit` is asked before memory is spent, with the bytes that the
  // packed adapter will take; its error is the answer. An adapter over the budget is kTooLarge before it is asked. Files that are
  // written to meanwhile are kUnavailable.
  Result<std::shared_ptr<const PackedAdapter>> load(const AdapterSource& source, AdapterDescription& described,
                                                    FunctionRef<Status(int64_t packed_bytes)> admit);
  // When there is time: memory for an adapter like the last one, which mostly the next one is. To use it for the first time takes
  // a good part of a load.
  Status prepare_next();

 private:
  Result<int64_t> measure(const LoRAModel& model) const;
  Status check_budget(int64_t bytes) const;

  const platform::Context& ctx_;
  std::span<const LoRATarget> targets_;
  LoRALoadOptions options_;
  int64_t budget_bytes_;
  io::ReadMemory memory_;
  AlignedBuffer next_panels_;    // touched
  size_t last_panel_bytes_ = 0;  // 0: more than is made ready
};

}  // namespace choral::lora
