#include "serve/keys/queue_shares.h"

#include <utility>

#include "base/check.h"

namespace choral::serve {

QueueShares::Place::Place(Place&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      client_(std::move(other.client_)),
      answers_(std::exchange(other.answers_, 0)) {}

QueueShares::Place& QueueShares::Place::operator=(Place&& other) noexcept {
  if (this != &other) {
    leave();
    owner_ = std::exchange(other.owner_, nullptr);
    client_ = std::move(other.client_);
    answers_ = std::exchange(other.answers_, 0);
  }
  return *this;
}

QueueShares::Place QueueShares::Place::split(int64_t answers) {
  if (owner_ == nullptr) return {};
  CHORAL_CHECK(answers <= answers_, "a place is split into more answers than it has");
  answers_ -= answers;
  return {owner_, client_, answers};
}

void QueueShares::Place::leave() {
  QueueShares* const owner = std::exchange(owner_, nullptr);
  if (owner != nullptr && answers_ > 0) owner->give_back(client_, answers_);  // else all were split off
}

Result<QueueShares::Place> QueueShares::take(std::string_view client, int64_t answers, const Queue& queue) {
  const int64_t most_at_once = (queue.most_waiting + queue.batch) / 2;
  if (answers > most_at_once) {
    return too_large(
        "the request asks for {} answers (n, best_of or beam_width, for each of its prompts); one request may ask for {}, half "
        "of the queue (--max-num-queued-reqs), so that others find a place",
        answers, most_at_once);
  }
  const std::lock_guard lock(mutex_);
  const auto found = in_flight_.find(client);
  const int64_t own = found == in_flight_.end() ? 0 : found->second;
  const int64_t may_wait = own + answers - queue.batch, left = queue.most_waiting - queue.waiting - answers;
  if (own > 0 && may_wait > left) {
    return resource_exhausted(
        "{} has {} answers in flight, and may have no more waiting than it leaves free for others (--max-num-queued-reqs); try "
        "again when some have ended",
        client, own);
  }
  if (found == in_flight_.end()) {
    in_flight_.emplace(std::string(client), answers);
  } else {
    found->second += answers;
  }
  return Place(this, std::string(client), answers);
}

void QueueShares::give_back(const std::string& client, int64_t answers) {
  const std::lock_guard lock(mutex_);
  const auto found = in_flight_.find(client);
  CHORAL_CHECK(found != in_flight_.end() && found->second >= answers, "a place of a client that has none");
  found->second -= answers;
  if (found->second == 0) in_flight_.erase(found);
}

}  // namespace choral::serve
