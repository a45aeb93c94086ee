#include "engine/adapters/adapter_pins.h"

namespace choral::engine {

using lora::MemoryRoom;

void AdapterPins::settle(Load load, Answer answer) {
  for (auto wish = wishes_.begin(); wish != wishes_.end();)
    wish = settle_one(*wish, load, answer) ? wishes_.erase(wish) : wish + 1;
}

// Whether it is answered; else it waits for a load.
bool AdapterPins::settle_one(Wish& wish, Load load, Answer answer) {
  AdapterVersion& version = *wish.version;
  if (version.loading) wish.tried = true;
  // An unpin waits too: it may have come after a pin that does.
  if (version.loading || (version.content && memory_.loading(version.content->id))) return false;
  Status status;
  if (!wish.pinned) {
    unpin(version);
  } else if (version.content && memory_.resident(version.content->id)) {
    status = pin(version);
  } else if ((wish.tried || version.failures > wish.failures_before) && !version.failure.ok()) {
    status = version.failure;
  } else {
    status = room_for(version);
    if (status.ok() && !wish.tried) {
      load(wish.version);
      version.loading = wish.tried = true;
      return false;
    }
    if (status.ok())
      status = unavailable("adapter '{}' left memory before it could be pinned; try again", version.request.lora_name);
  }
  answer(wish, status);
  return true;
}

Status AdapterPins::pin(AdapterVersion& version) {
  const lora::AdapterId id = version.content->id;
  version.pinned = memory_.pin(id);
  if (version.pinned) return {};
  const auto pinned = book().pinned(), pinnable = book().pinnable();
  if (pinned.adapters >= pinnable.adapters) {
    return resource_exhausted(
        "adapter '{}' cannot be pinned: of the {} that --max-cpu-loras allows in memory {} may be, and {} are; raise it or unpin "
        "another",
        version.request.lora_name, book().budget().adapters, pinnable.adapters, pinned.adapters);
  }
  return resource_exhausted(
      "adapter '{}' needs {} bytes, and {} of the budget for adapters ({}) may be pinned, {} of which are; raise "
      "--adapter-memory or unpin another",
      version.request.lora_name, book().at(id).size_bytes, pinnable.bytes, book().budget().bytes, pinned.bytes);
}

void AdapterPins::unpin(AdapterVersion& version) {
  version.pinned = false;
  if (version.content) review(*version.content);
}

void AdapterPins::review(const AdapterContent& content) {
  if (!content.is_pinned()) memory_.unpin(content.id);
}

// Whether its content can come to memory now; before its first load nobody knows.
Status AdapterPins::room_for(const AdapterVersion& version) const {
  if (version.content == nullptr) return {};
  const int64_t bytes = book().at(version.content->id).size_bytes, budget = book().budget().bytes;
  switch (book().room_for(version.content->id)) {
    case MemoryRoom::kFits:
    case MemoryRoom::kFitsAfterEviction: return {};
    case MemoryRoom::kTooLarge:
      return too_large("adapter '{}' needs {} bytes in memory, the budget for adapters has {}; raise --adapter-memory",
                       version.request.lora_name, bytes, budget);
    case MemoryRoom::kNoRoom: break;
  }
  const auto most = book().budget().adapters;
  if (book().used().adapters == most) {
    return resource_exhausted(
        "adapter '{}' is not in memory, and as many as --max-cpu-loras allows ({}) are, in use or pinned; raise it, unpin "
        "another or try again later",
        version.request.lora_name, most);
  }
  return resource_exhausted(
      "adapter '{}' needs {} bytes in memory, and what fills the budget for adapters ({}) is in use or pinned; raise "
      "--adapter-memory, unpin another or try again later",
      version.request.lora_name, bytes, budget);
}

}  // namespace choral::engine
