// What becomes of the states of layers that keep one.
#include <utility>

#include "sched/scheduler.h"

namespace choral::sched {

// Of a sequence whose layers keep states as far as the state behind it was kept, and is there for one who needs a place besides.
// A shorter prefix may lack blocks that windows show behind it, and be found shorter still: then it needs a state of its own.
cache::PrefixMatch Scheduler::find_prefix(const Request& request) const {
  cache::PrefixMatch match = cache_.find_prefix(request.prefix_chain, request.token_count());
  while (states_.wanted() && match.blocks > 0) {
    int32_t blocks = match.blocks;
    for (; blocks > 0; --blocks) {
      const int32_t slot = states_.find(request.prefix_chain[blocks - 1]);
      if (slot != cache::kNoSlot && states_.free_count() > (states_.is_held(slot) ? 0 : 1)) break;
    }
    if (blocks == match.blocks) break;
    match = cache_.find_prefix(request.prefix_chain, blocks * cache_.block_tokens() + 1);
  }
  return match;
}

int32_t Scheduler::state_behind(const Request& request, cache::PrefixMatch match) const {
  return states_.wanted() && match.blocks > 0 ? states_.find(request.prefix_chain[match.blocks - 1]) : cache::kNoSlot;
}

void Scheduler::begin_state(Request& request, int32_t adopted, int32_t adopted_tokens) {
  if (adopted != cache::kNoSlot) states_.hold(adopted);
  request.state_slot = states_.take();
  request.state_from = adopted;
  request.kept_tokens = 0;
  request.named_tokens = adopted_tokens;
}

bool Scheduler::keeps_state_for_others(const Request& request) const {
  return cache_.prefix_caching() && request.prefix_root && !request.is_distrusted;
}

// None fills a block behind which the state is to be kept: a known token does. Nor takes any the place of a state that others
// find.
int32_t Scheduler::guesses_before_kept_state(const PlanItem& item) const {
  if (!states_.has_nameless()) return 0;
  if (!keeps_state_for_others(*item.request)) return Request::kMostGuesses;
  const int32_t block = cache_.block_tokens(), end = item.first_token + item.token_count;
  return block - end % block - 1;
}

// The last whole block that the rows fill is where the state is kept; of a prompt's last rows one that leaves a token, since that
// is computed by whoever finds the prefix.
void Scheduler::plan_state(PlanItem& item) {
  Request& request = *item.request;
  item.state_from = request.state_from;
  const int32_t end = item.first_token + item.token_count, block = cache_.block_tokens();
  const int32_t kept = (end == request.prompt_count ? end - 1 : end) / block * block;
  if (!keeps_state_for_others(request) || kept <= item.first_token) return;
  if (request.kept_slot == cache::kNoSlot) {
    if (states_.free_count() == 0) return;
    request.kept_slot = states_.take();
  }
  item.kept_slot = request.kept_slot;
  item.kept_rows = kept - item.first_token;
}

// The state that it goes on from may be one that others find.
void Scheduler::let_go_of_anothers_state(const Request& request) {
  const bool is_own = request.state_from == request.state_slot || request.state_from == request.kept_slot;
  if (!is_own && request.state_from != cache::kNoSlot) states_.give_back(request.state_from);
}

// After the step, or when it came to nothing: then what was kept may be written over.
void Scheduler::move_state(const PlanItem& item, bool computed) {
  Request& request = *item.request;
  if (item.kept_rows > 0) request.kept_tokens = computed ? item.first_token + item.kept_rows : 0;
  if (!computed) {
    if (item.draft_count > 0) take_state_behind_guesses(request, false);
    return;
  }
  const int32_t now = item.kept_rows == item.known_count() ? request.kept_slot : request.state_slot;
  let_go_of_anothers_state(request);
  request.state_from = now;
}

// Says whether it is the request's own now; else it is forgotten.
bool Scheduler::take_state_behind_guesses(Request& request, bool all_right) {
  if (all_right) {
    let_go_of_anothers_state(request);  // its kept one may just have got a name
    std::swap(request.state_slot, request.guess_slot);
  }
  states_.give_back(std::exchange(request.guess_slot, cache::kNoSlot));
  if (all_right) request.state_from = request.state_slot;
  return all_right;
}

// Gives the kept state its block's name where that is worth a place. The blocks up to there are published, so they were sound.
void Scheduler::name_state(Request& request, bool leaves) {
  const int32_t kept = request.kept_tokens, block = cache_.block_tokens();
  if (request.kept_slot == cache::kNoSlot || kept <= request.named_tokens || kept / block > request.published_blocks) return;
  const bool ends_prompt = kept <= request.prompt_count && request.computed_count >= request.prompt_count;
  if (!ends_prompt && !leaves && kept - request.named_tokens < config_.state_tokens) return;
  request.named_tokens = kept;
  // Whose name is another's already has the same content.
  if (!states_.name(request.prefix_chain[kept / block - 1], request.kept_slot)) return;
  if (request.state_from != request.kept_slot) states_.give_back(request.kept_slot);
  request.kept_slot = cache::kNoSlot;
  request.kept_tokens = 0;
}

void Scheduler::give_states_back(Request& request) {
  let_go_of_anothers_state(request);
  for (int32_t* slot : {&request.state_slot, &request.kept_slot, &request.guess_slot}) {
    if (*slot != cache::kNoSlot) states_.give_back(*slot);
    *slot = cache::kNoSlot;
  }
  request.state_from = cache::kNoSlot;
  request.kept_tokens = request.named_tokens = 0;
}

}  // namespace choral::sched
