// Requests that are branches of one answer.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler.h"

namespace choral::sched {

// Beside those of their leader, where each has so many tokens and the first of them are the same.
int64_t Scheduler::blocks_for_followers(const Request& leader, int64_t shared_tokens, int64_t token_count) const {
  return (leader.width() - 1) * cache_.most_blocks_of_fork(token_count, shared_tokens);
}

// They have their places from the beginning, and no block before they join.
void Scheduler::add_followers(Request& leader, std::vector<Request*>::iterator place) {
  for (const auto& follower : leader.followers) {
    Request& to = *follower;
    to.status = RequestStatus::kRunning;
    to.sits_out = true;
    to.arrival = leader.arrival;
    to.priority = leader.priority;
    to.in_background = leader.in_background;
    to.promoted = leader.promoted;
    to.adapter_key = leader.adapter_key;
    to.activation_token = leader.activation_token;
    to.prompt_count = to.prompt_done_count = leader.prompt_count;  // no token of the prompt is new to them
    place = running_.insert(place, &to) + 1;
  }
}

void Scheduler::join(Request& follower) {
  const Request& leader = follower.lead();
  CHORAL_CHECK(leader.status == RequestStatus::kRunning && leader.remaining() == 0 && follower.computed_count == 0,
               "a follower joins once, when its leader is computed");
  const auto same = std::mismatch(follower.tokens.begin(), follower.tokens.end() - 1, leader.tokens.begin(), leader.tokens.end());
  follower.computed_count =
      static_cast<int32_t>(cache_.fork(leader.block_tables, same.first - follower.tokens.begin(), follower.block_tables));
  follower.sits_out = false;
}

void Scheduler::branch(Request& leader, std::span<const Branch> next) {
  CHORAL_CHECK(std::ssize(next) == leader.width() && leader.status == RequestStatus::kRunning,
               "each member of a running group goes on somehow");
  const auto member = [&](size_t i) -> Request& { return i == 0 ? leader : *leader.followers[i - 1]; };
  share(leader);
  for (size_t i = 0; i < next.size(); ++i) {
    if (next[i].from != &member(i)) go_on_from(member(i), *next[i].from);
  }
  for (size_t i = 0; i < next.size(); ++i) {
    CHORAL_CHECK(!member(i).in_flight && member(i).token_count() < leader.max_length,
                 "a group at its length limit must be finished");
    member(i).tokens.push_back(next[i].token);
    member(i).sits_out = false;
  }
  leader.last_progress_step = step_;
  FairShare::charge(leader.share, kOutputWeight * std::ssize(next));
}

// What the member has itself of those tokens may reach farther than the other's whole blocks do: as far as their answers are the
// same.
void Scheduler::go_on_from(Request& member, const Request& from) {
  CHORAL_CHECK(from.remaining() == 0 && &from.lead() == &member.lead(),
               "a member goes on from one of its group that is computed");
  const auto own = member.tokens.begin() + member.computed_count;
  const auto same =
      std::mismatch(member.tokens.begin(), own, from.tokens.begin(), from.tokens.end()).first - member.tokens.begin();
  const int64_t whole = int64_t{from.computed_count} / cache_.block_tokens() * cache_.block_tokens();
  int64_t held = same > whole ? cache_.truncate(member.block_tables, same) : 0;
  if (held < whole || same <= whole) {
    cache_.release(member.block_tables);
    held = cache_.fork(from.block_tables, from.computed_count, member.block_tables);
  }
  member.tokens.assign(from.tokens.begin(), from.tokens.end());
  member.computed_count = static_cast<int32_t>(held);
}

}  // namespace choral::sched
